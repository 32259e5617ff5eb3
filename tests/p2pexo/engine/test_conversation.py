import json
from typing import Any

import pytest

from p2pexo.engine.conversation import Conversation, conversation
from p2pexo.engine.parsers.families import FAMILIES, GENERIC, Family
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import (
    FormatKind,
    Message,
    OutputFormat,
    PicturePart,
    Request,
    Role,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
)
from p2pexo.generation.text import Prompt

CLOCK = Tool("clock", "What time it is", '{"type": "object", "properties": {"zone": {"type": "string"}}}')
CLOCK_SHOWN = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "What time it is",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
    },
}
QUESTION = Message(Role.USER, "When?")
CALLS = Message(
    Role.ASSISTANT,
    "Let me look.",
    (ToolCall("call_1", "clock", '{"zone": "é"}'), ToolCall("call_2", "clock", "{}")),
    reasoning=Prompt("Hm."),
)
RESULTS = (Message(Role.TOOL, "12", tool_call_id="call_1"), Message(Role.TOOL, "13", tool_call_id="call_2"))


def family(name: str) -> Family:
    return next(each for each in (*FAMILIES, GENERIC) if each.name == name)


def talk(*messages: Message, to: str = "hermes", **changes: Any) -> Conversation:
    return conversation(Request("r1", "a/b", messages or (QUESTION,), **changes), family(to))


def test_tools_are_shown_to_a_template_that_knows_them() -> None:
    assert talk(tools=(CLOCK,)).tools == [CLOCK_SHOWN]
    assert talk(tools=(CLOCK,), tool_choice=ToolChoice(ToolMode.NONE)).tools == []


@pytest.mark.parametrize("parameters", ["{", "[]", "3"])
def test_parameters_that_are_no_object_are_named(parameters: str) -> None:
    with pytest.raises(InvalidRequestError, match="clock") as caught:
        talk(tools=(Tool("clock", parameters=parameters),))
    assert caught.value.param == "tools"


def test_calls_results_and_thoughts_keep_their_place() -> None:
    _, calls, first, second = talk(QUESTION, CALLS, *RESULTS).messages
    assert calls["reasoning_content"] == "Hm."
    assert "thinking" not in calls
    assert [call["id"] for call in calls["tool_calls"]] == ["call_1", "call_2"]
    assert calls["tool_calls"][0]["function"] == {"name": "clock", "arguments": {"zone": "é"}}
    assert first == {"role": "tool", "content": "12", "tool_call_id": "call_1", "name": "clock"}
    assert second["tool_call_id"] == "call_2"


def test_arguments_read_as_json_where_a_template_takes_them_for_text() -> None:
    arguments = talk(CALLS).messages[0]["tool_calls"][0]["function"]["arguments"]
    assert "a" + arguments + "b" == 'a{"zone": "é"}b'
    assert json.loads(str(arguments)) == arguments


@pytest.mark.parametrize("text", ["not json", "[1]", "3"])
def test_arguments_that_are_no_object_are_passed_on_as_text(text: str) -> None:
    message = Message(Role.ASSISTANT, "", (ToolCall("1", "f", text),))
    assert talk(message).messages[0]["tool_calls"][0]["function"]["arguments"] == text


def test_a_thought_without_an_answer_has_the_name_that_gpt_oss_gives_it() -> None:
    message = Message(Role.ASSISTANT, "", (ToolCall("1", "f", "{}"),), reasoning=Prompt("Hm."))
    assert talk(message, to="harmony").messages[0]["thinking"] == "Hm."


def test_ids_of_calls_are_those_that_the_family_wants() -> None:
    _, calls, first, second = talk(QUESTION, CALLS, *RESULTS, to="kimi").messages
    assert [call["id"] for call in calls["tool_calls"]] == ["functions.clock:0", "functions.clock:1"]
    assert [first["tool_call_id"], second["tool_call_id"]] == ["functions.clock:0", "functions.clock:1"]
    _, calls, first, _ = talk(QUESTION, CALLS, *RESULTS, to="mistral").messages
    assert first["tool_call_id"] == calls["tool_calls"][0]["id"] != calls["tool_calls"][1]["id"]
    assert len(first["tool_call_id"]) == 9
    assert first["tool_call_id"].isalnum()


