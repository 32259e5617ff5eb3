import pytest
from hypothesis import given
from hypothesis import strategies as st

from networking.pairing_desk import (
    Decision,
    Desk,
    DeskSettings,
    NotWaitingError,
    Outcome,
    TurnedAwayError,
    WrongCodeError,
)
from networking.pairing_rate import KnockRate, RateSettings
from networking.transport import PeerId

ANNA, BEN = PeerId("peer-anna"), PeerId("peer-ben")
CODE = "123 456"


def apply(desk: Desk, peer: PeerId = ANNA, now: float = 0.0, address: str = "10.0.0.2") -> int:
    return desk.apply(now, peer, str(peer), "a Mac", CODE, address).number


def test_who_was_approved_is_decided_once() -> None:
    desk = Desk()
    number = apply(desk)
    desk.approve(1.0, ANNA)
    assert desk.decisions() == [Decision(number, Outcome.APPROVED)]
    assert (desk.decisions(), desk.waiting) == ([], ())
    with pytest.raises(NotWaitingError, match="does not wait"):
        desk.approve(1.0, ANNA)


@pytest.mark.parametrize("code", ["123 456", "123456", "123-456", None])
def test_the_right_code_approves_however_it_is_written(code: str | None) -> None:
    desk = Desk()
    apply(desk)
    desk.approve(1.0, ANNA, code)
    assert desk.decisions()[0].outcome is Outcome.APPROVED


def test_three_wrong_codes_turn_the_newcomer_away() -> None:
    desk = Desk()
    number = apply(desk)
    with pytest.raises(WrongCodeError, match="2 more tries"):
        desk.approve(1.0, ANNA, "123 457")
    with pytest.raises(WrongCodeError, match="one more try"):
        desk.approve(1.0, ANNA, "")
    assert desk.decisions() == []
    with pytest.raises(WrongCodeError, match="was turned away"):
        desk.approve(1.0, ANNA, "000000")
    assert desk.decisions() == [Decision(number, Outcome.DENIED)]
    with pytest.raises(TurnedAwayError):
        apply(desk, now=2.0)


def test_a_code_that_was_shown_for_an_earlier_request_is_a_wrong_one() -> None:
    desk = Desk()
    apply(desk)
    desk.apply(1.0, ANNA, "anna", "Apple M3", "777 777", "10.0.0.7")
    with pytest.raises(WrongCodeError):
        desk.approve(2.0, ANNA, CODE)
    assert [each.outcome for each in desk.decisions()] == [Outcome.REPLACED]
    assert [each.peer for each in desk.waiting] == [ANNA]


def test_who_was_denied_may_ask_again_after_a_while_only() -> None:
    desk = Desk(DeskSettings(denied_for_s=600))
    number = apply(desk)
    desk.deny(1.0, ANNA)
    assert desk.decisions() == [Decision(number, Outcome.DENIED)]
    with pytest.raises(TurnedAwayError) as told:
        apply(desk, now=600.0)
    assert told.value.denied
    apply(desk, now=601.0)


def test_nobody_waits_for_ever() -> None:
    desk = Desk(DeskSettings(lasts_s=120))
    number = apply(desk)
    desk.expire(119.0)
    assert desk.waiting
    with pytest.raises(NotWaitingError, match="its time may be up"):
        desk.approve(120.0, ANNA, CODE)
    assert desk.decisions() == [Decision(number, Outcome.EXPIRED)]


def test_a_peer_that_asks_again_has_one_request() -> None:
    desk = Desk()
    first, second = apply(desk), apply(desk, now=1.0)
    assert [each.number for each in desk.waiting] == [second]
    assert desk.decisions() == [Decision(first, Outcome.REPLACED)]
    desk.withdraw(first)  # its connection ends late
    assert [each.number for each in desk.waiting] == [second]


def test_who_is_gone_waits_no_more() -> None:
    desk = Desk()
    desk.withdraw(apply(desk))
    assert (desk.waiting, desk.decisions()) == ((), [])


