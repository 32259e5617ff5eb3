import pytest

from p2pexo.engine.batch import Batch, BatchResult, Drawing, Entry, Sampled, SequenceFailure
from p2pexo.engine.scheduler import Advance, Limits, Scheduler
from p2pexo.generation.errors import OverloadedError
from p2pexo.generation.request import Sampling

GREEDY = Drawing(Sampling(temperature=0.0))


def the_next(scheduler: Scheduler) -> Batch:
    batch = scheduler.next_batch()
    assert batch is not None
    return batch


def drawing(batch: Batch, token: int) -> BatchResult:
    """What the last stage answers if every complete entry draws ``token``."""
    return BatchResult(
        batch.number, tuple(Sampled(each.sequence, token) for each in batch.entries if each.sample_index is not None)
    )


def test_a_short_prompt_is_one_batch_that_draws_the_first_token():
    scheduler = Scheduler()
    sequence = scheduler.add((5, 6, 7), GREEDY)
    assert the_next(scheduler).entries == (Entry(sequence, (5, 6, 7), 0, 0, GREEDY),)


def test_each_drawn_token_is_the_only_row_of_the_next_batch():
    scheduler = Scheduler()
    sequence = scheduler.add((5, 6, 7), GREEDY)
    assert scheduler.apply(drawing(the_next(scheduler), 8)) == [Advance(sequence, 3, 3, Sampled(sequence, 8))]
    assert the_next(scheduler).entries == (Entry(sequence, (8,), 3, 1),)


def test_a_long_prompt_goes_in_chunks_and_only_the_last_one_draws():
    scheduler = Scheduler(Limits(rows=4))
    sequence = scheduler.add(tuple(range(10)), GREEDY)
    entries: list[Entry] = []
    advances: list[object] = []
    for _ in range(3):
        batch = the_next(scheduler)
        entries += batch.entries
        advances += scheduler.apply(drawing(batch, 99))
    assert [each.tokens for each in entries] == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9)]
    assert [each.sample_index for each in entries] == [None, None, 0]
    assert [each.drawing for each in entries] == [GREEDY, None, None]
    assert advances == [
        Advance(sequence, 4, 10),
        Advance(sequence, 8, 10),
        Advance(sequence, 10, 10, Sampled(sequence, 99)),
    ]


def test_a_replayed_answer_goes_on_at_its_output_index():
    scheduler = Scheduler()
    scheduler.add((5, 6, 70, 71), GREEDY, first_index=2)
    batch = the_next(scheduler)
    assert batch.entries[0].sample_index == 2
    scheduler.apply(drawing(batch, 72))
    assert the_next(scheduler).entries[0].sample_index == 3


def test_one_batch_is_on_its_way_at_a_time():
    scheduler = Scheduler()
    scheduler.add((1, 2), GREEDY)
    batch = the_next(scheduler)
    assert scheduler.next_batch() is None
    scheduler.apply(drawing(batch, 3))
    assert scheduler.next_batch() is not None


def test_the_second_sequence_waits_for_the_first_to_end():
    scheduler = Scheduler()
    first = scheduler.add((1,), GREEDY)
    assert scheduler.ahead == 1
    second = scheduler.add((2,), GREEDY)
    batch = the_next(scheduler)
    assert [each.sequence for each in batch.entries] == [first]
    scheduler.apply(drawing(batch, 3))
    scheduler.remove(first)
    batch = the_next(scheduler)
    assert batch.release == (first,)
    assert [each.sequence for each in batch.entries] == [second]


def test_a_cancel_is_released_at_once_though_a_batch_is_on_its_way():
    scheduler = Scheduler()
    sequence = scheduler.add((1,), GREEDY)
    batch = the_next(scheduler)
    scheduler.remove(sequence)
    release = the_next(scheduler)
    assert (release.entries, release.release) == ((), (sequence,))
    assert scheduler.apply(drawing(batch, 3)) == []
    assert scheduler.next_batch() is None


def test_a_sequence_that_never_ran_has_nothing_to_release():
    scheduler = Scheduler()
    scheduler.remove(scheduler.add((1,), GREEDY))
    assert scheduler.next_batch() is None
    assert scheduler.ahead == 0


def test_a_failure_ends_its_own_sequence_alone():
    scheduler = Scheduler(Limits(running=2))
    bad, good = scheduler.add((1,), GREEDY), scheduler.add((2,), GREEDY)
    batch = the_next(scheduler)
    failure = SequenceFailure(bad, "no")
    result = BatchResult(batch.number, (Sampled(good, 7),), (failure,))
    assert scheduler.apply(result) == [failure, Advance(good, 1, 1, Sampled(good, 7))]
    after = the_next(scheduler)
    assert after.release == (bad,)
    assert [each.sequence for each in after.entries] == [good]


def test_new_tokens_go_before_the_chunks_of_a_prompt_and_share_its_batch():
    scheduler = Scheduler(Limits(running=2, rows=4))
    answering = scheduler.add((1,), GREEDY)
    scheduler.apply(drawing(the_next(scheduler), 9))
    prompt = scheduler.add(tuple(range(10)), GREEDY)
    batch = the_next(scheduler)
    assert [(each.sequence, len(each.tokens)) for each in batch.entries] == [(answering, 1), (prompt, 3)]
    assert batch.rows == 4


def test_several_batches_on_their_way_never_share_a_sequence():
    scheduler = Scheduler(Limits(running=2, batches=2, rows=4))
    scheduler.add((1, 2, 3, 4, 5), GREEDY)
    first = the_next(scheduler)
    scheduler.add((6,), GREEDY)
    second = the_next(scheduler)
    assert {each.sequence for each in first.entries}.isdisjoint(each.sequence for each in second.entries)
    assert scheduler.next_batch() is None


def test_a_full_queue_turns_the_next_one_away():
    scheduler = Scheduler(Limits(waiting=2))
    for _ in range(3):
        scheduler.add((1,), GREEDY)
    with pytest.raises(OverloadedError, match="2 requests are waiting"):
        scheduler.add((1,), GREEDY)


def test_nothing_of_an_earlier_life_survives_a_clear():
    scheduler = Scheduler()
    before = scheduler.add((1,), GREEDY)
    batch = the_next(scheduler)
    scheduler.clear()
    assert scheduler.apply(drawing(batch, 3)) == []
    after = scheduler.add((2,), GREEDY)
    assert after != before
    fresh = the_next(scheduler)
    assert fresh.number > batch.number
    assert fresh.release == ()
