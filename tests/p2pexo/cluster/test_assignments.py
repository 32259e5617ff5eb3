import pytest
from attrs import evolve

from networking.transport import Address, PeerId
from p2pexo.cluster.assignments import (
    Assignment,
    Difference,
    Ledger,
    difference,
    may_join,
    neighbours,
    proven_first,
    sign_certificate,
)
from p2pexo.cluster.facts import Deletion, Placements, Withdrawal
from p2pexo.ring.plan import Epoch
from p2pexo.ring.stage import Endpoint, StagePhase, StageStatus

LATER = Epoch(2, 1, "b")


def compare(running, placements: Placements, ledger: Ledger | None = None, me: str = "b") -> Difference:
    assigned = {each.key: each for each in running}
    return difference(assigned, placements, (ledger or Ledger()).told(placements), me)


def test_a_stage_that_names_this_node_starts(scene) -> None:
    placement = scene.placement("a", "b")
    assert compare([], Placements([placement])) == Difference(start=(Assignment(placement, 1),))
    assert compare([], Placements([placement]), me="z") == Difference()


def test_what_runs_already_is_left_alone(scene) -> None:
    placement = scene.placement("a", "b")
    assert compare([Assignment(placement, 1)], Placements([placement])) == Difference()


def test_the_absence_of_a_placement_means_nothing(scene) -> None:
    assert compare([Assignment(scene.placement("a", "b"), 1)], Placements()) == Difference()


def test_a_deleted_placement_stops_and_never_comes_back(scene) -> None:
    placement = scene.placement("a", "b")
    deleted = Placements(deletions=[Deletion("p1", "asked", 0.0)])
    assert compare([Assignment(placement, 1)], deleted) == Difference(stop=(("p1", 1),))
    assert compare([], Placements([placement]), Ledger().told(deleted)) == Difference()


def test_a_newer_epoch_with_the_same_layers_keeps_the_process(scene) -> None:
    older, newer = scene.placement("a", "b"), scene.placement("c", "b", epoch=LATER)
    assert compare([Assignment(older, 1)], Placements([newer])) == Difference(renew=(Assignment(newer, 1),))


def test_a_ring_of_one_keeps_its_process_under_a_newer_epoch(scene) -> None:
    older, newer = scene.placement("b"), scene.placement("b", epoch=LATER)
    assert compare([Assignment(older, 0)], Placements([newer])) == Difference(renew=(Assignment(newer, 0),))


def test_a_newer_epoch_with_other_layers_stops_and_starts(scene) -> None:
    older, newer = scene.placement("a", "b", "c"), scene.placement("a", "b", epoch=LATER)
    todo = compare([Assignment(older, 1)], Placements([newer]))
    assert todo == Difference(stop=(("p1", 1),), start=(Assignment(newer, 1),))


def test_a_stage_that_becomes_the_last_one_is_started_anew(scene) -> None:
    older = scene.placement("a", "b", "c")
    newer = evolve(older, stages=older.stages[:2], epoch=LATER)
    assert compare([Assignment(older, 1)], Placements([newer])).renew == ()


def test_a_newer_epoch_that_no_longer_names_this_node_stops_its_stage(scene) -> None:
    newer = scene.placement("a", "c", epoch=LATER)
    assert compare([Assignment(scene.placement("a", "b"), 1)], Placements([newer])) == Difference(stop=(("p1", 1),))


def test_another_rank_on_the_same_node_is_another_stage(scene) -> None:
    older, newer = scene.placement("a", "b"), scene.placement("b", "a", epoch=LATER)
    todo = compare([Assignment(older, 1)], Placements([newer]))
    assert todo == Difference(stop=(("p1", 1),), start=(Assignment(newer, 0),))


def test_a_leader_with_old_news_turns_nothing_back(scene) -> None:
    older, newer = scene.placement("a", "b"), scene.placement("a", "c", epoch=LATER)
    ledger = Ledger().told(Placements([newer]))
    assert compare([], Placements([older]), ledger) == Difference()


def accepting(peer: PeerId, data: bytes, signature: bytes) -> bool:
    return signature == f"{peer}:".encode() + data


def introduced(scene, placement, ranks, phase=StagePhase.LISTENING, signed_by=None):
    facts = []
    for rank in ranks:
        fact = scene.fact(placement, rank, phase)
        peer = signed_by or placement.stages[rank].peer
        signature = sign_certificate(
            lambda data, peer=peer: f"{peer}:".encode() + data, fact.status.certificate, placement.id, rank
        )
        facts.append(evolve(fact, signature=signature))
    return scene.cluster("abc", Placements([placement]), facts)


def test_neighbours_are_known_once_both_have_introduced_themselves(scene) -> None:
    placement = scene.placement("a", "b", "c")
    beside = neighbours(Assignment(placement, 1), introduced(scene, placement, (0, 2)), accepting)
    assert beside is not None
    assert beside.previous_certificate == "certificate 0"
    assert beside.next_certificate == "certificate 2"
    assert beside.next_endpoints == (Endpoint("127.0.0.1", 4002),)
    assert beside.epoch == placement.epoch
    assert neighbours(Assignment(placement, 1), introduced(scene, placement, (0,)), accepting) is None


