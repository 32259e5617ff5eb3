"""Responses bodies: what they mean, and what is wrong with them. Pure."""

import json
from typing import Any

import pytest

from p2pexo.api.chat import EFFORTS
from p2pexo.api.fields import Fields
from p2pexo.api.responses import IGNORED, INCLUDABLE, LOGPROBS, Recalled, ResponsesCall, read_responses
from p2pexo.api.responses_items import references
from p2pexo.generation.errors import InvalidRequestError, ModelNotFoundError, UnsupportedParameterError
from p2pexo.generation.request import (
    FormatKind,
    Message,
    OutputFormat,
    Request,
    Role,
    Sampling,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
)
from p2pexo.generation.text import Prompt
from p2pexo.models.card import Card

CARD = Card("owner/Model", "1", "llama", 1, 1, 1, 1, 1, 1, 1)
WEATHER = {"type": "function", "name": "weather", "description": "d", "parameters": {"type": "object"}}
CLOCK = {"type": "function", "name": "clock"}
USER, ASSISTANT, SYSTEM, TOOL = Role.USER, Role.ASSISTANT, Role.SYSTEM, Role.TOOL


def resolve(name: str) -> Card:
    if name != "model":
        raise ModelNotFoundError(f"no model {name!r}")
    return CARD


def call(recalled: Recalled | None = None, **fields: Any) -> ResponsesCall:
    return read_responses(Fields({"model": "model", "input": "hi", **fields}), resolve, "resp_1", recalled)


def read(**fields: Any) -> Request:
    return call(**fields).request


def say(*items: Any) -> tuple[Message, ...]:
    return read(input=list(items)).messages


OPTIONAL = sorted(
    IGNORED
    | {
        "instructions",
        "previous_response_id",
        "store",
        "stream",
        "include",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "text",
        "reasoning",
        "temperature",
        "top_p",
        "presence_penalty",
        "frequency_penalty",
        "seed",
        "max_output_tokens",
        "top_logprobs",
        "metadata",
        "truncation",
        "background",
        "conversation",
        "something_new",
    }
)


def test_null_is_the_same_as_absent() -> None:
    assert call(**dict.fromkeys(OPTIONAL)) == call()


def test_defaults_are_those_of_the_openai_api() -> None:
    asked = call()
    assert asked.request == Request("resp_1", "owner/Model", (Message(USER, "hi"),))
    assert asked.request.sampling == Sampling()
    assert asked.asked.store
    assert not asked.stream


def test_what_is_honoured_is_taken_over() -> None:
    request = read(temperature=0, top_p=0.5, presence_penalty=1, frequency_penalty=-1, seed=7, max_output_tokens=9)
    assert request.sampling == Sampling(0.0, 0.5, presence_penalty=1.0, frequency_penalty=-1.0, seed=7)
    assert request.max_tokens == 9


@pytest.mark.parametrize("effort", sorted(EFFORTS))
def test_every_effort_is_understood(effort: str) -> None:
    assert read(reasoning={"effort": effort, "summary": "auto"}).thinking is EFFORTS[effort]


def test_no_effort_leaves_it_to_the_model() -> None:
    assert read(reasoning={"summary": "auto"}).thinking is None
    assert read(reasoning={"effort": "none"}).thinking is Thinking.OFF


