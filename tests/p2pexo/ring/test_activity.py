from p2pexo.engine.batch import Batch, Entry
from p2pexo.generation.events import Finished, FinishReason, Usage
from p2pexo.ring.activity import SMOOTHED_S, ActivityMeter, StageActivity


def batch(*rows: int) -> Batch:
    return Batch(1, tuple(Entry(sequence, (0,) * count, 0) for sequence, count in enumerate(rows)))


def begun() -> ActivityMeter:
    meter = ActivityMeter()
    assert meter.read(100.0) == StageActivity()
    return meter


def test_the_busy_share_is_that_of_the_time_since_the_last_look() -> None:
    meter = begun()
    meter.computed(batch(1, 1), 1.0)
    meter.computed(batch(4), 1.5)
    shown = meter.read(100.0 + SMOOTHED_S)
    assert (shown.busy_share, shown.batches_per_s) == (0.5, 0.4)
    assert (shown.rows, shown.sequences) == (3.0, 1.5)


def test_what_is_held_is_told_as_it_was_after_the_last_batch() -> None:
    meter = begun()
    assert meter.read(101.0).conversations is None
    meter.holds(3, 1_234_567)
    assert (meter.read(102.0).conversations, meter.read(103.0).cache_bytes) == (3, 1.2e6)


def test_short_looks_are_smoothed() -> None:
    meter = begun()
    meter.computed(batch(1), 1.0)
    assert meter.read(101.0).busy_share == 0.2
    meter.computed(batch(1), 1.0)
    assert meter.read(102.0).busy_share == 0.36


def test_an_idle_stage_comes_to_rest_and_then_tells_the_same() -> None:
    meter = begun()
    meter.computed(batch(6), SMOOTHED_S)
    now = 100.0 + SMOOTHED_S
    assert meter.read(now).busy_share == 1.0
    shown = [meter.read(now + second) for second in range(1, 60)]
    assert (shown[-1].busy_share, shown[-1].batches_per_s) == (0.0, 0.0)
    assert shown[-1] == shown[-2]
    assert shown[-1].rows == 6.0, "of the last batches"


def test_a_step_longer_than_the_look_is_no_more_than_all_of_it() -> None:
    meter = begun()
    meter.computed(batch(1), 3 * SMOOTHED_S)
    assert meter.read(100.0 + SMOOTHED_S).busy_share == 1.0


def test_a_batch_that_only_releases_is_work_but_no_batch() -> None:
    meter = begun()
    meter.computed(Batch(1, (), release=(3,)), 1.0)
    shown = meter.read(100.0 + SMOOTHED_S)
    assert (shown.busy_share, shown.batches_per_s, shown.rows) == (0.2, 0.0, 0.0)


def test_a_hop_is_the_fastest_way_round_divided_among_the_stages() -> None:
    meter = begun()
    meter.returned(4, 0.08)
    meter.returned(4, 0.04)
    meter.returned(4, 0.2)
    assert meter.read(101.0).hop_s == 0.01
    meter.returned(4, 0.12)
    assert meter.read(102.0).hop_s == 0.03, "of this look"
    assert meter.read(103.0).hop_s == 0.03, "no news"


def test_a_ring_of_one_has_no_hops() -> None:
    meter = begun()
    meter.returned(1, 0.5)
    assert meter.read(101.0).hop_s is None


def test_the_last_request_tells_how_it_fared() -> None:
    meter = begun()
    meter.ended(Finished(FinishReason.STOP, Usage(110, 21, 10), prefill_s=0.5, decode_s=2.0, queue_s=0.25))
    shown = meter.read(101.0)
    assert (shown.queue_s, shown.prefill_tokens_per_s, shown.decode_tokens_per_s) == (0.25, 200.0, 10.0)


def test_what_one_request_cannot_tell_stays_from_the_one_before() -> None:
    meter = begun()
    meter.ended(Finished(FinishReason.STOP, Usage(100, 21), prefill_s=0.5, decode_s=2.0))
    meter.ended(Finished(FinishReason.LENGTH, Usage(100, 1), prefill_s=1.0, queue_s=3.0))
    shown = meter.read(101.0)
    assert (shown.queue_s, shown.prefill_tokens_per_s, shown.decode_tokens_per_s) == (3.0, 100.0, 10.0)


def test_tokens_of_an_earlier_attempt_are_read_and_not_drawn() -> None:
    again = Finished(FinishReason.STOP, Usage(100, 31), prefill_s=1.0, decode_s=2.0, replayed_tokens=20)
    assert (again.prefill_tokens_per_s, again.decode_tokens_per_s) == (120.0, 5.0)
