"""Events as Ollama's lines, and as one object. Pure."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from p2pexo.api.ollama_wire import OllamaStream, Said, Shape, Voice, chat_shape, generate_shape, whole
from p2pexo.generation.errors import ContextLengthError, EngineError
from p2pexo.generation.events import (
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    Likelihood,
    Progress,
    Started,
    TokenLogprobs,
    ToolCallDelta,
    Usage,
    Waiting,
)

NOON = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
ANSWER: list[Event] = [
    Waiting("loading"),
    Started(3),
    Progress(3, 3),
    Delta(0, (1,), "", reasoning="hm"),
    Delta(1, (2,), "né"),
    Delta(2, (3,), ""),
    Delta(3, (4,), " 🦜", tool_calls=(ToolCallDelta(0, "t1", "add"),)),
    Delta(4, (5,), "", tool_calls=(ToolCallDelta(0, arguments='{"a":'), ToolCallDelta(0, arguments="2}"))),
    Delta(5, (6,), "", tool_calls=(ToolCallDelta(1, "t2", "now"),)),
    Finished(FinishReason.TOOL_CALLS, Usage(3, 7), prefill_s=0.25, decode_s=0.5),
]
ADD = {"id": "t1", "function": {"index": 0, "name": "add", "arguments": {"a": 2}}}
NOW = {"id": "t2", "function": {"index": 1, "name": "now", "arguments": {}}}


def voice(shape: Shape = chat_shape) -> Voice:
    return Voice("owner/Model", shape, 1_000_000_000, lambda: 2_000_000_000, lambda: NOON)


def lines(events: list[Event], shape: Shape = chat_shape) -> list[dict[str, Any]]:
    stream = OllamaStream(voice(shape))
    wire = b"".join(stream.encode(event) for event in events)
    assert wire == b"" or wire.endswith(b"\n")
    return [json.loads(line) for line in wire.splitlines()]


def one(events: list[Event], shape: Shape = chat_shape) -> dict[str, Any]:
    return json.loads(whole(voice(shape), events))


def test_every_line_of_a_chat_has_a_message_with_a_role() -> None:
    told = lines(ANSWER)
    assert {(line["model"], line["created_at"]) for line in told} == {("owner/Model", "2026-11-30T12:00:00.123456Z")}
    assert {line["message"]["role"] for line in told} == {"assistant"}
    assert [line["done"] for line in told] == [False] * (len(told) - 1) + [True]


def test_what_the_lines_of_a_chat_say() -> None:
    messages = [{**line["message"], "role": None} for line in lines(ANSWER)]
    assert messages == [
        {"role": None, "content": "", "thinking": "hm"},
        {"role": None, "content": "né"},
        {"role": None, "content": " 🦜"},
        {"role": None, "content": "", "tool_calls": [ADD]},
        {"role": None, "content": "", "tool_calls": [NOW]},
        {"role": None, "content": ""},
    ]


def test_what_the_lines_of_a_generation_say() -> None:
    told = lines(ANSWER, generate_shape)
    assert [line["response"] for line in told] == ["", "né", " 🦜", "", "", ""]
    assert told[0]["thinking"] == "hm"
    assert "message" not in told[0]


def test_the_last_line_counts_and_measures_in_nanoseconds() -> None:
    last = lines(ANSWER)[-1]
    assert {name: last[name] for name in last if name.endswith(("duration", "count"))} == {
        "total_duration": 1_000_000_000,
        "load_duration": 250_000_000,
        "prompt_eval_count": 3,
        "prompt_eval_duration": 250_000_000,
        "eval_count": 7,
        "eval_duration": 500_000_000,
    }


@pytest.mark.parametrize(
    ("reason", "told"),
    [(FinishReason.STOP, "stop"), (FinishReason.LENGTH, "length"), (FinishReason.TOOL_CALLS, "stop")],
)
def test_why_it_is_done(reason: FinishReason, told: str) -> None:
    events: list[Event] = [Started(3), Delta(0, (1,), "x"), Finished(reason, Usage(3, 1))]
    assert lines(events)[-1]["done_reason"] == one(events)["done_reason"] == told


def test_one_object_holds_everything() -> None:
    reply = one(ANSWER)
    assert reply["message"] == {"role": "assistant", "content": "né 🦜", "thinking": "hm", "tool_calls": [ADD, NOW]}
    assert (reply["done"], reply["done_reason"], reply["eval_count"]) == (True, "stop", 7)
    assert one(ANSWER, generate_shape)["response"] == "né 🦜"


def test_a_failure_is_an_error_line_and_nothing_is_done() -> None:
    told = lines([Started(3), Delta(0, (1,), "x"), Failed(EngineError("stage 2 is gone").report())])
    assert told[-1] == {"error": "stage 2 is gone"}
    assert not any(line.get("done") for line in told)


def test_silence_has_no_word() -> None:
    assert lines([Waiting("loading"), Started(3), Progress(1, 3)]) == []
    assert OllamaStream(voice()).keep_alive() == b""


@pytest.mark.parametrize("arguments", ['{"a":', "[1]"])
def test_a_call_that_was_cut_is_not_taken_for_one(arguments: str) -> None:
    delta = Delta(0, (1,), "", tool_calls=(ToolCallDelta(0, "t1", "add", arguments),))
    events: list[Event] = [Started(3), delta, Finished(FinishReason.LENGTH, Usage(3, 1))]
    assert "tool_calls" not in str(lines(events))
    assert "tool_calls" not in one(events)["message"]


def test_log_probabilities_wait_for_their_text() -> None:
    first, second = (
        TokenLogprobs(Likelihood(each, text, tuple(text.encode()), -0.5), (Likelihood(9, "z", (122,), -1.5),))
        for each, text in enumerate("ab")
    )
    events: list[Event] = [
        Started(3),
        Delta(0, (1,), "", logprobs=(first,)),
        Delta(1, (2,), "ab", logprobs=(second,)),
        Finished(FinishReason.STOP, Usage(3, 2)),
    ]
    told, last = lines(events)
    assert [each["token"] for each in told["logprobs"]] == ["a", "b"]
    assert told["logprobs"][0] == {
        "token": "a",
        "logprob": -0.5,
        "bytes": [97],
        "top_logprobs": [{"token": "z", "logprob": -1.5, "bytes": [122]}],
    }
    assert "logprobs" not in last
    assert one(events)["logprobs"] == told["logprobs"]


def test_a_load_is_told_in_the_shape_of_its_route() -> None:
    reply = json.loads(voice(generate_shape).line(Said(), done=True, done_reason="load"))
    assert (reply["response"], reply["done"], reply["done_reason"]) == ("", True, "load")


def test_a_failed_answer_raises_what_failed() -> None:
    with pytest.raises(ContextLengthError, match="9000"):
        one([Failed(ContextLengthError("9000 tokens, context 8192").report())])
    with pytest.raises(EngineError):
        one([Delta(0, (1,), "half")])