class TestItems:
    def test_a_string_is_what_the_user_says(self) -> None:
        assert read(input="hello").messages == (Message(USER, "hello"),)

    def test_an_item_without_type_is_a_message(self) -> None:
        assert say({"role": "user", "content": "A"}) == (Message(USER, "A"),)

    @pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
    def test_parts_are_joined_in_order(self, role: str) -> None:
        parts = [{"type": "input_text", "text": "A"}, {"type": "output_text", "text": "B", "annotations": []}]
        (message,) = say({"type": "message", "role": role, "content": parts})
        assert message.content == "AB"

    def test_an_empty_list_of_parts_is_empty_text(self) -> None:
        assert say({"role": "user", "content": []}) == (Message(USER, ""),)

    def test_instructions_lead_and_developer_items_stay_where_they_are(self) -> None:
        developer = {"role": "developer", "content": "be brief"}
        asked = call(instructions="be kind", input=[{"role": "user", "content": "U"}, developer])
        assert asked.request.messages == (Message(SYSTEM, "be kind"), *asked.conversation)
        assert asked.conversation == (Message(USER, "U"), Message(SYSTEM, "be brief"))

    def test_the_items_of_one_turn_become_one_message(self) -> None:
        messages = say(
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "think"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "let me see"}]},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": '{"a":1}'},
            {"type": "function_call", "call_id": "c2", "name": "clock", "arguments": ""},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "noon"}]},
        )
        calls = (ToolCall("c1", "weather", '{"a":1}'), ToolCall("c2", "clock", ""))
        assert messages == (
            Message(ASSISTANT, "let me see", calls, reasoning=Prompt("think")),
            Message(TOOL, "sunny", tool_call_id="c1"),
            Message(TOOL, "noon", tool_call_id="c2"),
        )

    def test_turns_that_follow_each_other_stay_apart(self) -> None:
        said = [{"role": "assistant", "content": "one"}, {"role": "assistant", "content": "two"}]
        assert [message.content for message in say(*said)] == ["one", "two"]

    def test_thoughts_are_preferred_to_their_summary_and_what_is_encrypted_is_left_out(self) -> None:
        (message,) = say(
            {
                "type": "reasoning",
                "id": "rs",
                "summary": [{"type": "summary_text", "text": "short"}],
                "content": [{"type": "reasoning_text", "text": "long"}],
                "encrypted_content": "gAAAA",
            }
        )
        assert message == Message(ASSISTANT, "", reasoning=Prompt("long"))

    def test_a_reasoning_item_without_text_says_nothing(self) -> None:
        encrypted = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gAAAA"}
        assert say(encrypted, {"role": "user", "content": "U"}) == (Message(USER, "U"),)

    def test_a_reference_brings_the_item_it_names(self) -> None:
        item = Fields({"id": "msg_1_0", "type": "message", "role": "assistant", "content": "said"})
        body = [{"type": "item_reference", "id": "msg_1_0"}, {"role": "user", "content": "and?"}]
        messages = call(Recalled(items={"msg_1_0": item}), input=body).request.messages
        assert messages == (Message(ASSISTANT, "said"), Message(USER, "and?"))
        assert references(Fields({"input": body})) == ("msg_1_0",)

    def test_the_earlier_conversation_comes_first(self) -> None:
        earlier = (Message(USER, "A"), Message(ASSISTANT, "B"))
        asked = call(Recalled(earlier), previous_response_id="resp_0", input="C")
        assert asked.request.messages == asked.conversation == (*earlier, Message(USER, "C"))
        assert asked.asked.previous_response_id == "resp_0"

    @pytest.mark.parametrize(
        ("item", "param"),
        [
            ({"type": "telepathy"}, "input[0].type"),
            ({"type": "computer_call_output"}, "input[0].type"),
            ({"type": 5}, "input[0].type"),
            ({"role": "tool", "content": "x"}, "input[0].role"),
            ({"role": "user"}, "input[0].content"),
            ({}, "input[0].role"),
            ({"role": "user", "content": [{"type": "smell"}]}, "input[0].content[0].type"),
            ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0].text"),
            ({"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}, "input[0].content[0].type"),
            ({"type": "function_call", "name": "f", "arguments": "{}"}, "input[0].call_id"),
            ({"type": "function_call_output", "output": "x"}, "input[0].call_id"),
            ({"type": "function_call_output", "call_id": "c"}, "input[0].output"),
            ({"type": "item_reference", "id": "msg_9"}, "input[0].id"),
            ("text", "input[0]"),
        ],
    )
    def test_a_wrong_item_is_named(self, item: Any, param: str) -> None:
        with pytest.raises(InvalidRequestError) as caught:
            read(input=[item])
        assert caught.value.param == param

    def test_an_unknown_type_of_item_is_named_in_words(self) -> None:
        with pytest.raises(InvalidRequestError, match="'telepathy'"):
            read(input=[{"type": "telepathy"}])


class TestTools:
    def test_functions_are_honoured_and_other_tools_ignored(self) -> None:
        others = [{"type": kind} for kind in ("custom", "web_search", "namespace", "mcp", "local_shell", "new_thing")]
        asked = call(tools=[*others, WEATHER])
        assert asked.request.tools == (Tool("weather", "d", '{"type":"object"}'),)
        (repeated,) = asked.asked.toolbox.repeated_tools
        assert repeated == {**WEATHER, "strict": False}

    @pytest.mark.parametrize(
        ("choice", "expected"),
        [
            (None, ToolChoice()),
            ("auto", ToolChoice()),
            ("none", ToolChoice(ToolMode.NONE)),
            ("required", ToolChoice(ToolMode.REQUIRED)),
            ({"type": "function", "name": "clock"}, ToolChoice(ToolMode.NAMED, "clock")),
        ],
    )
    def test_the_choice_is_read(self, choice: Any, expected: ToolChoice) -> None:
        assert read(tools=[WEATHER, CLOCK], tool_choice=choice).tool_choice == expected

    def test_none_is_fine_without_tools(self) -> None:
        assert read(tool_choice="none").tool_choice.mode is ToolMode.NONE

    def test_one_call_at_a_time(self) -> None:
        assert not read(tools=[CLOCK], parallel_tool_calls=False).tool_choice.parallel

    def test_allowed_tools_leave_the_others_out(self) -> None:
        choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "clock"}]}
        request = read(tools=[WEATHER, CLOCK], tool_choice=choice)
        assert [tool.name for tool in request.tools] == ["clock"]
        assert request.tool_choice.mode is ToolMode.REQUIRED

    @pytest.mark.parametrize(
        ("choice", "param"),
        [
            ("sometimes", "tool_choice"),
            ({"type": "function", "name": "nobody"}, "tool_choice.name"),
            ({"type": "web_search"}, "tool_choice.type"),
            ({"type": "allowed_tools", "tools": [{"type": "function", "name": "x"}]}, "tool_choice.tools[0].name"),
            (5, "tool_choice"),
        ],
    )
    def test_a_choice_that_can_not_be_met_is_refused(self, choice: Any, param: str) -> None:
        with pytest.raises(InvalidRequestError) as caught:
            read(tools=[CLOCK], tool_choice=choice)
        assert caught.value.param == param

    def test_a_call_can_not_be_required_without_a_function(self) -> None:
        with pytest.raises(InvalidRequestError, match="no function to call"):
            read(tools=[{"type": "web_search"}], tool_choice="required")