def test_one_machine_can_not_fill_the_list() -> None:
    desk = Desk(DeskSettings(waiting=8, waiting_per_address=4))
    for number in range(4):
        apply(desk, PeerId(f"stranger-{number}"))
    with pytest.raises(TurnedAwayError, match="too many machines"):
        apply(desk, PeerId("stranger-4"))
    apply(desk, ANNA, address="10.0.0.3")


def test_the_list_is_short() -> None:
    desk = Desk(DeskSettings(waiting=8))
    for number in range(8):
        apply(desk, PeerId(f"stranger-{number}"), address=f"10.0.1.{number}")
    with pytest.raises(TurnedAwayError) as told:
        apply(desk, ANNA)
    assert not told.value.denied
    apply(desk, ANNA, now=120.0)


def test_a_machine_that_moved_to_another_cluster_lets_nobody_into_it() -> None:
    desk = Desk()
    number = apply(desk)
    desk.move()
    assert desk.decisions() == [Decision(number, Outcome.MOVED)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["apply", "approve", "deny", "withdraw", "expire", "wrong"]), st.integers(0, 20))
    )
)
def test_whatever_happens_everyone_gets_one_decision_or_has_left(steps: list[tuple[str, int]]) -> None:
    desk, now = Desk(), 0.0
    applied: set[int] = set()
    gone: set[int] = set()
    decided: list[int] = []
    for step, number in steps:
        peer, now = PeerId(f"peer-{number}"), now + 7
        waiting = {each.peer: each.number for each in desk.waiting}
        try:
            match step:
                case "apply":
                    applied.add(apply(desk, peer, now, address=f"10.0.0.{number % 3}"))
                case "approve":
                    desk.approve(now, peer)
                case "wrong":
                    desk.approve(now, peer, "no code")
                case "deny":
                    desk.deny(now, peer)
                case "withdraw" if peer in waiting:
                    desk.withdraw(waiting[peer])
                    gone.add(waiting[peer])
                case _:
                    desk.expire(now)
        except (TurnedAwayError, NotWaitingError, WrongCodeError):
            pass
        decided += [each.number for each in desk.decisions()]
        assert len(desk.waiting) <= desk.settings.waiting
    assert len(decided) == len(set(decided))
    assert set(decided) | gone | {each.number for each in desk.waiting} == applied


def test_an_address_knocks_so_often_and_then_slowly() -> None:
    rate = KnockRate(RateSettings(burst=3, refill_s=6))
    assert [rate.allows(0.0, "10.0.0.2") for _ in range(5)] == [True, True, True, False, False]
    assert rate.allows(0.0, "10.0.0.3")
    assert [rate.allows(6.0, "10.0.0.2") for _ in range(2)] == [True, False]


def test_the_addresses_of_one_ipv6_network_are_one_source() -> None:
    rate = KnockRate(RateSettings(burst=3, refill_s=6))
    assert [rate.allows(0.0, f"2001:db8::{number:x}") for number in range(5)] == [True, True, True, False, False]
    assert rate.allows(0.0, "2001:db8:0:1::1")
    assert [rate.allows(0.0, each) for each in ("10.0.0.2", "::ffff:10.0.0.2", "10.0.0.2", "10.0.0.2")][-1] is False
    desk = Desk(DeskSettings(waiting=8, waiting_per_address=2))
    for number in range(2):
        desk.apply(0.0, PeerId(f"{number}"), "mac", "", "000 000", f"fe80::{number + 1}%en0")
    with pytest.raises(TurnedAwayError):
        desk.apply(0.0, PeerId("2"), "mac", "", "000 000", "fe80::9%en1")


def test_a_crowd_is_slowed_down_as_a_whole() -> None:
    rate = KnockRate(RateSettings(burst_of_all=60, refill_of_all_s=0.5))
    allowed = sum(rate.allows(0.0, f"10.0.{number // 250}.{number % 250}") for number in range(1000))
    assert allowed == 60
    assert rate.allows(0.5, "10.9.9.9")


def test_a_flood_of_addresses_takes_no_more_memory() -> None:
    rate = KnockRate(RateSettings(sources=16))
    for number in range(1000):
        rate.allows(float(number), f"10.0.{number // 250}.{number % 250}")
    assert len(rate._sources) == 16
