"""OpenAI messages as ours: roles, parts, tool turns, and what is refused. Pure."""

from typing import Any

import pytest

from p2pexo.api.fields import Fields
from p2pexo.api.messages import read_messages
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import Message, Role, ToolCall


def read(*messages: Any) -> tuple[Message, ...]:
    return read_messages(Fields({"messages": list(messages)}))


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
@pytest.mark.parametrize(
    ("content", "text"), [("AB", "AB"), ([text_part("A"), text_part("B")], "AB"), ([], ""), ("", "")]
)
def test_text_and_parts_are_the_same_for_every_role(role: str, content: Any, text: str) -> None:
    (message,) = read({"role": role, "content": content})
    assert message.content == text


def test_system_and_developer_texts_stay_where_they_are() -> None:
    messages = read(
        {"role": "system", "content": "one"},
        user("hi"),
        {"role": "assistant", "content": "hello"},
        {"role": "developer", "content": "two"},
        user("bye"),
    )
    assert [(message.role, message.content) for message in messages] == [
        (Role.SYSTEM, "one"),
        (Role.USER, "hi"),
        (Role.ASSISTANT, "hello"),
        (Role.SYSTEM, "two"),
        (Role.USER, "bye"),
    ]


def test_a_developer_message_is_a_system_message() -> None:
    assert read({"role": "developer", "content": "X"}, user("U")) == read({"role": "system", "content": "X"}, user("U"))


def test_a_tool_loop_needs_no_assistant_content() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":2}'}}
    messages = read(
        user("2+3?"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "5"},
    )
    assert messages[1] == Message(Role.ASSISTANT, "", (ToolCall("c1", "add", '{"a":2}'),))
    assert messages[2] == Message(Role.TOOL, "5", (), "c1")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_of_earlier_turns_stay_apart_from_what_was_said(name: str) -> None:
    _, message = read(user("hi"), {"role": "assistant", "content": "42", name: "6 times 7"})
    assert (message.content, message.reasoning) == ("42", "6 times 7")
    assert read({**user("hi"), name: "x"})[0].reasoning is None


def test_a_tool_message_may_carry_the_name_of_its_function() -> None:
    (message,) = read({"role": "tool", "tool_call_id": "c1", "name": "add", "content": [text_part("5")]})
    assert message == Message(Role.TOOL, "5", (), "c1")


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({}, "messages[0].role"),
        ("hi", "messages[0]"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "wizard", "content": "x"}, "messages[0].role"),
        ({"role": "assistant", "content": None}, "messages[0].content"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "messages[0].content"),
        (user(["x"]), "messages[0].content[0]"),
        (user([{"text": "x"}]), "messages[0].content[0].type"),
        (user([text_part("x"), {"type": "text"}]), "messages[0].content[1].text"),
        (user([{"type": "hologram"}]), "messages[0].content[0].type"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "messages[0].tool_calls[0].function"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}, "messages[0].tool_calls[0].id"),
        ({"role": "tool", "content": "5", "tool_call_id": 7}, "messages[0].tool_call_id"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(message: Any, param: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        read(message)
    assert refusal.value.param == param


def test_an_unknown_part_is_named_and_a_picture_gets_a_plain_word() -> None:
    with pytest.raises(InvalidRequestError, match="hologram"):
        read(user([{"type": "hologram"}]))
    with pytest.raises(InvalidRequestError, match="this model can't see pictures"):
        read(user([{"type": "image_url", "image_url": {"url": "data:"}}]))


def test_a_conversation_may_end_with_the_assistant() -> None:
    assert read(user("hi"), {"role": "assistant", "content": "Sure, "})[-1].role is Role.ASSISTANT