class TestTextFormat:
    def test_plain_text_is_the_default(self) -> None:
        assert read(text={}).output_format == OutputFormat()
        assert call(text={"verbosity": "low"}).asked.text.repeated == {"format": {"type": "text"}, "verbosity": "low"}

    def test_a_json_object(self) -> None:
        assert read(text={"format": {"type": "json_object"}}).output_format.kind is FormatKind.JSON_OBJECT

    def test_a_schema_is_taken_and_repeated(self) -> None:
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
        form = {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
        asked = call(text={"format": form})
        assert asked.request.output_format.kind is FormatKind.JSON_SCHEMA
        assert json.loads(asked.request.output_format.schema) == schema
        assert asked.asked.text.repeated == {"format": {**form, "description": None}}

    @pytest.mark.parametrize(
        ("form", "param"),
        [
            ({"type": "xml"}, "text.format.type"),
            ({"type": "json_schema", "name": "x"}, "text.format.schema"),
            ({"type": "json_schema", "schema": {}}, "text.format.name"),
            ("json", "text.format"),
        ],
    )
    def test_a_wrong_format_is_named(self, form: Any, param: str) -> None:
        with pytest.raises(InvalidRequestError) as caught:
            read(text={"format": form})
        assert caught.value.param == param


class TestLogprobs:
    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({}, None),
            ({"top_logprobs": 0}, None),
            ({"top_logprobs": 3}, 3),
            ({"include": [LOGPROBS]}, 0),
            ({"include": [LOGPROBS], "top_logprobs": 2}, 2),
            ({"include": sorted(INCLUDABLE - {LOGPROBS})}, None),
        ],
    )
    def test_they_come_when_asked_for(self, fields: dict[str, Any], expected: int | None) -> None:
        assert read(**fields).top_logprobs == expected

    def test_an_unknown_inclusion_is_refused(self) -> None:
        with pytest.raises(InvalidRequestError, match="'everything'"):
            read(include=["everything"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input", []),
        ("input", 5),
        ("input", None),
        ("instructions", 5),
        ("temperature", -0.5),
        ("temperature", "hot"),
        ("top_p", 0),
        ("max_output_tokens", 0),
        ("max_output_tokens", 1.5),
        ("top_logprobs", 21),
        ("stream", "yes"),
        ("store", 1),
        ("truncation", "sometimes"),
        ("metadata", {str(number): "x" for number in range(17)}),
        ("previous_response_id", 5),
        ("tools", {}),
    ],
)
def test_a_bad_value_names_its_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read(**{field: value})
    assert caught.value.param == field


@pytest.mark.parametrize(
    ("field", "value"),
    [("background", True), ("conversation", "conv_1"), ("prompt", {"id": "pmpt_1"}), ("something_new", 1)],
)
def test_what_is_not_offered_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(UnsupportedParameterError) as caught:
        read(**{field: value})
    assert caught.value.param == field


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_what_is_ignored_changes_nothing(name: str) -> None:
    value = "text" if name in ("safety_identifier", "prompt_cache_key") else {"any": "thing"}
    assert read(**{name: value}) == read()


def test_a_prompt_is_never_cut() -> None:
    assert read(truncation="auto") == read(truncation="disabled") == read()


def test_an_unknown_model_is_not_found() -> None:
    with pytest.raises(ModelNotFoundError):
        read(model="other")


def test_nothing_long_gets_into_a_log() -> None:
    long = "x" * 100_000
    asked = call(instructions=long, input=[{"role": "user", "content": long}])
    assert len(repr(asked)) < 4_000
    assert asked.asked.instructions == long
