from attrs import evolve

from p2pexo.cluster.assignments import Assignment
from p2pexo.cluster.facts import Placements, Trouble
from p2pexo.cluster.handover import placed_here, still_serves, to_hand_over
from p2pexo.cluster.observed import Cluster
from p2pexo.cluster.repair import Memory, Moment, decide
from p2pexo.ring.plan import Epoch
from p2pexo.ring.stage import StagePhase

LATER = Epoch(2, 1, "b")


def handing_over(scene, heir: StagePhase, leaver: StagePhase = StagePhase.READY) -> tuple[Cluster, Assignment]:
    """c hands its stage to d, while b keeps its own; seen by c."""
    older, newer = scene.placement("b", "c"), scene.placement("b", "d", epoch=LATER)
    facts = [
        scene.fact(newer, 0, StagePhase.READY, epoch=older.epoch),
        scene.fact(newer, 1, heir),
        scene.fact(older, 1, leaver),
    ]
    cluster = scene.cluster("bcd", Placements([newer]), facts, me="c")
    return evolve(cluster, leaving=frozenset("c")), Assignment(older, 1)


def test_the_ring_of_a_leaving_machine_is_formed_anew_while_it_serves(scene) -> None:
    placed = Placements([scene.placement("b", "c")], next_count=2)
    facts = [scene.fact(placed.placements[0], rank) for rank in (0, 1)]
    cluster = evolve(scene.cluster("abcd", placed, facts, budgets={"a": 10}), leaving=frozenset("c"))
    decision = decide(cluster, Memory(), Moment(0.0, 0.0))
    assert [stage.peer for stage in decision.placements.placements[0].stages] == ["b", "d"]
    assert decision.memory.trials["p1"].strikes == 0


def test_nothing_is_given_to_a_machine_that_leaves(scene) -> None:
    placed = Placements([scene.placement("a", "b")], next_count=2)
    cluster = evolve(scene.cluster("ac", placed, budgets={"a": 1000}), leaving=frozenset("c"))
    decision = decide(cluster, Memory(), Moment(0.0, 0.0))
    assert decision.placements.placements == placed.placements
    assert "does not fit" in decision.placements.troubles[0].reason


def test_a_stage_that_leaves_serves_until_the_next_ring_is_loaded(scene) -> None:
    assert still_serves(*handing_over(scene, StagePhase.LOADING))
    assert not still_serves(*handing_over(scene, StagePhase.LISTENING))


def test_a_stage_whose_ring_broke_meanwhile_is_not_kept(scene) -> None:
    assert not still_serves(*handing_over(scene, StagePhase.LOADING, leaver=StagePhase.BROKEN))
    cluster, assignment = handing_over(scene, StagePhase.LOADING)
    members = {peer: member for peer, member in cluster.members.items() if peer != "b"}
    assert not still_serves(evolve(cluster, members=members), assignment)


def test_memory_is_given_back_where_the_next_ring_needs_it(scene) -> None:
    older, newer = scene.placement("b", "c"), scene.placement("c", epoch=LATER)
    cluster = scene.cluster("bc", Placements([newer]), [scene.fact(older, 1)], me="c")
    assert not still_serves(cluster, Assignment(older, 1))


def test_a_machine_may_go_when_the_next_ring_is_ready(scene) -> None:
    cluster, _ = handing_over(scene, StagePhase.LISTENING)
    ids = frozenset({"p1"})
    assert to_hand_over(cluster, ids) == ("owner/model: its next ring is not ready",)
    newer = cluster.placements.placements[0]
    facts = {("b", "p1", 0): scene.fact(newer, 0), ("d", "p1", 1): scene.fact(newer, 1)}
    assert to_hand_over(evolve(cluster, stages=facts), ids) == ()


def test_what_fits_nowhere_else_is_said_in_words(scene) -> None:
    placed = Placements([scene.placement("b", "c")], troubles=[Trouble("p1", "it does not fit")])
    cluster = scene.cluster("bc", placed, me="c")
    assert placed_here(cluster) == {"p1"}
    assert to_hand_over(cluster, placed_here(cluster)) == ("owner/model: it does not fit",)


def test_where_all_leave_nobody_waits_for_another(scene) -> None:
    cluster = scene.cluster("bc", Placements([scene.placement("b", "c")]), me="c")
    assert to_hand_over(evolve(cluster, leaving=frozenset("bc")), frozenset({"p1"})) == ()
