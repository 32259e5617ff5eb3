"""Events as Claude's stream events, and as one message. Pure."""

import json
from typing import Any

import pytest

from p2pexo.api.claude_wire import SIGNATURE, ClaudeStream, Voice, message
from p2pexo.generation.errors import ContextLengthError, EngineError, OverloadedError
from p2pexo.generation.events import (
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    Progress,
    Started,
    ToolCallDelta,
    Usage,
    Waiting,
)

VOICE = Voice("msg_1", "owner/Model")
QUIET = Voice("msg_1", "owner/Model", show_thinking=False)
ANSWER: list[Event] = [
    Waiting("loading"),
    Started(3),
    Progress(3, 3),
    Delta(0, (1,), "", reasoning="h"),
    Delta(1, (2,), "", reasoning="m"),
    Delta(2, (3,), "né"),
    Delta(3, (4,), ""),
    Delta(4, (5,), " 🦜", tool_calls=(ToolCallDelta(0, "t1", "add"),)),
    Delta(5, (6,), "", tool_calls=(ToolCallDelta(0, arguments='{"a":'), ToolCallDelta(0, arguments="2}"))),
    Delta(6, (7,), "", tool_calls=(ToolCallDelta(1, "t2", "now", "{}"),)),
    Finished(FinishReason.TOOL_CALLS, Usage(3, 8, reasoning_tokens=2)),
]


def wire(events: list[Event], voice: Voice = VOICE) -> list[dict[str, Any]]:
    stream = ClaudeStream(voice)
    blocks = b"".join(stream.encode(event) for event in events).decode().split("\n\n")[:-1]
    read: list[dict[str, Any]] = []
    for block in blocks:
        name, data = block.split("\n")
        read.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {read[-1]['type']}"
    return read


def whole(events: list[Event], voice: Voice = VOICE) -> dict[str, Any]:
    return json.loads(message(voice, events))


