from collections.abc import Sequence

import pytest
from attrs import evolve, frozen

from p2pexo.engine.answer import Answer
from p2pexo.engine.parsers.chat_format import ChatFormat
from p2pexo.engine.parsers.parser import OutputParser
from p2pexo.generation.errors import ContextLengthError
from p2pexo.generation.events import Delta, Finished, FinishReason, Usage
from p2pexo.generation.request import Message, Request, Role

END = 0


@frozen
class Bytes:
    """Tokens are bytes; 0 ends a turn."""

    context_length: int = 100
    end_tokens: frozenset[int] = frozenset({END, 1})

    def decode(self, tokens: Sequence[int], keep: frozenset[str] = frozenset()) -> str:
        return bytes(token for token in tokens if token not in self.end_tokens).decode(errors="replace")

    def parser(self, request: Request, prompt_tokens: Sequence[int]) -> OutputParser:
        return ChatFormat.of("<tool_call><think></think>", {}).parser(request)


def answer(model: Bytes = Bytes(), prompt: int = 3, **changes) -> Answer:
    request = Request("r1", "a/b", (Message(Role.USER, "hi"),))
    return Answer(evolve(request, **changes), model, [9] * prompt)


def play(state: Answer, text: bytes) -> list[Delta | Finished]:
    events: list[Delta | Finished] = []
    for byte in text:
        if state.finished is None:
            events += state.push(byte)
    return events


def text_of(events: Sequence[Delta | Finished]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


def test_every_token_has_a_delta_with_its_index_also_while_text_is_held() -> None:
    events = play(answer(), "aé".encode())
    assert events == [Delta(0, (97,), "a"), Delta(1, (0xC3,), ""), Delta(2, (0xA9,), "é")]


@pytest.mark.parametrize("end", [0, 1])
def test_any_end_token_stops_and_counts_and_leaves_no_text(end: int) -> None:
    events = play(answer(), b"hi" + bytes([end]))
    assert text_of(events) == "hi"
    assert events[-2:] == [Delta(2, (end,), ""), Finished(FinishReason.STOP, Usage(3, 3))]


def test_the_token_limit_ends_with_length() -> None:
    events = play(answer(max_tokens=2), b"hello")
    assert text_of(events) == "he"
    assert events[-1] == Finished(FinishReason.LENGTH, Usage(3, 2))


@pytest.mark.parametrize("limit", range(1, 7))
def test_a_limit_in_mid_character_ends_as_the_whole_text_would(limit: int) -> None:
    data = "🙂é".encode()[:limit]
    events = play(answer(max_tokens=limit), "🙂éx".encode())
    assert text_of(events) == data.decode(errors="replace")
    assert all("\ufffd" not in event.text for event in events[:-2] if isinstance(event, Delta))


def test_the_end_of_the_context_ends_with_length_whatever_the_limit() -> None:
    events = play(answer(Bytes(context_length=8), max_tokens=100), b"abcdefgh")
    assert text_of(events) == "abcde"
    assert events[-1] == Finished(FinishReason.LENGTH, Usage(3, 5))


@pytest.mark.parametrize("prompt", [8, 9, 200])
def test_a_prompt_that_leaves_no_room_is_refused_with_both_sizes(prompt: int) -> None:
    with pytest.raises(ContextLengthError, match=rf"{prompt} tokens.* 8,") as caught:
        answer(Bytes(context_length=8), prompt=prompt)
    assert caught.value.param == "messages"


def test_a_stop_string_over_several_tokens_never_leaks() -> None:
    events = play(answer(stop=("XYZ", "Q")), b"abXYabXYZcd")
    assert text_of(events) == "abXYab"
    assert events[-1] == Finished(FinishReason.STOP, Usage(3, 9), stop_text="XYZ")


def test_what_was_held_is_sent_when_the_stop_string_does_not_come() -> None:
    assert text_of(play(answer(stop=("XYZ",)), b"abXY\x00")) == "abXY"
    assert text_of(play(answer(stop=("XYZ",), max_tokens=4), b"abXYZ")) == "abXY"


@pytest.mark.parametrize("done", range(6))
def test_a_replayed_answer_goes_on_with_the_same_events(done: int) -> None:
    text = "é XYé".encode()
    whole = play(answer(stop=("XYZ",)), text)
    resumed = answer(stop=("XYZ",), replayed_tokens=tuple(text[:done]))
    assert resumed.tokens == list(text[:done])
    assert play(resumed, text[done:]) == whole[done:]


def test_a_replay_that_the_memory_of_another_ring_does_not_hold_is_an_error_and_no_end() -> None:
    request = Request("r1", "a/b", (Message(Role.USER, "hi"),), replayed_tokens=tuple(b"hello"))
    with pytest.raises(ContextLengthError, match=r"after 5 tokens: .* memory for 8 tokens"):
        Answer(request, Bytes(), [9] * 3, most_tokens=8)
    assert Answer(request, Bytes(), [9] * 3, most_tokens=9).finished is None


@pytest.mark.parametrize("changes", [{"max_tokens": 2}, {"stop": ("bc",)}, {}])
def test_a_replay_that_already_ends_the_answer_says_so(changes) -> None:
    whole = play(answer(**changes), b"abc\x00")
    tokens = tuple(token for event in whole if isinstance(event, Delta) for token in event.tokens)
    resumed = answer(**changes, replayed_tokens=tokens)
    assert resumed.finished == whole[-1]
    with pytest.raises(ValueError, match="r1 is finished"):
        resumed.push(5)
