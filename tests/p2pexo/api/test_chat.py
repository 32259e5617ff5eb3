"""Chat Completions bodies: what they mean, and what is wrong with them. Pure."""

import json
from typing import Any

import pytest

from p2pexo.api.chat import IGNORED, read_chat
from p2pexo.api.fields import Fields
from p2pexo.generation.errors import InvalidRequestError, ModelNotFoundError, UnsupportedParameterError
from p2pexo.generation.request import (
    FormatKind,
    OutputFormat,
    Request,
    Role,
    Sampling,
    Thinking,
    Tool,
    ToolChoice,
    ToolMode,
)
from p2pexo.models.card import Card

MESSAGES = [{"role": "user", "content": "hi"}]
CARD = Card("owner/Model", "1", "llama", 1, 1, 1, 1, 1, 1, 1)


def resolve(name: str) -> Card:
    if name != "model":
        raise ModelNotFoundError(f"no model {name!r}")
    return CARD


def read(**fields: Any) -> Request:
    return read_chat(Fields({"model": "model", "messages": MESSAGES, **fields}), resolve, "chatcmpl-1").request


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": SCHEMA, "strict": True}}


def choose(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


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
    "parallel_tool_calls",
    "reasoning_effort",
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
    ("n", 17),
    ("n", "2"),
    ("tool_choice", "always"),
    ("tool_choice", "required"),
    ("tool_choice", 5),
    ("parallel_tool_calls", "no"),
    ("reasoning_effort", "enormous"),
    ("reasoning_effort", 3),
    ("top_logprobs", 2),
    ("top_logprobs", -1),
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
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": "x"}}]},
            "tools[0].function.parameters",
        ),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type"),
        ({"tools": [ADD, ADD]}, "tools[1].function.name"),
        ({"tools": [ADD], "tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tools": [ADD], "tool_choice": choose("sub")}, "tool_choice.function.name"),
        ({"tool_choice": choose("add")}, "tool_choice.function.name"),
        ({"tools": [ADD], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.type"),
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
    ("functions", [{"name": "f"}]),
    ("function_call", {"name": "f"}),
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
    {"tool_choice": "auto"},
    {"parallel_tool_calls": True},
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


def test_a_tool_is_taken_over_with_its_schema_as_json_text() -> None:
    (tool,) = read(tools=[ADD]).tools
    assert (tool.name, tool.description, json.loads(tool.parameters)) == ("add", "adds", SCHEMA)
    assert read(tools=[{"function": {"name": "bare"}}]).tools == (Tool("bare"),)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tools": [ADD]}, ToolChoice()),
        ({"tools": [ADD], "tool_choice": "auto"}, ToolChoice(ToolMode.AUTO)),
        ({"tools": [ADD], "tool_choice": "none"}, ToolChoice(ToolMode.NONE)),
        ({"tools": [ADD], "tool_choice": "required"}, ToolChoice(ToolMode.REQUIRED)),
        ({"tools": [ADD], "tool_choice": choose("add")}, ToolChoice(ToolMode.NAMED, "add")),
        ({"tools": [ADD], "parallel_tool_calls": False}, ToolChoice(parallel=False)),
        ({"tool_choice": "none"}, ToolChoice(ToolMode.NONE)),
        ({"tool_choice": "auto", "tools": []}, ToolChoice()),
    ],
)
def test_how_the_model_chooses_among_tools(fields: dict[str, Any], expected: ToolChoice) -> None:
    assert read(**fields).tool_choice == expected


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"type": "text"}, OutputFormat()),
        ({"type": "json_object"}, OutputFormat(FormatKind.JSON_OBJECT)),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}, "strict": True}},
            OutputFormat(FormatKind.JSON_SCHEMA, '{"type":"object"}'),
        ),
    ],
)
def test_the_form_of_the_answer(form: Any, expected: OutputFormat) -> None:
    assert read(response_format=form).output_format == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"logprobs": False}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
    ],
)
def test_log_probabilities(fields: dict[str, Any], expected: int | None) -> None:
    assert read(**fields).top_logprobs == expected


@pytest.mark.parametrize(
    ("effort", "expected"),
    [("none", Thinking.OFF), ("minimal", Thinking.LOW), ("medium", Thinking.MEDIUM), ("xhigh", Thinking.HIGH)],
)
def test_effort_is_how_much_it_thinks(effort: str, expected: Thinking) -> None:
    assert read(reasoning_effort=effort).thinking is expected
    assert read().thinking is None


def test_each_of_several_answers_is_a_request_of_its_own() -> None:
    body = {"model": "model", "messages": MESSAGES, "n": 3, "seed": 5}
    requests = read_chat(Fields(body), resolve, "chatcmpl-1").requests
    assert [request.choice for request in requests] == [0, 1, 2]
    assert len({request.id for request in requests}) == 3
    assert {request.sampling.seed for request in requests} == {5}


def test_an_unknown_model_is_not_found() -> None:
    with pytest.raises(ModelNotFoundError):
        read(model="other")


def test_how_the_client_wants_to_hear_the_answer() -> None:
    body = {"model": "model", "messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}}
    call = read_chat(Fields(body), resolve, "chatcmpl-1")
    assert (call.stream, call.include_usage) == (True, True)
    assert call.request.messages[0].role is Role.USER
