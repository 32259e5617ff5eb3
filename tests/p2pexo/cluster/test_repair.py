from math import inf

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from p2pexo.cluster.facts import Deletion, Placements, SpeedsFact
from p2pexo.cluster.reforming import candidates
from p2pexo.cluster.repair import (
    DELETION_KEPT_S,
    LINK_WITHIN_S,
    MAX_STRIKES,
    STEADY_AFTER_S,
    Decision,
    Memory,
    Moment,
    Trial,
    decide,
)
from p2pexo.ring.plan import Epoch
from p2pexo.ring.stage import StagePhase


def at(now: float) -> Moment:
    return Moment(now, 1_700_000_000.0)


def peers(decision: Decision) -> list[str]:
    return [stage.peer for stage in decision.placements.placements[0].stages]


def test_a_ring_in_order_is_left_alone(scene) -> None:
    placed = Placements([scene.placement("b", "c")], next_count=2)
    facts = [scene.fact(placed.placements[0], rank) for rank in (0, 1)]
    decision = decide(scene.cluster("abc", placed, facts), Memory(), at(0))
    assert decision.placements == placed
    assert decision.wake_at == inf


def test_a_join_changes_nothing(scene) -> None:
    placed = Placements([scene.placement("b", "c")], next_count=2)
    facts = [scene.fact(placed.placements[0], rank) for rank in (0, 1)]
    assert decide(scene.cluster("abcd", placed, facts), Memory(), at(0)).placements == placed


def test_a_ring_that_is_loading_is_left_alone(scene) -> None:
    placed = Placements([scene.placement("b", "c")], next_count=2)
    facts = [scene.fact(placed.placements[0], 0, StagePhase.LOADING)]
    assert decide(scene.cluster("abc", placed, facts), Memory(), at(0)).placements == placed


def test_a_spare_machine_takes_over_exactly_the_lost_layers(scene) -> None:
    placed = Placements([scene.placement("b", "c", "d")], next_count=2)
    decision = decide(scene.cluster("abd", placed), Memory(), at(5))
    renewed = decision.placements.placements[0]
    assert peers(decision) == ["b", "a", "d"]
    assert renewed.id == "p1"
    assert renewed.epoch == Epoch(4, 2, "a")
    assert [(s.first_layer, s.end_layer) for s in renewed.stages] == [(0, 10), (10, 20), (20, 30)]
    assert decision.placements.next_count == 3


def test_of_several_spare_machines_the_fastest_takes_over_unless_another_has_the_files(scene) -> None:
    placed = Placements([scene.placement("b", "c")], next_count=2)
    speeds = {"a": SpeedsFact(1e9), "d": SpeedsFact(3e9), "e": SpeedsFact(2e9)}
    lost = evolve(scene.cluster("abde", placed), speeds=speeds)
    assert peers(decide(lost, Memory(), at(5))) == ["b", "d"]
    held = evolve(scene.cluster("abde", placed, held="e"), speeds=speeds)
    assert peers(decide(held, Memory(), at(5))) == ["b", "e"]


def test_layers_that_are_shared_out_anew_go_by_speed(scene) -> None:
    placed = Placements([scene.placement("a", "b", "c")], next_count=2)
    short = scene.cluster("ab", placed, budgets={"a": 2400, "b": 2400})
    told = evolve(short, speeds={"a": SpeedsFact(1e6), "b": SpeedsFact(2.5e6)})
    (first, last) = decide(told, Memory(), at(0)).placements.placements[0].stages
    assert (first.peer, last.peer) == ("a", "b")
    assert last.end_layer - last.first_layer > first.end_layer


def test_without_a_spare_machine_one_of_the_ring_takes_the_lost_layers_and_all_keep_their_weights(scene) -> None:
    placed = Placements([scene.placement("a", "b", "c")], next_count=2)
    decision = decide(scene.cluster("ab", placed, budgets={"a": 2000}), Memory(), at(0))
    assert peers(decision) == ["a", "b", "b"]
    renewed = decision.placements.placements[0].stages
    assert [(s.first_layer, s.end_layer) for s in renewed] == [(0, 10), (10, 20), (20, 30)]
    assert renewed[:2] == placed.placements[0].stages[:2]


def test_the_last_machine_takes_all_that_was_lost(scene) -> None:
    placed = Placements([scene.placement("a", "b", "c")], next_count=2)
    assert peers(decide(scene.cluster("b", placed), Memory(), at(0))) == ["b", "b", "b"]


