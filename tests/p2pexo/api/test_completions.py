"""Legacy Completions: bodies, chunks, whole answers. Pure."""

import json
from typing import Any

import pytest

from p2pexo.api.chat_wire import Envelope
from p2pexo.api.completions import IGNORED, CompletionCall, read_completion
from p2pexo.api.completions_wire import CompletionStream, legacy_logprobs, whole_completion
from p2pexo.api.fields import Fields
from p2pexo.generation.errors import EngineError, InvalidRequestError, UnsupportedParameterError
from p2pexo.generation.events import (
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    Likelihood,
    Started,
    TokenLogprobs,
    Usage,
)
from p2pexo.models.card import Card

CARD = Card("owner/Model", "1", "llama", 1, 1, 1, 1, 1, 1, 1)
ENVELOPE = Envelope("cmpl-1", 1700000000, "owner/Model")


def read(**fields: Any) -> CompletionCall:
    return read_completion(Fields({"model": "m", "prompt": "Once", **fields}), lambda _: CARD, "cmpl-1")


def test_a_prompt_goes_to_the_model_as_it_stands() -> None:
    (request,) = read(max_tokens=5, temperature=0, stop="x", logprobs=3).requests
    assert (request.raw_prompt, request.messages) == ("Once", ())
    assert (request.max_tokens, request.sampling.temperature, request.stop) == (5, 0.0, ("x",))
    assert request.top_logprobs == 3


def test_every_prompt_of_a_list_gets_its_answers() -> None:
    requests = read(prompt=["a", "b"], n=2).requests
    assert [(request.raw_prompt, request.choice) for request in requests] == [("a", 0), ("a", 1), ("b", 2), ("b", 3)]
    assert len({request.id for request in requests}) == 4


def test_an_echo_stands_before_each_answer() -> None:
    assert read(prompt=["a", "b"], n=2, echo=True).echoes == ("a", "a", "b", "b")
    assert read(prompt=["a", "b"]).echoes == ("", "")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": [1, 2]}, "prompt[0]"),
        ({"prompt": [[1, 2]]}, "prompt[0]"),
        ({"prompt": 5}, "prompt"),
        ({"n": 17}, "n"),
        ({"n": 16, "prompt": ["a"] * 5}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"echo": "yes"}, "echo"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        read(**fields)
    assert refusal.value.param == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "the end"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"echo": True, "logprobs": 0}, "echo"),
        ({"messages": []}, "messages"),
    ],
)
def test_what_is_not_offered_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(UnsupportedParameterError) as refusal:
        read(**fields)
    assert refusal.value.param == param


@pytest.mark.parametrize(
    "fields", [{"suffix": ""}, {"best_of": 1}, {"suffix": None}, *({name: "x"} for name in sorted(IGNORED))], ids=repr
)
def test_what_changes_nothing_is_ignored(fields: dict[str, Any]) -> None:
    assert read(**fields) == read()


EVENTS: list[Event] = [
    Started(3),
    Delta(0, (1,), " upon", choice=0),
    Delta(0, (1,), " twice", choice=1),
    Finished(FinishReason.STOP, Usage(4, 2), choice=1),
    Delta(1, (2,), " a", choice=0),
    Finished(FinishReason.LENGTH, Usage(3, 2), choice=0),
]


def chunks(stream: CompletionStream, events: list[Event]) -> list[dict[str, Any]]:
    lines = b"".join(stream.encode(event) for event in events).decode().split("\n\n")[:-1]
    assert lines.index("data: [DONE]") == len(lines) - 1
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_a_stream_of_two_prompts() -> None:
    *told, usage = chunks(CompletionStream(ENVELOPE, ("Once", ""), include_usage=True), EVENTS)
    assert {chunk["object"] for chunk in told} == {"text_completion"}
    for index, text, reason in [(0, "Once upon a", "length"), (1, " twice", "stop")]:
        mine = [chunk["choices"][0] for chunk in told if chunk["choices"][0]["index"] == index]
        assert "".join(choice["text"] for choice in mine) == text
        assert [choice["finish_reason"] for choice in mine] == [None] * (len(mine) - 1) + [reason]
    assert usage["choices"] == []
    assert (usage["usage"]["prompt_tokens"], usage["usage"]["completion_tokens"]) == (7, 4)


def test_an_echo_is_told_even_when_nothing_follows() -> None:
    (only,) = chunks(CompletionStream(ENVELOPE, ("Once",)), [Finished(FinishReason.STOP, Usage(1, 1))])
    assert only["choices"][0] == {"index": 0, "text": "Once", "logprobs": None, "finish_reason": "stop"}


def test_a_whole_answer_to_two_prompts() -> None:
    reply = json.loads(whole_completion(ENVELOPE, EVENTS, ("Once", "")))
    assert [(choice["index"], choice["text"]) for choice in reply["choices"]] == [(0, "Once upon a"), (1, " twice")]
    assert reply["usage"]["total_tokens"] == 11


def test_a_failure_is_an_error_event_or_an_exception() -> None:
    failed = Failed(EngineError("gone").report())
    (error,) = chunks(CompletionStream(ENVELOPE), [failed])
    assert error["error"]["message"] == "gone"
    with pytest.raises(EngineError):
        whole_completion(ENVELOPE, [failed])


def likely(text: str, *others: str) -> TokenLogprobs:
    first, *rest = [Likelihood(1, each, tuple(each.encode()), -0.5) for each in (text, *others)]
    return TokenLogprobs(first, tuple(rest))


def test_the_layout_of_log_probabilities_is_the_old_one() -> None:
    assert legacy_logprobs([likely(" né", " né", "x"), likely("!")], 4) == {
        "tokens": [" né", "!"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{" né": -0.5, "x": -0.5}, {}],
        "text_offset": [4, 7],
    }


def test_the_offsets_of_a_stream_go_on() -> None:
    events: list[Event] = [
        Delta(0, (1,), "ab", logprobs=(likely("ab"),)),
        Delta(1, (2,), "c", logprobs=(likely("c"),)),
        Finished(FinishReason.STOP, Usage(1, 3)),
    ]
    told = [chunk["choices"][0]["logprobs"] for chunk in chunks(CompletionStream(ENVELOPE), events)]
    assert [part["text_offset"] for part in told if part] == [[0], [2]]
    whole = json.loads(whole_completion(ENVELOPE, events))["choices"][0]["logprobs"]
    assert whole["text_offset"] == [0, 2]
