"""Events as Chat Completions chunks, and as one completion. Pure."""

import json
from typing import Any

import pytest

from p2pexo.api.chat_wire import ChatStream, Envelope, completion
from p2pexo.generation.errors import ContextLengthError, EngineError
from p2pexo.generation.events import Delta, Event, Failed, Finished, FinishReason, Progress, Started, Usage, Waiting

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
    assert last["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


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
    reply = json.loads(completion(ENVELOPE, ANSWER))
    assert reply["object"] == "chat.completion"
    assert reply["choices"][0]["message"]["content"] == "né 🦜"
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["total_tokens"] == 7


def test_a_failed_completion_raises_what_failed() -> None:
    with pytest.raises(ContextLengthError, match="9000"):
        completion(ENVELOPE, [Failed(ContextLengthError("9000 tokens, context 8192").report())])
    with pytest.raises(EngineError):
        completion(ENVELOPE, [Delta(0, (1,), "half")])