def test_two_that_were_lost_go_to_different_machines(scene) -> None:
    placed = Placements([scene.placement("a", "b", "c")], next_count=2)
    assert sorted(peers(decide(scene.cluster("ade", placed), Memory(), at(0)))) == ["a", "d", "e"]


def test_where_no_machine_has_room_for_all_that_was_lost_the_layers_are_shared_out_anew(scene) -> None:
    placed = Placements([scene.placement("a", "b", "c")], next_count=2)
    decision = decide(scene.cluster("ab", placed, budgets={"a": 2150, "b": 2150}), Memory(), at(0))
    assert sorted(peers(decision)) == ["a", "b"]
    assert [stage.end_layer for stage in decision.placements.placements[0].stages] == [15, 30]


def test_a_machine_that_is_too_small_does_not_keep_the_others_from_taking_the_layers(scene) -> None:
    placed = Placements([scene.placement("a", "b", "c")], next_count=2)
    assert set(peers(decide(scene.cluster("abd", placed, budgets={"d": 10}), Memory(), at(0)))) == {"a", "b"}


def test_what_no_longer_fits_waits_with_its_reason_and_is_formed_when_a_machine_comes(scene) -> None:
    placed = Placements([scene.placement("a", "b")], next_count=2)
    budgets = {"a": 1000, "c": 10**6}
    waiting = decide(scene.cluster("a", placed, budgets=budgets), Memory(), at(0))
    assert waiting.placements.placements == placed.placements
    assert "does not fit" in waiting.placements.troubles[0].reason
    again = decide(scene.cluster("a", waiting.placements, budgets=budgets), waiting.memory, at(1))
    assert again.placements == waiting.placements
    helped = decide(scene.cluster("ac", waiting.placements, budgets=budgets), again.memory, at(2))
    assert "c" in peers(helped)
    assert helped.placements.troubles == ()


def test_a_machine_on_which_the_stage_failed_is_avoided(scene) -> None:
    placed = Placements([scene.placement("b", "c")], next_count=2)
    facts = [scene.fact(placed.placements[0], 1, StagePhase.FAILED, reason="no space on disk")]
    assert peers(decide(scene.cluster("abc", placed, facts), Memory(), at(0))) == ["b", "a"]


def test_a_machine_on_which_the_stage_failed_is_tried_again_if_there_is_no_other(scene) -> None:
    placed = Placements([scene.placement("a")], next_count=2)
    facts = [scene.fact(placed.placements[0], 0, StagePhase.FAILED, reason="killed by SIGKILL")]
    decision = decide(scene.cluster("a", placed, facts), Memory(), at(0))
    assert peers(decision) == ["a"]
    assert decision.placements.placements[0].epoch == Epoch(4, 2, "a")


def test_repeated_failure_is_backed_off_and_ends_as_failed_with_the_reason(scene) -> None:
    placements, memory, now = Placements([scene.placement("a")], next_count=2), Memory(), 0.0
    pauses: list[float] = []
    while placements.placements:
        facts = [scene.fact(placements.placements[0], 0, StagePhase.FAILED, reason="model.safetensors is cut short")]
        decision = decide(scene.cluster("a", placements, facts), memory, at(now))
        if decision.placements == placements:
            pauses.append(decision.wake_at - now)
            now = decision.wake_at
        placements, memory = decision.placements, decision.memory
    assert pauses == [1, 2, 4]
    ended = placements.deletions[0]
    assert "model.safetensors is cut short" in ended.reason
    assert ended.failed is not None
    assert placements.next_count == 2 + 3


def test_links_that_break_again_and_again_are_borne_longer_than_failures(scene) -> None:
    placements, memory, now = Placements([scene.placement("a", "b")], next_count=2), Memory(), 0.0
    epochs = 0
    while placements.placements:
        facts = [scene.fact(placements.placements[0], rank, StagePhase.BROKEN, reason="reset") for rank in (0, 1)]
        decision = decide(scene.cluster("ab", placements, facts), memory, at(now))
        epochs += decision.placements.next_count - placements.next_count
        placements, memory, now = decision.placements, decision.memory, max(now, min(decision.wake_at, now + 60))
    assert epochs == MAX_STRIKES
    assert "reset" in placements.deletions[0].reason


def test_machines_that_leave_are_nobodys_fault(scene) -> None:
    placements, memory = Placements([scene.placement("a", "b")], next_count=2), Memory()
    for turn in range(50):
        gone = placements.placements[0].stages[1].peer
        live = "".join(sorted({"a", "b", "c"} - {gone} | {"a"}))
        decision = decide(scene.cluster(live, placements), memory, at(0))
        assert decision.placements.next_count == placements.next_count + 1, turn
        placements, memory = decision.placements, decision.memory
    assert placements.deletions == ()


