from random import Random

import pytest

from p2pexo.engine.batch import Batch, BatchResult, Drawing, Entry, Fork, Sampled, SequenceFailure
from p2pexo.engine.limits import Limits
from p2pexo.engine.pacing import Pace
from p2pexo.engine.scheduler import Advance, Scheduler
from p2pexo.generation.errors import OverloadedError
from p2pexo.generation.request import Sampling

GREEDY = Drawing(Sampling(temperature=0.0))


ONE = Limits(running=1)
HEAD = tuple(range(100, 200))


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


def test_one_batch_is_on_its_way_at_a_time_in_a_ring_of_one():
    scheduler = Scheduler()
    scheduler.add((1, 2), GREEDY)
    batch = the_next(scheduler)
    assert scheduler.next_batch() is None
    scheduler.apply(drawing(batch, 3))
    assert scheduler.next_batch() is not None


def test_with_one_place_the_second_sequence_waits_for_the_first_to_end():
    scheduler = Scheduler(ONE)
    first, second = scheduler.add((1,), GREEDY), scheduler.add((2,), GREEDY)
    assert (scheduler.ahead_of(first), scheduler.ahead_of(second)) == (0, 1)
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


def answering(scheduler: Scheduler, *prompts: tuple[int, ...]) -> list[int]:
    """Sequences whose prompts are computed."""
    ids = [scheduler.add(prompt, GREEDY) for prompt in prompts]
    without = set(ids)
    while without:
        outcomes = scheduler.apply(drawing(the_next(scheduler), 9))
        without -= {each.sequence for each in outcomes if isinstance(each, Advance) and each.drawn}
    return ids


def sequences(batch: Batch) -> list[int]:
    return [each.sequence for each in batch.entries]


def test_sequences_that_draw_travel_together_a_row_each():
    scheduler = Scheduler()
    first, second = answering(scheduler, (1,), (2,))
    batch = the_next(scheduler)
    assert sequences(batch) == [first, second]
    assert all(len(each.tokens) == 1 and each.sample_index is not None for each in batch.entries)


def test_a_failure_ends_its_own_sequence_alone():
    scheduler = Scheduler()
    bad, good = answering(scheduler, (1,), (2,))
    failure = SequenceFailure(bad, "no")
    result = BatchResult(the_next(scheduler).number, (Sampled(good, 7),), (failure,))
    assert scheduler.apply(result) == [failure, Advance(good, 1, 1, Sampled(good, 7))]
    after = the_next(scheduler)
    assert after.release == (bad,)
    assert sequences(after) == [good]


def test_answers_and_chunks_of_prompts_take_turns():
    scheduler = Scheduler(Limits(rows=4))
    (answer,) = answering(scheduler, (1,))
    prompt = scheduler.add(tuple(range(10)), GREEDY)
    turns: list[tuple[list[int], int]] = []
    for _ in range(6):
        batch = the_next(scheduler)
        turns.append((sequences(batch), batch.rows))
        scheduler.apply(drawing(batch, 9))
    assert turns[:4] == [([answer], 1), ([prompt], 4), ([answer], 1), ([prompt], 4)]
    assert turns[4:] == [([answer], 1), ([prompt], 2)]
    assert sequences(the_next(scheduler)) == [answer, prompt]


def test_short_prompts_of_about_a_length_begin_together_in_a_ring_of_one():
    scheduler = Scheduler(Limits(rows=12))
    ids = [scheduler.add((1,) * length, GREEDY) for length in (4, 5, 11, 3)]
    assert [sequences(the_next(scheduler))] == [ids[:2]]
    ring = Scheduler(Limits(rows=12), Pace(stages=2))
    first, *_ = [ring.add((1,) * 4, GREEDY) for _ in range(2)]
    assert sequences(the_next(ring)) == [first]


def test_a_short_prompt_does_not_wait_for_a_long_one_to_end():
    scheduler = Scheduler(Limits(rows=4))
    long, short = scheduler.add(tuple(range(100)), GREEDY), scheduler.add((1, 2, 3), GREEDY)
    order: list[int] = []
    for _ in range(3):
        batch = the_next(scheduler)
        order += sequences(batch)
        scheduler.apply(drawing(batch, 9))
    assert order == [long, short, short]


