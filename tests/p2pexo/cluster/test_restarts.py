from p2pexo.cluster.restarts import REGAINED_AFTER_S, RESTART_PAUSES_S, Restarts


def test_a_stage_that_crashes_at_once_waits_longer_each_time_and_is_given_up() -> None:
    restarts = Restarts()
    assert [restarts.pause_after(0.1) for _ in range(5)] == [*RESTART_PAUSES_S, None, None]
    assert list(RESTART_PAUSES_S) == sorted(RESTART_PAUSES_S)


def test_a_stage_that_works_between_its_crashes_is_always_back_at_once() -> None:
    restarts = Restarts()
    assert [restarts.pause_after(REGAINED_AFTER_S) for _ in range(9)] == [RESTART_PAUSES_S[0]] * 9


def test_who_works_for_long_gets_all_restarts_back_and_no_more() -> None:
    restarts = Restarts()
    for _ in range(3):
        restarts.pause_after(0.0)
    assert restarts.pause_after(2 * REGAINED_AFTER_S) == RESTART_PAUSES_S[1]
    assert restarts.pause_after(1e6) == RESTART_PAUSES_S[0]
    assert [restarts.pause_after(0.0) for _ in range(3)] == [*RESTART_PAUSES_S[1:], None]
