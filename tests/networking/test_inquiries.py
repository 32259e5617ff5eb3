from networking.inquiries import MAX_WAIT_S, Inquiries
from networking.transport import PeerId

A, B = PeerId("a"), PeerId("b")


def asked(inquiries: Inquiries, missed: list[PeerId], since: int, until: int) -> list[int]:
    """The seconds at which there was a question about A."""
    return [second for second in range(since, until) if A in inquiries.due(float(second), missed)]


def test_whom_nobody_hears_is_asked_about_ever_more_seldom() -> None:
    assert asked(Inquiries(), [A, B], 0, 400) == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363]
    assert MAX_WAIT_S == 60.0


def test_who_came_and_went_again_is_asked_about_at_once() -> None:
    inquiries = Inquiries()
    asked(inquiries, [A], 0, 40)
    assert inquiries.due(40.0, [B]) == [B]
    assert asked(inquiries, [A, B], 41, 45) == [41, 42, 44]


def test_whoever_is_heard_of_is_asked_about_at_once() -> None:
    inquiries = Inquiries()
    asked(inquiries, [A], 0, 40)
    inquiries.begin_anew([B, A])
    assert asked(inquiries, [A], 40, 45) == [40, 41, 43]