def test_a_template_that_knows_no_tools_finds_them_in_the_leading_system_block() -> None:
    told = talk(QUESTION, Message(Role.SYSTEM, "Be brief."), to="generic", tools=(CLOCK,))
    assert told.tools == []
    assert [message["role"] for message in told.messages] == ["system", "user"]
    system = told.messages[0]["content"]
    assert system.startswith("Be brief.\n\n")
    assert json.loads(system.split("<tools>\n")[1].split("\n</tools>")[0]) == CLOCK_SHOWN
    assert "<tool_call>" in system


def test_without_tools_nothing_is_told() -> None:
    assert talk(to="generic").messages == [{"role": "user", "content": "When?"}]
    assert len(talk(to="generic", tools=(CLOCK,), tool_choice=ToolChoice(ToolMode.NONE)).messages) == 1


def test_calls_and_results_become_text_and_the_roles_alternate() -> None:
    after = talk(QUESTION, CALLS, *RESULTS, Message(Role.USER, "And now?"), to="generic").messages
    assert [message["role"] for message in after] == ["user", "assistant", "user"]
    assert after[1]["content"] == (
        'Let me look.\n<tool_call>\n{"name": "clock", "arguments": {"zone": "é"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
    )
    assert "tool_calls" not in after[1]
    assert after[2]["content"] == (
        "<tool_response>\n12\n</tool_response>\n<tool_response>\n13\n</tool_response>\nAnd now?"
    )


def test_results_that_nothing_follows_end_the_talk() -> None:
    after = talk(QUESTION, CALLS, *RESULTS, to="generic").messages
    assert [message["role"] for message in after] == ["user", "assistant", "user"]
    between = talk(QUESTION, CALLS, *RESULTS, Message(Role.ASSISTANT, "Noon."), QUESTION, to="generic").messages
    assert [message["role"] for message in between] == ["user", "assistant", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, {}),
        ({"thinking": Thinking.OFF}, {"enable_thinking": False, "thinking": False}),
        ({"thinking": Thinking.HIGH}, {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"}),
        (
            {"thinking": Thinking.HIGH, "output_format": OutputFormat(FormatKind.JSON_OBJECT)},
            {"enable_thinking": False, "thinking": False},
        ),
        (
            {"tools": (CLOCK,), "tool_choice": ToolChoice(ToolMode.REQUIRED)},
            {"enable_thinking": False, "thinking": False},
        ),
    ],
)
def test_how_much_to_think_is_told_in_the_words_of_templates(changes: dict[str, Any], options: dict[str, Any]) -> None:
    assert talk(**changes).options == options


def test_gpt_oss_thinks_little_where_it_should_not_think() -> None:
    assert talk(to="harmony", thinking=Thinking.OFF).options["reasoning_effort"] == "low"


PICTURE = PicturePart("image/png", "iVBORw0KGgo" * 1000, "f" * 64, position=1)
SHOWN_PICTURE = {"type": "image", "image": PICTURE.data}


def test_a_message_with_pictures_is_a_list_of_parts_in_order() -> None:
    (shown,) = talk(Message(Role.USER, "a\n\nb", pictures=(PICTURE,))).messages
    text, rest = {"type": "text", "text": "a"}, {"type": "text", "text": "\n\nb"}
    assert shown == {"role": "user", "content": [text, SHOWN_PICTURE, rest]}


def test_pictures_stay_with_turns_that_are_joined_and_with_results_that_become_text() -> None:
    (turn,) = talk(Message(Role.USER, "x"), Message(Role.USER, "ab", pictures=(PICTURE,))).messages
    assert [part.get("text") for part in turn["content"]] == ["x\n\na", None, "b"]
    result = Message(Role.TOOL, "ab", tool_call_id="call_1", pictures=(PICTURE,))
    *_, told = talk(QUESTION, CALLS, result, Message(Role.USER, "So?"), to=GENERIC.name).messages
    before, picture, after = told["content"]
    assert (before["text"], picture) == ("<tool_response>\na", SHOWN_PICTURE)
    assert after["text"] == "b\n</tool_response>\nSo?"


def test_messages_for_a_template_are_short_in_a_log_and_whole_in_json() -> None:
    long = Message(Role.USER, "y" * 5_000_000, pictures=(PICTURE,))
    thought = Message(Role.ASSISTANT, "y" * 5000, reasoning=Prompt("y" * 5000))
    shown = talk(long, thought).messages
    assert len(repr(shown)) < 1000
    assert "Picture('iVBORw0KGg'…)" in repr(shown)
    assert sum(len(part.get("text", "")) for part in json.loads(json.dumps(shown))[0]["content"]) == 5_000_000
