"""Lines of a chat completion as events. Pure."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from p2pexo.client import (
    Answer,
    BrokenStreamError,
    ChatEvent,
    Choice,
    Collector,
    ContextLengthError,
    EngineError,
    Finished,
    Likelihood,
    Logprobs,
    Message,
    Note,
    Picture,
    Reasoning,
    Text,
    TokenLogprob,
    Tool,
    ToolCall,
    ToolCallPart,
    UnexpectedAnswerError,
    Usage,
)
from p2pexo.client.chat_body import chat_body
from p2pexo.client.chat_stream import ChatReader

DONE = "data: [DONE]"


def chunk(finish_reason: str | None = None, index: int = 0, logprobs: Any = None, **delta: Any) -> str:
    choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
    return "data: " + json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [choice], "usage": None})


def usage(prompt: int, completion: int) -> str:
    total = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return "data: " + json.dumps({"choices": [], "usage": total})


def read(*lines: str, choices: int = 1) -> tuple[list[ChatEvent], ChatReader]:
    reader = ChatReader(choices)
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
    assert collect(events) == Answer((Choice("Hello", "hm", (), "stop"),), Usage(7, 4))
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


def test_answers_side_by_side_are_kept_apart() -> None:
    lines = [chunk(content="a"), chunk(index=1, content="b"), chunk(index=1, finish_reason="length"), DONE]
    events, reader = read(*lines, choices=2)
    assert events == [Text("a"), Text("b", 1)]
    assert not reader.is_complete
    events, reader = read(*lines[:-1], chunk(index=0, finish_reason="stop"), DONE, choices=2)
    assert reader.is_complete
    assert events[-1] == Finished("stop", Usage(), ("stop", "length"))
    assert collect(events).choices == (Choice("a", finish_reason="stop"), Choice("b", finish_reason="length"))


def test_likelihoods_come_with_their_text() -> None:
    likely = {"token": "H", "logprob": -0.5, "bytes": [72]}
    told = {"content": [{**likely, "top_logprobs": [likely]}], "refusal": None}
    events, _ = read(chunk(content="H", logprobs=told), chunk("stop"), DONE)
    token = TokenLogprob("H", -0.5, (72,), (Likelihood("H", -0.5, (72,)),))
    assert events[:2] == [Text("H"), Logprobs((token,))]
    assert collect(events).logprobs == (token,)


def test_usage_tells_what_was_cached_and_what_was_thought() -> None:
    told = {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}
    told["completion_tokens_details"] = {"reasoning_tokens": 3}
    events, _ = read(chunk("stop"), "data: " + json.dumps({"choices": [], "usage": told}), DONE)
    assert events == [Finished("stop", Usage(9, 5, cached_tokens=8, reasoning_tokens=3))]


def collect_at(*events: tuple[float, ChatEvent]) -> Answer:
    """What was asked at 0 and came at these times."""
    now = 0.0
    collector = Collector(lambda: now)
    for now, event in events:  # noqa: B007 the clock shows it
        collector.add(event)
    return collector.so_far()


def test_speed_is_that_of_the_tokens_after_the_first() -> None:
    end = Finished("stop", Usage(5, 5))
    answer = collect_at((0.5, Note("…")), (2.0, Reasoning("a")), (3.0, Text("b")), (4.0, Text("c")), (4.5, end))
    assert (answer.first_token_s, answer.speaking_s, answer.tokens_per_second) == (2.0, 2.0, 2.0)


def test_an_answer_too_short_to_measure_makes_no_figures_up() -> None:
    assert collect_at((1.0, Text("a")), (1.0, Finished("stop", Usage(5, 1)))).tokens_per_second is None
    assert collect_at((1.0, Text("a")), (2.0, Text("b"))).tokens_per_second is None
    assert collect_at((1.0, Finished("stop", Usage(5, 0)))).first_token_s is None


def test_what_came_before_it_was_stopped_is_kept() -> None:
    assert collect_at((1.0, Text("half an ans"))) == Answer((Choice("half an ans"),))
    assert collect_at().text == ""


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


PNG = b"\x89PNG\r\n\x1a\n and so on"


def test_pictures_go_along_in_their_place(tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(PNG)
    here, there = Picture.from_file(tmp_path / "picture"), Picture.from_url("https://example.org/cat.png")
    message = Message("user", ["What is on", here, there])
    assert chat_body("m", [message], {})["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is on"},
                {"type": "image_url", "image_url": {"url": here.url}},
                {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
            ],
        }
    ]
    assert here.url == f"data:image/png;base64,{b64encode(PNG).decode()}"


@pytest.mark.parametrize(
    ("content", "media_type"),
    [(b"\xff\xd8\xff\xe0", "image/jpeg"), (b"GIF89a", "image/gif"), (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp")],
)
def test_a_picture_knows_its_kind(content: bytes, media_type: str) -> None:
    assert Picture.from_bytes(content).url.startswith(f"data:{media_type};base64,")


def test_a_picture_of_no_known_kind_needs_its_name() -> None:
    with pytest.raises(ValueError, match="media_type"):
        Picture.from_bytes(b"<svg/>")
    assert Picture.from_bytes(b"<svg/>", "image/svg+xml").url.startswith("data:image/svg+xml;")


def test_a_picture_is_shown_cut() -> None:
    assert len(repr(Picture.from_bytes(PNG * 1000))) < 100