def test_a_broken_link_is_formed_anew_on_the_same_machines_once_all_are_loaded(scene) -> None:
    placed = Placements([scene.placement("b", "c")], next_count=2)
    broken = scene.fact(placed.placements[0], 0, StagePhase.BROKEN, reason="reset")
    loading = decide(
        scene.cluster("abc", placed, [broken, scene.fact(placed.placements[0], 1, StagePhase.LOADING)]), Memory(), at(0)
    )
    assert loading.placements == placed
    listening = scene.fact(placed.placements[0], 1, StagePhase.LISTENING)
    loaded = decide(scene.cluster("abc", placed, [broken, listening]), Memory(), at(0))
    assert loaded.placements.placements[0].stages == placed.placements[0].stages
    assert loaded.placements.placements[0].epoch > placed.placements[0].epoch


def test_a_stage_still_broken_from_the_epoch_before_is_no_new_fault(scene) -> None:
    placed = Placements([scene.placement("b", "c")], next_count=2)
    old = scene.fact(placed.placements[0], 0, StagePhase.BROKEN, epoch=Epoch(0, 1, "z"))
    other = scene.fact(placed.placements[0], 1, StagePhase.LISTENING)
    assert decide(scene.cluster("abc", placed, [old, other]), Memory(), at(0)).placements == placed


@pytest.mark.parametrize("phase", [StagePhase.READY, StagePhase.LINKING, StagePhase.LISTENING])
def test_nothing_is_decided_while_a_machine_of_the_ring_is_only_suspect(scene, phase: StagePhase) -> None:
    placed = Placements([scene.placement("b", "c")], next_count=2)
    facts = [scene.fact(placed.placements[0], 0, phase), scene.fact(placed.placements[0], 1)]
    assert decide(scene.cluster("abc", placed, facts, suspect="c"), Memory(), at(0)).placements == placed


def test_a_suspect_machine_that_has_dropped_its_links_too_is_replaced_at_once(scene) -> None:
    placed = Placements([scene.placement("b", "c")], next_count=2)
    facts = [scene.fact(placed.placements[0], 0, StagePhase.BROKEN), scene.fact(placed.placements[0], 1)]
    assert peers(decide(scene.cluster("abc", placed, facts, suspect="c"), Memory(), at(0))) == ["b", "a"]


def test_a_suspect_machine_is_awaited_where_links_are_broken_elsewhere_in_the_ring(scene) -> None:
    placed = Placements([scene.placement("a", "b", "c", "d", "e")], next_count=2)
    facts = [scene.fact(placed.placements[0], rank) for rank in range(5)]
    facts[0] = scene.fact(placed.placements[0], 0, StagePhase.BROKEN)
    assert decide(scene.cluster("abcdef", placed, facts, suspect="c"), Memory(), at(0)).placements == placed
    old = scene.fact(placed.placements[0], 1, StagePhase.BROKEN, epoch=Epoch(0, 1, "z"))
    facts[1] = old
    assert decide(scene.cluster("abcdef", placed, facts, suspect="c"), Memory(), at(0)).placements == placed


def test_a_suspect_machine_that_nobody_can_replace_is_awaited_without_a_complaint(scene) -> None:
    placed = Placements([scene.placement("a", "b")], next_count=2)
    facts = [scene.fact(placed.placements[0], 0, StagePhase.BROKEN), scene.fact(placed.placements[0], 1)]
    suspect = scene.cluster("ab", placed, facts, suspect="b", budgets={"a": 1000})
    assert decide(suspect, Memory(), at(0)).placements == placed
    dead = decide(scene.cluster("a", placed, facts, budgets={"a": 1000}), Memory(), at(1))
    assert "does not fit" in dead.placements.troubles[0].reason


def test_stages_that_never_link_are_formed_anew(scene) -> None:
    placed = Placements([scene.placement("b", "c")], next_count=2)
    cluster = scene.cluster(
        "abc", placed, [scene.fact(placed.placements[0], rank, StagePhase.LINKING) for rank in (0, 1)]
    )
    waiting = decide(cluster, Memory(), at(10))
    assert waiting.placements == placed
    assert waiting.wake_at == 10 + LINK_WITHIN_S
    assert decide(cluster, waiting.memory, at(waiting.wake_at)).placements.placements[0].epoch == Epoch(4, 2, "a")


