"""Ollama's messages as ours: roles, tool turns, and what is refused. Pure."""

from typing import Any

import pytest

from p2pexo.api.fields import Fields
from p2pexo.api.ollama_messages import read_messages
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import Message, Role, ToolCall
from p2pexo.generation.text import Prompt

HI = {"role": "user", "content": "hi"}


def read(*messages: Any) -> tuple[Message, ...]:
    return read_messages(Fields({"messages": list(messages)}))


def calls(*names: str, **more: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "tool_calls": [{"function": {"name": name, "arguments": {"a": 1}}, **more} for name in names],
    }


def result(content: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, **more}


def test_system_texts_stay_where_they_are() -> None:
    messages = read({"role": "system", "content": "A"}, HI, {"role": "developer", "content": "B"}, HI)
    assert [(message.role, message.content) for message in messages] == [
        (Role.SYSTEM, "A"),
        (Role.USER, "hi"),
        (Role.SYSTEM, "B"),
        (Role.USER, "hi"),
    ]


def test_thoughts_of_earlier_turns() -> None:
    (message,) = read({"role": "assistant", "content": "yes", "thinking": "hm"})
    assert message == Message(Role.ASSISTANT, "yes", reasoning=Prompt("hm"))


def test_results_find_their_calls_by_the_name_of_the_tool() -> None:
    messages = read(HI, calls("add", "now"), result("noon", tool_name="now"), result("5", tool_name="add"))
    assert messages[1].tool_calls == (ToolCall("call_1", "add", '{"a":1}'), ToolCall("call_2", "now", '{"a":1}'))
    assert [(message.content, message.tool_call_id) for message in messages[2:]] == [
        ("noon", "call_2"),
        ("5", "call_1"),
    ]


def test_results_without_a_name_come_in_the_order_of_the_calls() -> None:
    messages = read(HI, calls("add", "add"), result("5"), result("6"), calls("add"), result("7"))
    assert [message.tool_call_id for message in messages if message.role is Role.TOOL] == ["call_1", "call_2", "call_3"]


def test_ids_are_kept_where_a_client_has_them() -> None:
    messages = read(HI, calls("add", id="x"), result("5", tool_call_id="x"), result("6", tool_name="nobody"))
    assert messages[1].tool_calls[0].id == "x"
    assert [message.tool_call_id for message in messages[2:]] == ["x", None]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("hi", "messages[0]"),
        ({}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "text", "text": "x"}]}, "messages[0].content"),
        ({"role": "wizard", "content": "x"}, "messages[0].role"),
        ({"role": "assistant", "content": None}, "messages[0].content"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0].function"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"role": "user", "content": "x", "images": ["iVBORw0KGgo="]}, "messages[0].images"),
    ],
    ids=repr,
)
def test_what_is_wrong_is_named_by_its_path(message: Any, param: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        read(message)
    assert refusal.value.param == param


def test_no_messages_are_no_error() -> None:
    assert read() == ()