def test_where_the_overlay_is_connected_comes_before_what_the_neighbour_says_of_itself(scene) -> None:
    placement = scene.placement("a", "b")
    cluster = introduced(scene, placement, (1,))
    fact = cluster.stages["b", placement.id, 1]
    endpoints = (Endpoint("10.0.0.1", 1), Endpoint("10.0.0.2", 1))
    fact = evolve(fact, status=evolve(fact.status, endpoints=endpoints))
    member = evolve(
        cluster.members["b"],
        addresses=(Address("/ip4/10.0.0.1/tcp/5"), Address("/ip4/10.0.0.2/tcp/5")),
        proven=(Address("/ip4/10.0.0.2/tcp/5"),),
    )
    cluster = evolve(cluster, stages={("b", placement.id, 1): fact}, members={**cluster.members, "b": member})
    beside = neighbours(Assignment(placement, 0), cluster, accepting)
    assert beside is not None
    assert [each.host for each in beside.next_endpoints] == ["10.0.0.2", "10.0.0.1"]


def test_two_stages_are_each_others_neighbours_on_both_sides(scene) -> None:
    placement = scene.placement("a", "b")
    beside = neighbours(Assignment(placement, 0), introduced(scene, placement, (1,)), accepting)
    assert beside is not None
    assert beside.previous_certificate == beside.next_certificate == "certificate 1"


def test_a_ring_of_one_has_no_neighbours_to_wait_for(scene) -> None:
    placement = scene.placement("b")
    beside = neighbours(Assignment(placement, 0), scene.cluster("ab"), accepting)
    assert beside is not None
    assert beside.epoch == placement.epoch


def test_a_certificate_with_a_strangers_signature_does_not_count(scene) -> None:
    placement = scene.placement("a", "b")
    assert neighbours(Assignment(placement, 0), introduced(scene, placement, (1,), signed_by="c"), accepting) is None


def test_a_signature_that_is_no_base64_does_not_count(scene) -> None:
    placement = scene.placement("a", "b")
    fact = evolve(scene.fact(placement, 1, StagePhase.LISTENING), signature="§")
    assert neighbours(Assignment(placement, 0), scene.cluster("ab", facts=[fact]), accepting) is None


@pytest.mark.parametrize("phase", [StagePhase.STARTING, StagePhase.LOADING, StagePhase.FAILED])
def test_a_neighbour_that_is_not_loaded_is_waited_for(scene, phase: StagePhase) -> None:
    placement = scene.placement("a", "b")
    assert neighbours(Assignment(placement, 0), introduced(scene, placement, (1,), phase), accepting) is None


def test_a_neighbour_of_another_epoch_is_waited_for(scene) -> None:
    older, newer = scene.placement("a", "b"), scene.placement("a", "b", epoch=LATER)
    assert neighbours(Assignment(newer, 0), introduced(scene, older, (1,)), accepting) is None


@pytest.mark.parametrize(
    ("phase", "joined", "may"),
    [
        (StagePhase.STARTING, None, False),
        (StagePhase.LOADING, None, False),
        (StagePhase.LISTENING, None, True),
        (StagePhase.LINKING, LATER, True),
        (StagePhase.READY, LATER, False),
        (StagePhase.READY, Epoch(1, 1, "a"), True),
        (StagePhase.BROKEN, LATER, False),
        (StagePhase.BROKEN, Epoch(1, 1, "a"), True),
        (StagePhase.FAILED, None, False),
    ],
)
def test_a_loaded_stage_joins_each_epoch_once(phase: StagePhase, joined: Epoch | None, may: bool) -> None:
    assert may_join(StageStatus(phase, epoch=joined), LATER) is may


def test_hosts_that_the_overlay_reaches_come_first() -> None:
    endpoints = [Endpoint("192.168.1.2", 1), Endpoint("10.0.0.2", 1), Endpoint("fd00::2", 1)]
    proven = [Address("/ip6/fd00::2/tcp/5"), Address("/ip4/10.0.0.2/tcp/5")]
    assert [each.host for each in proven_first(endpoints, proven)] == ["fd00::2", "10.0.0.2", "192.168.1.2"]


def test_what_two_leaders_have_formed_is_left_as_it_is_until_it_is_decided(scene) -> None:
    older, newer = scene.placement("b"), scene.placement("b", "c", epoch=Epoch(2, 1, "c"))
    assert compare([Assignment(older, 0)], Placements([newer], rivals=[older])) == Difference()
    assert compare([Assignment(newer, 0)], Placements([newer], rivals=[older])) == Difference()


def test_a_ring_that_was_withdrawn_ends_and_the_older_one_may_be_formed_here_afterwards(scene) -> None:
    older, newer = scene.placement("b", "c"), scene.placement("b", epoch=Epoch(2, 1, "b"))
    decided = Placements([older], withdrawals=[Withdrawal(newer.id, newer.epoch)])
    ledger = Ledger().told(Placements([newer])).told(decided)
    assert compare([Assignment(newer, 0)], decided, ledger) == Difference(stop=((newer.id, 0),))
    assert [each.placement for each in compare([], decided, ledger).start] == [older]