def test_chunks_of_one_prompt_follow_one_another_through_a_ring():
    scheduler = Scheduler(Limits(rows=4), Pace(stages=3))
    prompt = scheduler.add(tuple(range(20)), GREEDY)
    batches = [the_next(scheduler) for _ in range(4)]
    assert [(each.entries[0].sequence, each.entries[0].position) for each in batches] == [
        (prompt, 0),
        (prompt, 4),
        (prompt, 8),
        (prompt, 12),
    ]
    assert scheduler.next_batch() is None
    assert scheduler.apply(drawing(batches[0], 9)) == [Advance(prompt, 4, 20)]


def test_batches_on_their_way_never_share_a_sequence_that_draws():
    scheduler = Scheduler(Limits(together=2), Pace(stages=3))
    answering(scheduler, (1,), (2,), (3,), (4,), (5,))
    batches = [the_next(scheduler) for _ in range(3)]
    assert sorted(len(each.entries) for each in batches) == [1, 2, 2]
    assert len({each for batch in batches for each in sequences(batch)}) == 5
    assert scheduler.next_batch() is None


def test_a_full_queue_turns_the_next_one_away():
    scheduler = Scheduler(Limits(running=1, waiting=2))
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


def test_a_prompt_for_which_there_is_no_memory_yet_waits_and_holds_those_behind_it():
    scheduler = Scheduler(Limits(cache_tokens=1024))
    (running,) = answering(scheduler, (1,) * 500)
    big, small = scheduler.add((1,) * 600, GREEDY), scheduler.add((1,), GREEDY)
    assert (scheduler.ahead_of(big), scheduler.ahead_of(small)) == (1, 2)
    scheduler.remove(running)
    assert sequences(the_next(scheduler)) == [big]


def test_a_prompt_too_long_for_the_company_of_others_gets_a_group_of_its_own():
    scheduler = Scheduler(Limits(cache_tokens=2048))
    short, also_short, long = answering(scheduler, (1,), (2,), (3,) * 1000)
    batches: list[list[int]] = []
    for _ in range(2):
        batch = the_next(scheduler)
        batches.append(sequences(batch))
        scheduler.apply(drawing(batch, 9))
    assert sorted(batches) == [[short, also_short], [long]]


def test_when_answers_outgrow_the_memory_the_newest_is_computed_again_later():
    scheduler = Scheduler(Limits(cache_tokens=1024))
    old, new = answering(scheduler, (1,) * 250, (2,) * 250)
    drawn: dict[int, list[int]] = {old: [9], new: [9]}
    released: list[int] = []
    again: list[Entry] = []
    for step in range(700):
        batch = the_next(scheduler)
        released += batch.release
        again += [each for each in batch.entries if each.position == 0]
        for outcome in scheduler.apply(drawing(batch, step)):
            assert isinstance(outcome, Advance)
            if outcome.drawn:
                drawn[outcome.sequence].append(outcome.drawn.token)
        if len(drawn[old]) == 400:
            scheduler.remove(old)
    assert released == [new, old]
    assert [each.sequence for each in again] == [new]
    assert again[0].tokens == ((2,) * 250 + tuple(drawn[new]))[: len(again[0].tokens)]
    assert again[0].drawing == GREEDY
    assert len(drawn[old]) == 400
    assert len(drawn[new]) > 270


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_memory_is_kept_to_and_every_sequence_ends(seed: int):
    random = Random(seed)
    stages = random.randint(1, 3)
    limits = Limits(running=6, together=3, rows=64, cache_tokens=2048, kept_tokens=random.choice((0, 1000, 5000)))
    scheduler = Scheduler(limits, Pace(stages=stages))
    prompts = [(random.randint(1, 2),) * random.randint(1, 900) for _ in range(12)]
    left = {scheduler.add(prompt, GREEDY): random.randint(1, 400) for prompt in prompts}
    on_their_way: list[Batch] = []
    cached: dict[int, int] = {}
    for _ in range(20_000):
        while batch := scheduler.next_batch():
            for each in batch.release:
                del cached[each]
            for entry in batch.entries:
                if entry.fork:
                    assert entry.fork.tokens <= cached[entry.fork.sequence]
                    cached[entry.sequence] = entry.fork.tokens
                assert cached.get(entry.sequence, 0) == entry.position
                cached[entry.sequence] = entry.position + len(entry.tokens)
            on_their_way += [batch] if batch.entries else []
            assert sum(cached.values()) <= 2048
        if not on_their_way:
            break
        batch = on_their_way.pop(0)
        for outcome in scheduler.apply(drawing(batch, 9)):
            assert isinstance(outcome, Advance)
            if outcome.drawn:
                left[outcome.sequence] -= 1
                if left[outcome.sequence] == 0 or random.random() < 0.002:
                    left[outcome.sequence] = 0
                    scheduler.remove(outcome.sequence)
    assert not any(left.values())
    assert sum(cached.values()) <= limits.kept_tokens


