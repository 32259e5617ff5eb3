"""Reasoning and tool calls on their way through an answer."""

from collections.abc import Sequence

import pytest
from attrs import evolve, frozen

from p2pexo.engine.answer import Answer
from p2pexo.engine.parsers.chat_format import ChatFormat
from p2pexo.engine.parsers.parser import OutputParser
from p2pexo.generation.events import Delta, Finished, FinishReason, ToolCallDelta
from p2pexo.generation.request import Message, Request, Role, Tool, ToolChoice, ToolMode

END, OPEN, CLOSE = 0, 1, 2
CONTROLS = {END: "<end>", OPEN: "<tool_call>", CLOSE: "</tool_call>"}
CALL = '<tool_call>{"name": "clock", "arguments": {"zone": "é"}}</tool_call>'


@frozen
class Bytes:
    """Tokens are bytes, but for three control tokens."""

    context_length: int = 500
    end_tokens: frozenset[int] = frozenset({END})

    def decode(self, tokens: Sequence[int], keep: frozenset[str] = frozenset()) -> str:
        pieces = (
            (CONTROLS[token] if CONTROLS[token] in keep else "").encode() if token in CONTROLS else bytes([token])
            for token in tokens
        )
        return b"".join(pieces).decode(errors="replace")

    def parser(self, request: Request, prompt_tokens: Sequence[int]) -> OutputParser:
        template = "{{ tools }}<tool_call><think></think>"
        return ChatFormat.of(template, dict.fromkeys(CONTROLS.values(), True)).parser(request)


def answer(**changes: object) -> Answer:
    request = Request("r1", "a/b", (Message(Role.USER, "hi"),), tools=(Tool("clock"),))
    return Answer(evolve(request, **changes), Bytes(), [9] * 3)


def tokens(text: str) -> list[int]:
    for token, mark in CONTROLS.items():
        text = text.replace(mark, chr(token))
    return list(text.encode())


def play(state: Answer, text: str) -> list[Delta | Finished]:
    events: list[Delta | Finished] = []
    for token in tokens(text):
        if state.finished is None:
            events += state.push(token)
    return events


def finished(events: Sequence[Delta | Finished]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


def text_of(events: Sequence[Delta | Finished]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


def reasoning_of(events: Sequence[Delta | Finished]) -> str:
    return "".join(event.reasoning for event in events if isinstance(event, Delta))


def calls_of(events: Sequence[Delta | Finished]) -> list[ToolCallDelta]:
    return [call for event in events if isinstance(event, Delta) for call in event.tool_calls]


def arguments_of(events: Sequence[Delta | Finished], index: int = 0) -> str:
    return "".join(call.arguments for call in calls_of(events) if call.index == index)


def test_thought_text_and_call_go_their_own_ways() -> None:
    events = play(answer(), f"<think>Hm.</think>Yes. {CALL}<end>")
    assert (reasoning_of(events), text_of(events), arguments_of(events)) == ("Hm.", "Yes. ", '{"zone": "é"}')
    assert finished(events).reason is FinishReason.TOOL_CALLS
    assert [event.index for event in events[:-1] if isinstance(event, Delta)] == list(range(len(events) - 1))


def test_thought_tokens_are_counted_marks_included() -> None:
    usage = finished(play(answer(), "<think>Hm.</think>Yes.<end>")).usage
    assert usage.reasoning_tokens == len("Hm.</think>") + 1  # the last byte of <think> begins it
    assert usage.completion_tokens == len("<think>Hm.</think>Yes.") + 1
    assert finished(play(answer(max_tokens=9), "<think>Hm.")).usage.reasoning_tokens == 3


def test_a_call_that_the_limit_cuts_ends_with_length() -> None:
    limit = len(tokens(CALL)) - 4
    events = play(answer(max_tokens=limit), CALL)
    assert finished(events).reason is FinishReason.LENGTH
    assert arguments_of(events) == '{"zone": "é'
    assert text_of(events) == ""


def test_a_stop_string_is_looked_for_in_text_alone() -> None:
    events = play(answer(stop=("clock", "zone", "Hm")), f"<think>Hm</think>a {CALL}b clock c<end>")
    assert text_of(events) == "a b "
    assert arguments_of(events) == '{"zone": "é"}'
    assert finished(events).reason is FinishReason.STOP
    assert finished(events).stop_text == "clock"


def test_what_may_be_a_stop_string_is_sent_before_a_call_begins() -> None:
    events = play(answer(stop=("XYZ",)), f"aXY{CALL}Z<end>")
    assert text_of(events) == "aXYZ"
    first_call = next(at for at, event in enumerate(events) if isinstance(event, Delta) and event.tool_calls)
    assert text_of(events[: first_call + 1]) == "aXY"


def test_two_calls_have_ids_of_their_own() -> None:
    calls = [call for call in calls_of(play(answer(), CALL + CALL + "<end>")) if call.id]
    assert [call.index for call in calls] == [0, 1]
    assert len({call.id for call in calls}) == 2
    assert {call.name for call in calls} == {"clock"}


def test_where_one_call_is_wanted_the_second_ends_the_answer() -> None:
    events = play(answer(tool_choice=ToolChoice(parallel=False)), f"{CALL}\n{CALL}more<end>")
    assert {call.index for call in calls_of(events)} == {0}
    assert arguments_of(events) == '{"zone": "é"}'
    assert text_of(events) == ""
    assert finished(events).reason is FinishReason.TOOL_CALLS


@pytest.mark.parametrize("changes", [{"tools": ()}, {"tool_choice": ToolChoice(ToolMode.NONE)}])
def test_where_no_call_is_wanted_the_answer_just_stops(changes: dict[str, object]) -> None:
    events = play(answer(**changes), f"{CALL}<end>")
    assert calls_of(events) == []
    assert text_of(events) == '{"name": "clock", "arguments": {"zone": "é"}}'
    assert finished(events).reason is FinishReason.STOP


def test_control_tokens_never_leak_into_text() -> None:
    assert text_of(play(answer(), "a</tool_call>b<tool_call>c<end>")) == "abc"


@pytest.mark.parametrize("done", range(0, 130, 7))
def test_a_replay_goes_on_in_the_middle_of_a_thought_or_a_call(done: int) -> None:
    written = f"<think>Hé</think>So {CALL}\n{CALL}.<end>"
    whole = play(answer(), written)
    resumed = answer(replayed_tokens=tuple(tokens(written)[:done]), attempt=1)
    rest: list[Delta | Finished] = []
    for token in tokens(written)[done:]:
        rest += resumed.push(token)
    assert rest == whole[done:]
