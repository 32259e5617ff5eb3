from p2pexo.cluster.facts import Deletion, Placements, Withdrawal
from p2pexo.cluster.reconciling import known_placements, reconcile
from p2pexo.ring.plan import Epoch
from p2pexo.ring.stage import StagePhase

LATER = Epoch(2, 2, "d")


def facts_of(scene, placement, phase=StagePhase.READY):
    return [scene.fact(placement, rank, phase) for rank in range(len(placement.stages))]


def test_the_ring_that_went_on_through_a_partition_beats_the_newer_one_of_who_was_cut_off(scene) -> None:
    serving, formed_alone = scene.placement("b", "c"), scene.placement("d", epoch=LATER)
    facts = [*facts_of(scene, serving), *facts_of(scene, formed_alone)]
    expected = (serving,), (Withdrawal("p1", LATER),)
    for held in (
        Placements([serving], rivals=[formed_alone]),  # the claims were merged
        Placements([serving]),  # the cut off one's document came first
    ):
        decided = reconcile(scene.cluster("abcd", held, facts))
        assert (decided.placements, decided.withdrawals, decided.rivals) == (*expected, ())
        again = reconcile(scene.cluster("abcd", decided, facts))
        assert again == decided


def test_a_ring_that_really_was_lost_gives_way_to_the_newer_one(scene) -> None:
    lost, formed_anew = scene.placement("b", "c"), scene.placement("b", "d", epoch=LATER)
    for phase in (StagePhase.BROKEN, StagePhase.LISTENING, StagePhase.FAILED):
        facts = [scene.fact(lost, 1, phase), *facts_of(scene, formed_anew)]
        decided = reconcile(scene.cluster("abcd", Placements([formed_anew], rivals=[lost]), facts))
        assert (decided.placements, decided.withdrawals) == ((formed_anew,), ())


def test_of_two_rings_that_serve_the_one_of_the_side_that_leads_goes_on(scene) -> None:
    ours, theirs = scene.placement("b", "c", epoch=LATER), scene.placement("d", epoch=Epoch(1, 2, "d"))
    facts = [*facts_of(scene, ours), *facts_of(scene, theirs)]
    decided = reconcile(scene.cluster("abcd", Placements([ours], rivals=[theirs]), facts))
    assert (decided.placements, decided.withdrawals) == ((ours,), ())


def test_a_leader_that_comes_back_gives_up_its_broken_ring_for_any_that_is_ready(scene) -> None:
    broken, ready = scene.placement("a", "b", epoch=LATER), scene.placement("b", epoch=Epoch(1, 2, "b"))
    facts = [scene.fact(broken, 0, StagePhase.BROKEN), *facts_of(scene, ready)]
    decided = reconcile(scene.cluster("ab", Placements([broken], rivals=[ready]), facts))
    assert (decided.placements, decided.withdrawals) == ((ready,), (Withdrawal("p1", LATER),))


def test_a_leader_that_forms_a_ring_anew_is_not_held_up_by_what_workers_still_report(scene) -> None:
    before, now = scene.placement("b", "c"), scene.placement("b", "d", epoch=LATER)
    assert known_placements(scene.cluster("abcd", Placements([now]), facts_of(scene, before))) == (now,)


def test_what_workers_report_is_adopted_unless_it_was_deleted_or_withdrawn(scene) -> None:
    running = scene.placement("b")
    cluster = scene.cluster("ab", Placements(), facts_of(scene, running))
    assert known_placements(cluster) == (running,)
    deleted = Placements(deletions=[Deletion("p1", "asked", 0.0)])
    assert known_placements(scene.cluster("ab", deleted, facts_of(scene, running))) == ()
    older = scene.placement("c", epoch=Epoch(0, 1, "a"))
    withdrawn = Placements([older], withdrawals=[Withdrawal("p1", running.epoch)])
    assert known_placements(scene.cluster("ab", withdrawn, facts_of(scene, running))) == (older,)


def test_a_withdrawal_is_forgotten_once_a_later_ring_was_formed(scene) -> None:
    placed = Placements([scene.placement("b", epoch=Epoch(3, 1, "a"))], withdrawals=[Withdrawal("p1", LATER)])
    assert reconcile(scene.cluster("ab", placed)).withdrawals == ()
