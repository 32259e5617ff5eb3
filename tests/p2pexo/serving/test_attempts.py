import pytest

from p2pexo.generation.errors import EngineError, InsufficientMemoryError, RingBrokenError, UnavailableError
from p2pexo.generation.events import Delta, Finished, FinishReason, Progress, Started, Usage
from p2pexo.generation.request import Message, Request, Role
from p2pexo.serving.attempts import Attempts
from p2pexo.serving.settings import RouterSettings

LOSS = RingBrokenError("stage 1 is gone")


@pytest.fixture
def attempts() -> Attempts:
    return Attempts(Request("r1", "owner/model", (Message(Role.USER, "count"),)), RouterSettings())


def test_the_client_hears_of_one_beginning(attempts: Attempts) -> None:
    assert attempts.take(Started(5), 0) == Started(5)
    attempts.lose(LOSS, 1)
    assert attempts.take(Started(5), 2) is None
    assert attempts.take(Progress(3, 8), 2) == Progress(3, 8)


def test_the_next_attempt_carries_every_token_also_those_whose_text_is_held_back(attempts: Attempts) -> None:
    attempts.take(Delta(0, (7,), "a"), 0)
    attempts.take(Delta(1, (8, 9), ""), 0)
    attempts.lose(LOSS, 1)
    assert (attempts.request.attempt, attempts.request.replayed_tokens) == (1, (7, 8, 9))
    attempts.take(Delta(3, (1,), "bc"), 2)
    attempts.lose(LOSS, 3)
    assert (attempts.request.attempt, attempts.request.replayed_tokens) == (2, (7, 8, 9, 1))


@pytest.mark.parametrize("index", [0, 2])
def test_a_ring_that_goes_on_elsewhere_is_an_error(attempts: Attempts, index: int) -> None:
    attempts.take(Delta(0, (7,), "a"), 0)
    with pytest.raises(EngineError, match=f"token {index} of the answer and not with 1"):
        attempts.take(Delta(index, (8,), "b"), 1)


def test_the_time_to_wait_counts_from_the_fault_and_anew_after_a_token(attempts: Attempts) -> None:
    attempts.take(Delta(0, (7,), "a"), 0)
    attempts.lose(LOSS, 10)
    attempts.lose(LOSS, 20)
    assert attempts.gives_up_at == 40
    attempts.take(Delta(1, (8,), "b"), 21)
    assert attempts.gives_up_at is None
    attempts.lose(LOSS, 30)
    assert attempts.gives_up_at == 60


def test_when_the_time_is_up_an_answer_breaks_and_a_request_without_one_may_come_again(attempts: Attempts) -> None:
    attempts.lose(LOSS, 0)
    with pytest.raises(UnavailableError) as failure:
        attempts.lose(LOSS, 30)
    assert failure.value.retry_after_s
    attempts.take(Delta(0, (7,), "a"), 31)
    attempts.lose(LOSS, 40)
    with pytest.raises(RingBrokenError):
        attempts.lose(LOSS, 70)


def test_why_no_ring_came_is_told_with_the_loss(attempts: Attempts) -> None:
    attempts.take(Delta(0, (7,), "a"), 0)
    attempts.lose(LOSS, 1)
    told = attempts.given_up(InsufficientMemoryError("needs 8 GB, 2 GB free"))
    assert isinstance(told, RingBrokenError)
    assert told.message == "stage 1 is gone; needs 8 GB, 2 GB free"


def test_a_request_that_breaks_three_rings_at_the_same_token_is_given_up(attempts: Attempts) -> None:
    attempts.take(Delta(0, (7,), "a"), 0)
    for now in (1, 2, 3):
        attempts.lose(LOSS, now)
        attempts.take(Started(5), now)
    with pytest.raises(EngineError, match="3 rings in a row were lost at token 1") as failure:
        attempts.lose(LOSS, 4)
    assert not isinstance(failure.value, RingBrokenError)


def test_rings_that_turn_a_request_away_or_bring_it_on_are_not_held_against_it(attempts: Attempts) -> None:
    for index in range(6):
        attempts.lose(LOSS, index)
        attempts.take(Started(5), index)
        attempts.take(Delta(index, (7,), "a"), index)
        attempts.lose(LOSS, index)
        attempts.lose(LOSS, index)


def test_the_time_of_the_whole_answer_is_told_at_its_end(attempts: Attempts) -> None:
    finished = Finished(FinishReason.STOP, Usage(5, 2), prefill_s=1.0, decode_s=1.0, replayed_tokens=1)
    attempts.take(Delta(0, (7,), "a"), 10)
    assert attempts.take(finished, 12) == finished
    attempts.lose(LOSS, 13)
    told = attempts.take(finished, 30)
    assert isinstance(told, Finished)
    assert (told.prefill_s, told.decode_s, told.replayed_tokens) == (1.0, 20, 0)
