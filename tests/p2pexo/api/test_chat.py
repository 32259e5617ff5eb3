"""Chat Completions bodies: what they mean, and what is wrong with them. Pure."""

from typing import Any

import pytest

from p2pexo.api.chat import IGNORED, read_chat
from p2pexo.api.fields import Fields
from p2pexo.generation.errors import InvalidRequestError, ModelNotFoundError, UnsupportedParameterError
from p2pexo.generation.request import Request, Role, Sampling
from p2pexo.models.card import Card

MESSAGES = [{"role": "user", "content": "hi"}]
CARD = Card("owner/Model", "1", "llama", 1, 1, 1, 1, 1, 1, 1)


def resolve(name: str) -> Card:
    if name != "model":
        raise ModelNotFoundError(f"no model {name!r}")
    return CARD


def read(**fields: Any) -> Request:
    return read_chat(Fields({"model": "model", "messages": MESSAGES, **fields}), resolve, "chatcmpl-1").request


OPTIONAL = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "stop",
    "max_tokens",
    "max_completion_tokens",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "response_format",
    "n",
    "logprobs",
    "top_logprobs",
    "modalities",
    "audio",
    "web_search_options",
    "user",
    "metadata",
    "store",
    "service_tier",
    "something_new",
]


def test_null_is_the_same_as_absent() -> None:
    assert read(**dict.fromkeys(OPTIONAL)) == read()


def test_defaults_are_those_of_the_openai_api() -> None:
    request = read()
    assert request.sampling == Sampling()
    assert (request.id, request.model, request.max_tokens, request.stop) == ("chatcmpl-1", "owner/Model", None, ())


def test_sampling_is_taken_over() -> None:
    sampling = {
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 40,
        "min_p": 0.1,
        "seed": -7,
        "frequency_penalty": 1,
        "presence_penalty": -2,
        "repetition_penalty": 1.1,
    }
    expected = Sampling(0.0, 0.5, 40, 0.1, 1.0, -2.0, 1.1, ((5, -100.0), (7, 2.5)), -7)
    assert read(**sampling, logit_bias={"5": -100, "7": 2.5}).sampling == expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 4}, 4),
        ({"max_tokens": 5, "max_completion_tokens": 4}, 4),
        ({"max_tokens": 5, "max_completion_tokens": None}, 5),
    ],
)
def test_max_completion_tokens_wins(limits: dict[str, Any], expected: int) -> None:
    assert read(**limits).max_tokens == expected


@pytest.mark.parametrize(("stop", "expected"), [("x", ("x",)), (["a", "b"], ("a", "b")), ([], ())])
def test_stop_is_a_string_or_a_list(stop: Any, expected: tuple[str, ...]) -> None:
    assert read(stop=stop).stop == expected


BAD_VALUES = [
    ("temperature", -0.5),
    ("temperature", 99),
    ("temperature", "hot"),
    ("temperature", True),
    ("top_p", 0),
    ("top_p", 2),
    ("top_k", -1),
    ("top_k", 1.5),
    ("min_p", 1.5),
    ("seed", "x"),
    ("seed", 0.5),
    ("seed", 2**64),
    ("frequency_penalty", 3),
    ("presence_penalty", -3),
    ("repetition_penalty", 0),
    ("logit_bias", [1]),
    ("stop", 5),
    ("stop", list("abcde")),
    ("stop", ""),
    ("stop", {"a": 1}),
    ("messages", "hi"),
    ("messages", []),
    ("messages", None),
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", 1.5),
    ("max_tokens", "5"),
    ("max_completion_tokens", 0),
    ("max_completion_tokens", "5"),
    ("stream", "yes"),
    ("stream", 1),
    ("stream_options", True),
    ("model", 5),
    ("tools", "hammer"),
    ("n", 0),
    ("n", "2"),
    ("logprobs", 1),
    ("top_logprobs", 21),
    ("response_format", "json"),
    ("modalities", "text"),
]


@pytest.mark.parametrize(("name", "value"), BAD_VALUES, ids=repr)
def test_a_bad_value_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=name) as refusal:
        read(**{name: value})
    assert refusal.value.param == name
    assert not isinstance(refusal.value, UnsupportedParameterError)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stop": [1]}, "stop[0]"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
    ],
)
def test_a_bad_value_inside_is_named_by_its_path(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        read(**fields)
    assert refusal.value.param == param


def test_the_message_tells_the_value_and_the_range() -> None:
    with pytest.raises(InvalidRequestError, match="temperature: expected a number from 0 to 2, got 99"):
        read(temperature=99)
    with pytest.raises(InvalidRequestError, match="top_p: expected a number above 0, up to 1, got 0"):
        read(top_p=0)


NOT_OFFERED = [
    ("tools", [{"type": "function", "function": {"name": "f"}}]),
    ("tool_choice", "required"),
    ("tool_choice", {"type": "function", "function": {"name": "f"}}),
    ("functions", [{"name": "f"}]),
    ("function_call", {"name": "f"}),
    ("response_format", {"type": "json_object"}),
    ("response_format", {}),
    ("n", 2),
    ("logprobs", True),
    ("top_logprobs", 3),
    ("modalities", ["text", "audio"]),
    ("audio", {"voice": "x"}),
    ("web_search_options", {}),
    ("guided_regex", "a+"),
]


@pytest.mark.parametrize(("name", "value"), NOT_OFFERED, ids=repr)
def test_what_is_not_offered_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UnsupportedParameterError, match=name) as refusal:
        read(**{name: value})
    assert refusal.value.param == name


HARMLESS = [
    {"tools": []},
    {"tools": [{"type": "function"}], "tool_choice": "none"},
    {"tool_choice": "none"},
    {"tool_choice": "auto"},
    {"functions": []},
    {"response_format": {"type": "text"}},
    {"n": 1},
    {"logprobs": False},
    {"top_logprobs": 0},
    {"modalities": ["text"]},
    *({name: "anything"} for name in sorted(IGNORED)),
]


@pytest.mark.parametrize("fields", HARMLESS, ids=repr)
def test_what_changes_nothing_is_ignored(fields: dict[str, Any]) -> None:
    assert read(**fields) == read()


def test_an_unknown_model_is_not_found() -> None:
    with pytest.raises(ModelNotFoundError):
        read(model="other")


def test_how_the_client_wants_to_hear_the_answer() -> None:
    body = {"model": "model", "messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}}
    call = read_chat(Fields(body), resolve, "chatcmpl-1")
    assert (call.stream, call.include_usage) == (True, True)
    assert call.request.messages[0].role is Role.USER
