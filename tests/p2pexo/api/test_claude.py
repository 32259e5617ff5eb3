"""Claude Messages bodies: what they mean, and what is wrong with them. Pure."""

from typing import Any

import pytest

from p2pexo.api.claude import HONOURED, IGNORED, NOT_OFFERED, ClaudeCall, read_count, read_message
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

CARD = Card("owner/Model", "1", "llama", 1, 1, 1, 1, 1, 1, 1)
BODY: dict[str, Any] = {"model": "model", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
TOOL = {"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}


def resolve(name: str) -> Card:
    if name != "model":
        raise ModelNotFoundError(f"no model {name!r}", param="model")
    return CARD


def call(**fields: Any) -> ClaudeCall:
    return read_message(Fields(BODY | fields), resolve, "msg_1")


def read(**fields: Any) -> Request:
    return call(**fields).request


def test_defaults() -> None:
    request = read()
    assert (request.id, request.model, request.max_tokens, request.stop) == ("msg_1", "owner/Model", 9, ())
    assert request.sampling == Sampling()
    assert request.thinking is Thinking.OFF
    assert (call().stream, call().show_thinking) == (False, True)


def test_null_is_the_same_as_absent() -> None:
    optional = (HONOURED | IGNORED | set(NOT_OFFERED) | {"container", "something_new"}) - set(BODY)
    assert call(**dict.fromkeys(optional)) == call()


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_what_changes_nothing_is_ignored(name: str) -> None:
    assert call(**{name: {"type": "anything"}}) == call()


def test_sampling_and_stops_are_taken_over() -> None:
    request = read(temperature=0, top_p=0.5, top_k=40, stop_sequences=["a", "b"], stream=True)
    assert request.sampling == Sampling(0.0, 0.5, 40)
    assert request.stop == ("a", "b")


@pytest.mark.parametrize(
    ("thinking", "effort", "expected"),
    [
        (None, None, Thinking.OFF),
        ({"type": "disabled"}, "high", Thinking.OFF),
        ({"type": "adaptive"}, None, None),
        ({"type": "adaptive"}, "low", Thinking.LOW),
        ({"type": "adaptive"}, "xhigh", Thinking.HIGH),
        ({"type": "adaptive"}, "max", Thinking.HIGH),
        ({"type": "enabled", "budget_tokens": 1024}, None, Thinking.LOW),
        ({"type": "enabled", "budget_tokens": 10_000}, None, Thinking.MEDIUM),
        ({"type": "enabled", "budget_tokens": 32_000}, None, Thinking.HIGH),
    ],
)
def test_thinking(thinking: Any, effort: Any, expected: Thinking | None) -> None:
    assert read(thinking=thinking, output_config={"effort": effort}).thinking is expected


def test_thoughts_can_be_omitted() -> None:
    assert not call(thinking={"type": "adaptive", "display": "omitted"}).show_thinking


def test_tools() -> None:
    request = read(tools=[TOOL, {"type": "custom", "name": "b", "input_schema": {}, "cache_control": None}])
    assert request.tools == (Tool("add", "Adds.", '{"type":"object"}'), Tool("b", "", "{}"))
    assert request.tool_choice == ToolChoice()


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, ToolChoice()),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice(parallel=False)),
        ({"type": "any"}, ToolChoice(ToolMode.REQUIRED)),
        ({"type": "none"}, ToolChoice(ToolMode.NONE)),
        ({"type": "tool", "name": "add"}, ToolChoice(ToolMode.NAMED, "add")),
    ],
)
def test_tool_choice(choice: Any, expected: ToolChoice) -> None:
    assert read(tools=[TOOL], tool_choice=choice).tool_choice == expected


@pytest.mark.parametrize("kind", ["none", "auto"])
def test_a_choice_without_tools_that_asks_for_none(kind: str) -> None:
    assert read(tool_choice={"type": kind}).tools == ()


def test_the_output_format() -> None:
    form = {"type": "json_schema", "schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}}
    expected = OutputFormat(FormatKind.JSON_SCHEMA, '{"type":"object","properties":{"ok":{"type":"boolean"}}}')
    assert read(output_config={"format": form}).output_format == expected
    assert read(output_config={"format": None}).output_format == OutputFormat()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"messages": "hi"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"temperature": 1.5}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"stop_sequences": [5]}, "stop_sequences[0]"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"stream": 1}, "stream"),
        ({"thinking": True}, "thinking"),
        ({"thinking": {"type": "deep"}}, "thinking.type"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "adaptive", "display": "loud"}}, "thinking.display"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "json"}}}, "output_config.format.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"tools": "hammer"}, "tools"),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"name": "<|im_end|>", "input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tools": [TOOL, TOOL]}, "tools[1].name"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": {"type": "maybe"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "any"}}, "tools"),
        ({"tool_choice": {"type": "tool", "name": "x"}, "tools": [TOOL]}, "tool_choice.name"),
        ({"tool_choice": {"type": "tool"}, "tools": [TOOL]}, "tool_choice.name"),
        ({"messages": [*BODY["messages"], {"role": "assistant", "content": "Sure,"}]}, "messages"),
    ],
    ids=repr,
)
def test_a_bad_value_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        call(**fields)
    assert refusal.value.param == param
    assert param.rpartition(".")[2] in str(refusal.value)
    assert not isinstance(refusal.value, UnsupportedParameterError)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"container": "c1"}, "container"),
        ({"mcp_servers": [{"type": "url"}]}, "mcp_servers"),
        ({"seed": 1}, "seed"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [TOOL, {"type": "bash_20250124", "name": "bash"}]}, "tools[1].type"),
    ],
    ids=repr,
)
def test_what_is_not_offered_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(UnsupportedParameterError) as refusal:
        call(**fields)
    assert refusal.value.param == param


@pytest.mark.parametrize("fields", [{"mcp_servers": []}, {"fallbacks": []}, {"tools": []}])
def test_what_is_empty_asks_for_nothing(fields: dict[str, Any]) -> None:
    assert call(**fields) == call()


def test_an_unknown_model_is_not_found() -> None:
    with pytest.raises(ModelNotFoundError):
        call(model="claude-opus")
    with pytest.raises(ModelNotFoundError):
        call(model=None)


def test_a_count_is_the_same_message_without_an_answer() -> None:
    body = {name: value for name, value in BODY.items() if name != "max_tokens"} | {"tools": [TOOL], "system": "S"}
    counted = read_count(Fields(body), resolve, "msg_1")
    asked = read(tools=[TOOL], system="S")
    assert counted.max_tokens == 0
    assert (counted.messages, counted.tools) == (asked.messages, asked.tools)


def test_a_count_may_end_with_the_assistant() -> None:
    messages = [*BODY["messages"], {"role": "assistant", "content": "Sure,"}]
    assert read_count(Fields(BODY | {"messages": messages}), resolve, "msg_1").messages[-1].role is Role.ASSISTANT