def finish(scheduler: Scheduler, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> Batch:
    """The batch that begins a prompt, behind which an answer of these tokens was drawn and ended."""
    sequence = scheduler.add(prompt, GREEDY)
    begun = the_next(scheduler)
    scheduler.apply(drawing(begun, tokens[0]))
    for token in tokens[1:]:
        scheduler.apply(drawing(the_next(scheduler), token))
    scheduler.remove(sequence)
    return begun


def test_what_has_ended_is_kept_or_released_with_the_next_batch():
    scheduler = Scheduler()
    finish(scheduler, (1, 2, 3), (4,))
    batch = the_next(scheduler)
    assert (batch.entries, batch.release, batch.keep) == ((), (1,), ())
    finish(scheduler, HEAD, (4,))
    batch = the_next(scheduler)
    assert (batch.entries, batch.release, batch.keep) == ((), (), (2,))
    assert scheduler.next_batch() is None


def test_a_prompt_begins_with_what_an_ended_conversation_has_computed():
    scheduler = Scheduler()
    finish(scheduler, (*HEAD, 1), (2, 3))
    entry = finish(scheduler, (*HEAD, 5, 6), (2,)).entries[0]
    assert (entry.fork, entry.position, entry.tokens) == (Fork(1, 96), 96, (*HEAD[96:], 5, 6))
    assert (entry.drawing, entry.sample_index) == (GREEDY, 0)


def test_replies_are_found_again_and_a_longer_conversation_takes_the_place_of_its_beginning():
    scheduler = Scheduler()
    reply = tuple(range(300, 340))
    finish(scheduler, HEAD, reply)
    second = finish(scheduler, (*HEAD, *reply, *range(400, 440)), (9,))
    assert second.entries[0].fork == Fork(1, 128)
    third = finish(scheduler, (*HEAD, *reply, *range(400, 440), 9, 5), (9,))
    assert third.release == (1,)
    assert third.entries[0].fork == Fork(2, 160)


def test_the_same_prompt_again_still_computes_a_token():
    scheduler = Scheduler()
    finish(scheduler, HEAD[:64], (1,))
    assert finish(scheduler, HEAD[:64], (1,)).entries[0].fork == Fork(1, 32)


def test_a_running_sequence_is_taken_over_from_too():
    scheduler = Scheduler()
    answering(scheduler, HEAD)
    scheduler.add((*HEAD, 7), GREEDY)
    scheduler.apply(drawing(the_next(scheduler), 9))
    assert the_next(scheduler).entries[0].fork == Fork(1, 96)


def test_what_is_kept_stays_within_its_budget_the_longest_unused_goes_first():
    scheduler = Scheduler(Limits(kept_tokens=512))
    other, third = tuple(range(500, 600)), tuple(range(700, 800))
    finish(scheduler, HEAD, (1,))
    finish(scheduler, other, (1,))
    assert finish(scheduler, (*HEAD, 2), (1,)).release == ()
    assert finish(scheduler, third, (1,)).release == (1,)  # the longer conversation has all of it
    begun = finish(scheduler, (*other, 3), (1,))
    assert (begun.release, begun.entries[0].fork) == ((2,), None)


def test_memory_for_those_that_run_comes_before_what_is_kept():
    scheduler = Scheduler(Limits(cache_tokens=1024))
    finish(scheduler, HEAD, (1,))
    scheduler.add(tuple(range(1000, 1900)), GREEDY)
    assert the_next(scheduler).release == (1,)


def test_where_a_fork_fails_all_of_the_prompt_is_computed_and_nothing_is_told():
    scheduler = Scheduler(Limits(rows=32), Pace(stages=2))
    finish(scheduler, HEAD[:33], (1,) * 40)
    sequence = scheduler.add(HEAD[:33] + (1,) * 90, GREEDY)
    batch = the_next(scheduler)
    assert batch.entries[0].fork == Fork(1, 64)
    assert scheduler.next_batch() is None  # nothing follows a fork before it has worked
    failure = SequenceFailure(sequence, "a window can't go back", is_fork=True)
    assert scheduler.apply(BatchResult(batch.number, (), (failure,))) == []
    again = the_next(scheduler)
    assert set(again.release) == {1, sequence}
    assert (again.entries[0].position, again.entries[0].fork, again.entries[0].drawing) == (0, None, GREEDY)
