"""Lines of a chat completion as events. Pure."""

import json
from typing import Any

import pytest

from p2pexo.client import (
    Answer,
    BrokenStreamError,
    ChatEvent,
    ContextLengthError,
    EngineError,
    Finished,
    Message,
    Note,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolCallPart,
    UnexpectedAnswerError,
    Usage,
)
from p2pexo.client.chat import chat_body
from p2pexo.client.chat_stream import ChatReader, Collector

DONE = "data: [DONE]"


def chunk(finish_reason: str | None = None, **delta: Any) -> str:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return "data: " + json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [choice], "usage": None})


def usage(prompt: int, completion: int) -> str:
    total = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return "data: " + json.dumps({"choices": [], "usage": total})


def read(*lines: str) -> tuple[list[ChatEvent], ChatReader]:
    reader = ChatReader()
    return [event for line in lines for event in reader.feed(line)], reader


def collect(events: list[ChatEvent]) -> Answer:
    collector = Collector()
    for event in events:
        collector.add(event)
    return collector.answer()


def test_an_answer_is_told_in_typed_events() -> None:
    events, reader = read(
        ": loading layers 0-10",
        ": keep-alive",
        "",
        chunk(role="assistant", content=""),
        chunk(reasoning_content="hm"),
        chunk(content="Hel"),
        chunk(content="lo"),
        chunk("stop"),
        usage(7, 4),
        DONE,
    )
    end = Finished("stop", Usage(7, 4))
    assert events == [Note("loading layers 0-10"), Reasoning("hm"), Text("Hel"), Text("lo"), end]
    assert reader.is_complete
    assert collect(events) == Answer("Hello", "hm", (), "stop", Usage(7, 4))
    assert collect(events).message == Message("assistant", "Hello", reasoning="hm")


def test_calls_are_put_together() -> None:
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
    second = {"index": 1, "id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}}
    more = {"index": 0, "function": {"arguments": '{"a":1}'}}
    events, _ = read(
        chunk(tool_calls=[first]), chunk(tool_calls=[more]), chunk(tool_calls=[second]), chunk("tool_calls"), DONE
    )
    assert events[0] == ToolCallPart(0, "c1", "f", "")
    answer = collect(events)
    assert answer.tool_calls == (ToolCall("c1", "f", '{"a":1}'), ToolCall("c2", "g", "{}"))
    assert answer.message == Message("assistant", "", answer.tool_calls)


def test_nobody_else_may_be_asked_once_text_has_arrived() -> None:
    _, reader = read(": loading", chunk(role="assistant", content=""))
    assert reader.may_start_over
    _, reader = read(chunk(content="H"))
    assert not reader.may_start_over


@pytest.mark.parametrize("lines", [(chunk(content="half"),), (chunk(content="half"), DONE)])
def test_what_has_no_end_is_not_complete(lines: tuple[str, ...]) -> None:
    events, reader = read(*lines)
    assert not reader.is_complete
    with pytest.raises(BrokenStreamError):
        collect(events)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"message": "m", "type": "InternalServerError", "param": None, "code": 500}, EngineError),
        ({"message": "m", "type": "invalid_request_error", "code": "context_length_exceeded"}, ContextLengthError),
        ("m", EngineError),
    ],
)
def test_a_failure_in_the_stream_is_raised(error: object, expected: type[Exception]) -> None:
    with pytest.raises(expected, match="m"):
        read(chunk(content="half"), "data: " + json.dumps({"error": error}))


@pytest.mark.parametrize("line", ["data: {", "data: []", 'data: {"choices": 5}', 'data: {"choices": [{"delta": 1}]}'])
def test_nonsense_is_named(line: str) -> None:
    with pytest.raises(UnexpectedAnswerError):
        read(line)


def test_the_body_is_what_the_node_reads() -> None:
    call = ToolCall("c", "f", "{}")
    body = chat_body(
        "m",
        [
            Message("user", "U"),
            Message("assistant", "", (call,), reasoning="hm"),
            Message("tool", "5", tool_call_id="c"),
        ],
        {"temperature": 0.0, "tools": [Tool("f", "d")], "tool_choice": "f", "json_schema": {"type": "object"}},
    )
    assert body["messages"] == [
        {"role": "user", "content": "U"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "5", "tool_call_id": "c"},
    ]
    assert body["tools"] == [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert body["temperature"] == 0.0
    assert isinstance(body["response_format"], dict)
    assert chat_body("m", "hi", {})["messages"] == [{"role": "user", "content": "hi"}]