def started(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def changed(index: int, kind: str, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}


def stopped(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def test_the_blocks_of_a_stream_come_one_after_another() -> None:
    assert wire(ANSWER)[1:-2] == [
        started(0, type="thinking", thinking="", signature=""),
        changed(0, "thinking_delta", thinking="h"),
        changed(0, "thinking_delta", thinking="m"),
        changed(0, "signature_delta", signature=SIGNATURE),
        stopped(0),
        started(1, type="text", text=""),
        changed(1, "text_delta", text="né"),
        changed(1, "text_delta", text=" 🦜"),
        stopped(1),
        started(2, type="tool_use", id="t1", name="add", input={}),
        changed(2, "input_json_delta", partial_json='{"a":'),
        changed(2, "input_json_delta", partial_json="2}"),
        stopped(2),
        started(3, type="tool_use", id="t2", name="now", input={}),
        changed(3, "input_json_delta", partial_json="{}"),
        stopped(3),
    ]


def test_the_start_knows_the_prompt_and_the_end_the_answer() -> None:
    first, *_, delta, last = wire(ANSWER)
    assert first["type"] == "message_start"
    shown = first["message"]
    assert (shown["id"], shown["model"], shown["role"], shown["content"]) == ("msg_1", "owner/Model", "assistant", [])
    assert (shown["stop_reason"], shown["usage"]["input_tokens"], shown["usage"]["output_tokens"]) == (None, 3, 0)
    assert delta["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert (delta["usage"]["input_tokens"], delta["usage"]["output_tokens"]) == (3, 8)
    assert delta["usage"]["output_tokens_details"] == {"thinking_tokens": 2}
    assert last == {"type": "message_stop"}


def told_of_prompt(usage: dict[str, Any]) -> tuple[int, int, int]:
    return usage["input_tokens"], usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]


def test_what_was_cached_of_the_prompt_is_told_apart_from_the_rest() -> None:
    events: list[Event] = [Started(100, 64), Delta(0, (1,), "a"), Finished(FinishReason.STOP, Usage(100, 1, 64))]
    first, *_, delta, _ = wire(events)
    assert told_of_prompt(first["message"]["usage"]) == told_of_prompt(delta["usage"]) == (36, 64, 0)
    assert told_of_prompt(whole(events)["usage"]) == (36, 64, 0)


@pytest.mark.parametrize(
    ("end", "reason", "sequence"),
    [
        (Finished(FinishReason.STOP, Usage(3, 1)), "end_turn", None),
        (Finished(FinishReason.LENGTH, Usage(3, 1)), "max_tokens", None),
        (Finished(FinishReason.TOOL_CALLS, Usage(3, 1)), "tool_use", None),
        (Finished(FinishReason.STOP, Usage(3, 1), stop_text="###"), "stop_sequence", "###"),
    ],
)
def test_why_it_stopped(end: Finished, reason: str, sequence: str | None) -> None:
    expected = {"stop_reason": reason, "stop_sequence": sequence}
    events: list[Event] = [Started(3), end]
    assert wire(events)[-2]["delta"] == expected
    assert {name: whole(events)[name] for name in expected} == expected


def test_an_empty_answer_has_no_block() -> None:
    events: list[Event] = [Started(3), Delta(0, (1,), ""), Finished(FinishReason.STOP, Usage(3, 1))]
    assert [event["type"] for event in wire(events)] == ["message_start", "message_delta", "message_stop"]
    assert whole(events)["content"] == []


def test_waiting_and_prefill_say_nothing_and_silence_is_a_ping() -> None:
    assert wire([Waiting("loading"), Progress(1, 2)]) == []
    assert [each["type"] for each in wire([Started(3), Waiting("the ring was lost")])] == ["message_start", "ping"]
    assert ClaudeStream(VOICE).keep_alive() == b'event: ping\ndata: {"type":"ping"}\n\n'


def test_a_failure_is_an_error_event_and_no_end() -> None:
    *_, error = wire([Started(3), Delta(0, (1,), "x"), Failed(EngineError("stage 2 is gone").report())])
    assert error["error"] == {"type": "api_error", "message": "stage 2 is gone"}
    (error,) = wire([Failed(OverloadedError("full").report())])
    assert error["error"]["type"] == "overloaded_error"


def test_omitted_thoughts_leave_a_signed_empty_block() -> None:
    kinds = [event["delta"]["type"] for event in wire(ANSWER, QUIET) if event["type"] == "content_block_delta"]
    assert "thinking_delta" not in kinds
    assert kinds[0] == "signature_delta"
    assert whole(ANSWER, QUIET)["content"][0] == {"type": "thinking", "thinking": "", "signature": SIGNATURE}


def test_a_whole_message_has_the_same_blocks() -> None:
    reply = whole(ANSWER)
    assert reply["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": SIGNATURE},
        {"type": "text", "text": "né 🦜"},
        {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 2}},
        {"type": "tool_use", "id": "t2", "name": "now", "input": {}},
    ]
    assert (reply["type"], reply["stop_reason"], reply["usage"]["output_tokens"]) == ("message", "tool_use", 8)


@pytest.mark.parametrize(("arguments", "kept"), [("", 1), ("{}", 1), ('{"a":', 0), ("[1]", 0)])
def test_a_call_that_was_cut_is_not_taken_for_one(arguments: str, kept: int) -> None:
    call = ToolCallDelta(0, "t1", "add", arguments)
    events: list[Event] = [Started(3), Delta(0, (1,), "", tool_calls=(call,))]
    assert len(whole([*events, Finished(FinishReason.LENGTH, Usage(3, 1))])["content"]) == kept


def test_a_failed_message_raises_what_failed() -> None:
    with pytest.raises(ContextLengthError, match="9000"):
        message(VOICE, [Failed(ContextLengthError("9000 tokens, context 8192").report())])
    with pytest.raises(EngineError):
        message(VOICE, [Delta(0, (1,), "half")])
