from p2pexo.ring.step_clock import Patience, StepClock

PATIENCE = Patience(factor=10, floor_s=5, first_s=60)


def timed(*steps: tuple[int, float]) -> StepClock:
    """A clock that has seen steps of (rows, seconds), at whose last one nothing is computed."""
    clock = StepClock(PATIENCE)
    for rows, took_s in steps:
        clock.begin(rows, 100.0)
        clock.end(100.0 + took_s)
    return clock


def limit_of(clock: StepClock, rows: int) -> float:
    """Seconds after which a step of so many rows is overdue."""
    clock.begin(rows, 0.0)
    return next(tenths / 10 for tenths in range(1, 10_000) if clock.overdue(tenths / 10 + 0.001))


def test_nothing_is_overdue_while_nothing_is_computed() -> None:
    assert StepClock(PATIENCE).overdue(1e9) == ""
    assert timed((1, 0.1)).overdue(1e9) == ""


def test_the_first_step_of_its_kind_may_take_long() -> None:
    assert limit_of(timed(), 1) == PATIENCE.first_s
    assert limit_of(timed((512, 8.0)), 1) == PATIENCE.first_s


def test_a_fast_step_has_the_least_patience() -> None:
    assert limit_of(timed((1, 0.05)), 1) == PATIENCE.floor_s


def test_a_slow_machine_gets_a_multiple_of_its_own_time() -> None:
    assert limit_of(timed((1, 2.0), (1, 2.0)), 1) == 20.0


def test_more_rows_may_take_longer_in_proportion() -> None:
    assert limit_of(timed((1, 2.0)), 8) == 160.0
    assert limit_of(timed((1, 2.0), (8, 4.0)), 8) == 40.0


def test_what_is_overdue_says_what_was_usual() -> None:
    clock = timed((1, 0.05))
    clock.begin(1, 0.0)
    assert clock.overdue(6.0) == "a step of 1 rows was computed for 6 s, and such steps took 0.05 s before"