def test_stages_that_never_link_say_why(scene) -> None:
    placed = Placements([scene.placement("b", "c")], next_count=2)
    reason = "the hello differs in dtype"
    facts = [
        scene.fact(placed.placements[0], 0, StagePhase.LINKING, reason=reason),
        scene.fact(placed.placements[0], 1, StagePhase.LINKING),
    ]
    tried = Memory({"p1": Trial(strikes=MAX_STRIKES, loaded_since=0)})
    ended = decide(scene.cluster("abc", placed, facts), tried, at(LINK_WITHIN_S)).placements.deletions[0]
    assert f"stage 0 on mac-b: {reason}" in ended.reason


def test_only_a_machine_that_computes_alike_takes_over(scene) -> None:
    placed = Placements([scene.placement("b", "c")], next_count=2)
    assert peers(decide(scene.cluster("abdf", placed, gpus="bf", held="ad"), Memory(), at(0))) == ["b", "f"]
    alone = decide(scene.cluster("ab", placed, gpus="b", budgets={"a": 100}), Memory(), at(0))
    assert peers(alone) == ["b", "b"]


def test_a_ring_that_stays_ready_has_its_strikes_forgotten(scene) -> None:
    placed = Placements([scene.placement("b")], next_count=2)
    cluster = scene.cluster("ab", placed, [scene.fact(placed.placements[0], 0)])
    just_mended = decide(cluster, Memory({"p1": Trial(strikes=8, tries=2)}), at(100))
    assert just_mended.memory.trials["p1"].strikes == 8
    assert just_mended.wake_at == 100 + STEADY_AFTER_S
    assert decide(cluster, just_mended.memory, at(just_mended.wake_at)).memory.trials["p1"].strikes == 0


@given(st.floats(0, 1e6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_leader_that_wakes_when_it_said_has_something_to_do(scene, now: float) -> None:
    """Else it would wake again at once, and again: the sums and differences of times must agree to the last bit."""
    placed = Placements([scene.placement("b", "c")], [Deletion("gone", "asked", 0.0)])
    for phase in (StagePhase.LINKING, StagePhase.READY, StagePhase.BROKEN):
        facts = [scene.fact(placed.placements[0], rank, phase) for rank in (0, 1)]
        cluster = scene.cluster("abc", placed, facts)
        memory = decide(cluster, Memory({"p1": Trial(strikes=1, tries=1, not_before=now + 0.1)}), at(now)).memory
        for _ in range(3):
            decision = decide(cluster, memory, at(now))
            if decision.wake_at < inf:
                later = decide(cluster, decision.memory, at(decision.wake_at))
                assert later.placements != placed or later.wake_at > decision.wake_at
                now, memory = decision.wake_at, later.memory


def test_what_workers_report_is_adopted_by_a_leader_that_knows_nothing(scene) -> None:
    running = scene.placement("b", "c")
    facts = [scene.fact(running, rank) for rank in (0, 1)]
    assert decide(scene.cluster("abc", Placements(), facts), Memory(), at(0)).placements.placements == (running,)


def test_what_was_deleted_is_not_adopted_until_the_deletion_is_forgotten(scene) -> None:
    deleted = Placements(deletions=[Deletion("p1", "asked", 0.0)])
    facts = [scene.fact(scene.placement("b"), 0)]
    first = decide(scene.cluster("ab", deleted, facts), Memory(), at(50))
    assert first.placements == deleted
    assert first.wake_at == 50 + DELETION_KEPT_S
    assert decide(scene.cluster("ab", deleted), first.memory, at(first.wake_at)).placements == Placements()


def test_a_model_in_somebodys_folder_runs_only_where_that_folder_is(scene) -> None:
    local = evolve(scene.card, source="directory:/models/mine")
    assert [each.peer for each in candidates(scene.cluster("abc", held="c"), local)] == ["c"]
    assert [each.peer for each in candidates(scene.cluster("abc", held="c"), scene.card)] == ["a", "b", "c"]


@pytest.mark.parametrize("live", ["a", "ab", "abc", "abcd"])
def test_deciding_again_changes_nothing_more(scene, live: str) -> None:
    placed = Placements([scene.placement("b", "c"), scene.placement("d", id="p2")], next_count=2)
    first = decide(scene.cluster(live, placed), Memory(), at(0))
    second = decide(scene.cluster(live, first.placements), first.memory, at(0))
    assert second.placements == first.placements
