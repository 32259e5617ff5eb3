"""How the scheduler fills rings of stages whose times are given, in virtual time."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from virtual_ring import VirtualRing

from p2pexo.engine.batch import Drawing
from p2pexo.engine.limits import Limits
from p2pexo.engine.pacing import Pace
from p2pexo.engine.scheduler import Scheduler
from p2pexo.generation.request import Sampling

GREEDY = Drawing(Sampling(temperature=0.0))
STEP_S = 0.01


def memory_bound(rows: int) -> float:
    return STEP_S


def compute_bound(rows: int) -> float:
    return STEP_S * rows


def tokens_per_s(
    sequences: int, stages: int, stage: Callable[[int], float], *, hop_s: float = 0.0, **limits: Any
) -> float:
    scheduler = Scheduler(Limits(**limits), Pace(stages))
    ring = VirtualRing(scheduler, [stage] * stages, hop_s=hop_s)
    for _ in range(sequences):
        scheduler.add((1, 2), GREEDY)
    ring.run(until=4.0)
    came = [at for each in ring.drawn.values() for at in each]
    return sum(at >= 2.0 for at in came) / 2.0


@pytest.mark.parametrize(("stages", "hop_s"), [(2, 0.0), (4, 0.0), (4, 0.01)])
def test_whole_batches_fill_a_ring(stages: int, hop_s: float) -> None:
    lockstep = tokens_per_s(4, stages, memory_bound, hop_s=hop_s, together=4, batches=1)
    in_flight = round(stages + stages * hop_s / STEP_S)
    filled = tokens_per_s(4 * in_flight, stages, memory_bound, hop_s=hop_s, together=4)
    assert filled / lockstep >= 0.95 * in_flight


def test_a_split_is_made_where_it_pays_and_only_there() -> None:
    together = tokens_per_s(4, 2, compute_bound, batches=1)
    assert tokens_per_s(4, 2, compute_bound) >= 1.9 * together
    assert tokens_per_s(4, 2, memory_bound) >= 0.99 * tokens_per_s(4, 2, memory_bound, batches=1)


def test_memory_bound_sequences_stay_in_one_batch() -> None:
    scheduler = Scheduler(Limits(), Pace(2))
    ring = VirtualRing(scheduler, [memory_bound] * 2)
    for _ in range(4):
        scheduler.add((1, 2), GREEDY)
    ring.run(until=2.0)
    assert [batch.rows for batch in ring.sent[-5:]] == [4] * 5


def test_the_sequences_that_are_left_draw_together_again() -> None:
    scheduler = Scheduler(Limits(together=4), Pace(2))
    ring = VirtualRing(scheduler, [memory_bound] * 2)
    ids = [scheduler.add((1, 2), GREEDY) for _ in range(8)]
    ring.run(until=1.0)
    assert {batch.rows for batch in ring.sent[-4:]} == {4}
    for each in ids[1::2]:
        scheduler.remove(each)
    ring.run(until=2.0)
    assert [batch.rows for batch in ring.sent[-5:]] == [4] * 5


def test_a_long_prompt_is_cut_so_that_it_fills_the_stages() -> None:
    def first_token_at(**limits: Any) -> float:
        scheduler = Scheduler(Limits(**limits), Pace(2))
        ring = VirtualRing(scheduler, [lambda rows: 0.01 + 0.001 * rows] * 2)
        sequence = scheduler.add((1,) * 1000, GREEDY)
        while sequence not in ring.drawn:
            assert ring.step()
        return ring.drawn[sequence][0]

    assert first_token_at(rows=1000, batches=1) >= 1.3 * first_token_at()


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_a_running_answer_is_held_up_by_a_prompt_only_so_long(stages: int) -> None:
    def stage(rows: int) -> float:
        return (0.06 + 0.006 * rows) / stages

    scheduler = Scheduler(Limits(step_s=0.2), Pace(stages))
    ring = VirtualRing(scheduler, [stage] * stages)
    answer = scheduler.add((1,) * 20, GREEDY)
    ring.run(until=2.0)
    prompt = scheduler.add((1,) * 1000, GREEDY)
    begun = ring.now
    while prompt not in ring.drawn:
        assert ring.step()
    gaps = [after - before for before, after in pairwise(ring.drawn[answer]) if before >= begun]
    assert max(gaps) <= 7 * stage(1) * stages
    assert ring.now - begun <= 2 * stage(1000) * stages


def test_nothing_is_concluded_from_results_without_times() -> None:
    pace = Pace(3)
    pace.learn(4, False, (), 0.1)
    assert (pace.in_flight, pace.groups(8, least=1, most=4, now=1)) == (4, 1)


def test_a_pause_is_not_taken_for_a_trend() -> None:
    pace = Pace(2)
    for seconds in (0.01, 0.01, 1.0, 0.01, 0.01):
        pace.learn(1, False, (seconds, 0.01), seconds + 0.01)
    assert pace.in_flight == 3
