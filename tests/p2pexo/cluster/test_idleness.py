"""How long rings stay, decided with made-up clocks."""

from math import inf

import pytest

from p2pexo.cluster.idleness import FIRST_USE_WITHIN_S, Stay
from p2pexo.ring.plan import Epoch

FIRST, SECOND = Epoch(1, 1, "a"), Epoch(1, 2, "a")


def used(keep_alive_s: float | None = None) -> Stay:
    """Formed at 100 s, used from then to 110 s."""
    return Stay(300.0).formed(FIRST, 100.0).begun(keep_alive_s).ended(110.0)


@pytest.mark.parametrize(("said", "ends_at"), [(None, 410.0), (20.0, 130.0), (0.0, 110.0), (-1.0, inf)])
def test_it_stays_for_its_keep_alive_after_the_last_use(said: float | None, ends_at: float) -> None:
    assert used(said).ends_at == ends_at


def test_the_latest_request_that_says_so_decides() -> None:
    assert used(20.0).begun(None).ended(200.0).ends_at == 220.0
    assert used(0.0).begun(50.0).ended(200.0).ends_at == 250.0


def test_it_never_leaves_while_a_request_runs_or_waits() -> None:
    both = used(0.0).begun(0.0).begun(None)
    assert both.ends_at == both.ended(120.0).ends_at == inf
    assert both.ended(120.0).ended(130.0).ends_at == 130.0


def test_a_ring_that_is_being_formed_does_not_leave() -> None:
    assert Stay(0.0).ends_at == inf
    assert used(0.0).formed(None, 120.0).ends_at == inf


def test_a_new_ring_waits_for_its_first_use_even_if_its_keep_alive_is_shorter() -> None:
    assert Stay(0.0).formed(FIRST, 100.0).ends_at == 100.0 + FIRST_USE_WITHIN_S
    assert Stay(300.0).formed(FIRST, 100.0).ends_at == 400.0


def test_a_ring_formed_anew_counts_from_then() -> None:
    anew = used(20.0).formed(None, 115.0).formed(SECOND, 200.0)
    assert anew.ends_at == 200.0 + FIRST_USE_WITHIN_S
    assert anew.begun(None).ended(300.0).ends_at == 320.0


def test_one_released_leaves_with_its_last_request_and_one_refused_later() -> None:
    assert used().released().ends_at <= 110.0
    assert used().begun(None).released().ends_at == inf
    assert used(0.0).refused(again_at=150.0).ends_at == 150.0
