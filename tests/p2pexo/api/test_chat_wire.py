"""Events as Chat Completions chunks, and as one completion. Pure."""

import json
from typing import Any

import pytest
from attrs import evolve

from p2pexo.api.chat_whole import completion
from p2pexo.api.chat_wire import ChatStream, Envelope
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
from p2pexo.generation.request import Message, Request, Role

REQUEST = Request("chatcmpl-1", "owner/Model", (Message(Role.USER, "hi"),))
ENVELOPE = Envelope("chatcmpl-1", 1700000000, "owner/Model")
ANSWER: list[Event] = [
    Waiting("loading"),
    Started(3),
    Progress(3, 3),
    Delta(0, (1,), ""),
    Delta(1, (2, 3), "né"),
    Delta(3, (4,), " 🦜"),
    Finished(FinishReason.LENGTH, Usage(3, 4)),
]


def wire(events: list[Event], include_usage: bool = False) -> list[str]:
    stream = ChatStream(ENVELOPE, include_usage)
    return b"".join(stream.encode(event) for event in events).decode().split("\n\n")[:-1]


def chunks(events: list[Event], include_usage: bool = False) -> list[dict[str, Any]]:
    lines = [line for line in wire(events, include_usage) if not line.startswith(":")]
    assert lines[-1] == "data: [DONE]"
    assert lines.count("data: [DONE]") == 1
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


@pytest.mark.parametrize("include_usage", [False, True])
def test_every_chunk_has_one_id_one_created_and_one_model(include_usage: bool) -> None:
    envelopes = {(c["id"], c["created"], c["model"], c["object"]) for c in chunks(ANSWER, include_usage)}
    assert envelopes == {("chatcmpl-1", 1700000000, "owner/Model", "chat.completion.chunk")}


def test_the_role_is_told_once_and_first() -> None:
    roles = [chunk["choices"][0]["delta"].get("role") for chunk in chunks(ANSWER)]
    assert roles == ["assistant", None, None, None]


def test_only_the_last_choice_has_a_finish_reason() -> None:
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks(ANSWER)]
    assert reasons == [None, None, None, "length"]


def test_deltas_join_to_the_text() -> None:
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks(ANSWER)) == "né 🦜"


def test_usage_is_a_last_chunk_without_choices_when_asked_for() -> None:
    *others, last = chunks(ANSWER, include_usage=True)
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in others)
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def test_usage_is_not_mentioned_when_not_asked_for() -> None:
    assert not any("usage" in chunk for chunk in chunks(ANSWER))


def test_an_empty_answer_still_has_a_role_and_an_end() -> None:
    first, last = chunks([Started(3), Finished(FinishReason.STOP, Usage(3, 1))])
    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert last["choices"][0]["finish_reason"] == "stop"


def test_waiting_and_prefill_are_comments() -> None:
    assert wire([Waiting("two\nlines"), Progress(5, 9)]) == [": two lines", ": prefill 5/9"]


def test_a_failure_is_an_error_event_and_no_finish() -> None:
    *_, error = chunks([Delta(0, (1,), "x"), Failed(EngineError("stage 2 is gone").report())])
    assert error == {"error": {"message": "stage 2 is gone", "type": "InternalServerError", "param": None, "code": 500}}


def test_a_completion_joins_the_deltas() -> None:
    reply = json.loads(completion(ENVELOPE, ANSWER, REQUEST))
    assert reply["object"] == "chat.completion"
    assert reply["choices"][0]["message"]["content"] == "né 🦜"
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["total_tokens"] == 7


def test_a_failed_completion_raises_what_failed() -> None:
    with pytest.raises(ContextLengthError, match="9000"):
        completion(ENVELOPE, [Failed(ContextLengthError("9000 tokens, context 8192").report())], REQUEST)
    with pytest.raises(EngineError):
        completion(ENVELOPE, [Delta(0, (1,), "half")], REQUEST)


CALLS: list[Event] = [
    Started(3),
    Delta(0, (1,), "", reasoning="two calls "),
    Delta(1, (2,), "", reasoning="then"),
    Delta(2, (3,), "Let me see. "),
    Delta(3, (4,), "", tool_calls=(ToolCallDelta(0, "call_a", "add", ""),)),
    Delta(4, (5,), "", tool_calls=(ToolCallDelta(0, arguments='{"a":'), ToolCallDelta(0, arguments="2}"))),
    Delta(6, (7,), "", tool_calls=(ToolCallDelta(1, "call_b", "sub", "{}"),)),
    Finished(FinishReason.TOOL_CALLS, Usage(3, 8, 1, 2)),
]


def test_a_call_tells_its_id_and_name_once_and_then_its_arguments() -> None:
    pieces = [piece for chunk in chunks(CALLS) for piece in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert pieces == [
        {"index": 0, "id": "call_a", "type": "function", "function": {"name": "add", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"a":'}},
        {"index": 0, "function": {"arguments": "2}"}},
        {"index": 1, "id": "call_b", "type": "function", "function": {"name": "sub", "arguments": "{}"}},
    ]
    assert chunks(CALLS)[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_thoughts_are_kept_apart_from_the_text() -> None:
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(CALLS)]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "two calls then"
    assert "".join(delta.get("content") or "" for delta in deltas) == "Let me see. "


def test_a_whole_answer_with_thoughts_and_calls() -> None:
    reply = json.loads(completion(ENVELOPE, CALLS, REQUEST))
    message = reply["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Let me see. ", "two calls then")
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "add", "arguments": '{"a":2}'},
        {"name": "sub", "arguments": "{}"},
    ]
    assert reply["usage"]["completion_tokens_details"] == {"reasoning_tokens": 2}
    assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": 1}


def test_calls_without_a_word_have_no_content() -> None:
    reply = json.loads(completion(ENVELOPE, [CALLS[4], CALLS[-1]], REQUEST))
    assert reply["choices"][0]["message"]["content"] is None


def likely(text: str, *others: str) -> TokenLogprobs:
    first, *rest = [Likelihood(1, each, tuple(each.encode()), -0.5) for each in (text, *others)]
    return TokenLogprobs(first, tuple(rest))


def test_the_layout_of_log_probabilities() -> None:
    events: list[Event] = [
        Delta(0, (1,), "né", logprobs=(likely("né", "né", "x"),)),
        Finished(FinishReason.STOP, Usage(1, 1)),
    ]
    expected = {
        "content": [
            {
                "token": "né",
                "logprob": -0.5,
                "bytes": [110, 195, 169],
                "top_logprobs": [
                    {"token": "né", "logprob": -0.5, "bytes": [110, 195, 169]},
                    {"token": "x", "logprob": -0.5, "bytes": [120]},
                ],
            }
        ],
        "refusal": None,
    }
    _, spoken, last = chunks(events)
    assert spoken["choices"][0]["logprobs"] == expected
    assert last["choices"][0]["logprobs"] is None
    reply = json.loads(completion(ENVELOPE, events, evolve(REQUEST, top_logprobs=2)))
    assert reply["choices"][0]["logprobs"] == expected


@pytest.mark.parametrize(
    ("reason", "told"),
    [(FinishReason.STOP, ["a", "half", "whole"]), (FinishReason.LENGTH, ["a", "half", "whole", "held"])],
)
def test_log_probabilities_go_with_their_text(reason: FinishReason, told: list[str]) -> None:
    events: list[Event] = [
        Delta(0, (9,), "", reasoning="hm", logprobs=(likely("thought"),)),
        Delta(1, (1,), "a", logprobs=(likely("a"),)),
        Delta(2, (2,), "", logprobs=(likely("half"),)),
        Delta(3, (3,), "é", logprobs=(likely("whole"),)),
        Delta(4, (4,), "", logprobs=(likely("held"),)),
        Finished(reason, Usage(1, 5)),
    ]
    streamed = [chunk["choices"][0]["logprobs"] or {"content": []} for chunk in chunks(events)]
    whole = json.loads(completion(ENVELOPE, events, evolve(REQUEST, top_logprobs=0)))["choices"][0]["logprobs"]
    assert [token["token"] for part in streamed for token in part["content"]] == told
    assert [token["token"] for token in whole["content"]] == told


SEVERAL: list[Event] = [
    Started(3),
    Delta(0, (1,), "zero", choice=0),
    Started(3),
    Delta(0, (1,), "one", choice=1),
    Finished(FinishReason.LENGTH, Usage(3, 1), choice=1),
    Delta(1, (2,), " more", choice=0),
    Finished(FinishReason.STOP, Usage(3, 3), choice=0),
]


def test_several_answers_side_by_side_end_once_each_and_then_together() -> None:
    stream = ChatStream(ENVELOPE, True, choices=2)
    lines = b"".join(stream.encode(event) for event in SEVERAL).decode().split("\n\n")[:-1]
    assert lines.index("data: [DONE]") == len(lines) - 1
    *told, usage = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    for index, (text, reason) in enumerate([("zero more", "stop"), ("one", "length")]):
        mine = [chunk["choices"][0] for chunk in told if chunk["choices"][0]["index"] == index]
        assert "".join(choice["delta"].get("content", "") for choice in mine) == text
        assert [choice["delta"].get("role") for choice in mine].count("assistant") == 1
        assert [choice["finish_reason"] for choice in mine] == [None] * (len(mine) - 1) + [reason]
    assert usage["usage"]["prompt_tokens"] == 3
    assert usage["usage"]["completion_tokens"] == 4


def test_several_whole_answers() -> None:
    reply = json.loads(completion(ENVELOPE, SEVERAL, REQUEST, 2))
    assert [(choice["index"], choice["message"]["content"]) for choice in reply["choices"]] == [
        (0, "zero more"),
        (1, "one"),
    ]
    assert reply["usage"]["total_tokens"] == 7
