"""Claude's system prompts and messages as ours: blocks, tool turns, thoughts, and what is refused. Pure."""

from typing import Any

import pytest

from p2pexo.api.claude_messages import BILLING_HEADER, read_messages
from p2pexo.api.fields import Fields
from p2pexo.engine.turns import in_turns
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import Message, Role, ToolCall
from p2pexo.generation.text import Prompt

HI = {"role": "user", "content": "hi"}


def read(*messages: Any, system: Any = None) -> tuple[Message, ...]:
    return read_messages(Fields({"messages": list(messages), "system": system}))


def text(words: Any, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


@pytest.mark.parametrize(
    ("content", "expected"),
    [("A", "A"), ([text("A"), text("B")], "A\n\nB"), ([], ""), ("", ""), ([text("A", cache_control=None)], "A")],
)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_string_or_blocks_for_every_role(role: str, content: Any, expected: str) -> None:
    (message,) = read({"role": role, "content": content})
    assert (message.role, message.content) == (Role(role), expected)


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("S", "S"),
        ([text("S", cache_control={"type": "ephemeral"}), text("T", cache_control=None)], "S\n\nT"),
        (f"{BILLING_HEADER} cc_version=2.1; cch=1f2e3;\nS", "S"),
        ([text(f"{BILLING_HEADER} cch=00af1;"), text("S")], "S"),
        ([text(f"{BILLING_HEADER} a\n{BILLING_HEADER} b\n\nS")], "S"),
        (f"S\n{BILLING_HEADER} quoted", f"S\n{BILLING_HEADER} quoted"),
    ],
)
def test_the_system_prompt_leads_without_billing_headers(system: Any, expected: str) -> None:
    assert read(HI, system=system) == (Message(Role.SYSTEM, expected), Message(Role.USER, "hi"))


@pytest.mark.parametrize("system", [None, "", [], [text("")], f"{BILLING_HEADER} only"])
def test_an_empty_system_prompt_is_none(system: Any) -> None:
    assert read(HI, system=system) == (Message(Role.USER, "hi"),)


def test_system_texts_in_mid_talk_stay_where_they_are() -> None:
    messages = read(
        HI,
        {"role": "system", "content": "B"},
        assistant(text("hello")),
        {"role": "system", "content": [text("C")]},
        HI,
        system="A",
    )
    roles = [Role.SYSTEM, Role.USER, Role.SYSTEM, Role.ASSISTANT, Role.SYSTEM, Role.USER]
    assert [message.role for message in messages] == roles
    assert [message.content for message in messages if message.role is Role.SYSTEM] == ["A", "B", "C"]


def test_turns_of_the_same_side_become_one() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
    thought = {"type": "thinking", "thinking": "hm"}
    messages = in_turns(read(HI, HI, assistant(text("a")), assistant(thought, text("b"), call)))
    assert messages == [
        Message(Role.USER, "hi\n\nhi"),
        Message(Role.ASSISTANT, "a\n\nb", (ToolCall("t1", "add", "{}"),), reasoning=Prompt("hm")),
    ]


def test_a_tool_loop_with_thoughts_keeps_its_order() -> None:
    messages = read(
        HI,
        assistant(
            {"type": "thinking", "thinking": "hm", "signature": "x"},
            {"type": "redacted_thinking", "data": "secret"},
            text("Let me see."),
            {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 2}},
            {"type": "tool_use", "id": "t2", "name": "now", "input": {}},
        ),
        user(
            {"type": "tool_result", "tool_use_id": "t1", "content": "5"},
            {"type": "tool_result", "tool_use_id": "t2", "content": [text("noon"), text("sharp")], "is_error": False},
            text("go on"),
            text("please"),
        ),
    )
    calls = (ToolCall("t1", "add", '{"a":2}'), ToolCall("t2", "now", "{}"))
    assert messages[1:] == (
        Message(Role.ASSISTANT, "Let me see.", calls, reasoning=Prompt("hm")),
        Message(Role.TOOL, "5", tool_call_id="t1"),
        Message(Role.TOOL, "noon\n\nsharp", tool_call_id="t2"),
        Message(Role.USER, "go on\n\nplease"),
    )
    assert "secret" not in str(messages)


@pytest.mark.parametrize(("content", "expected"), [(None, ""), ("", ""), ([], ""), ("5", "5")])
def test_a_tool_result_may_be_empty(content: Any, expected: str) -> None:
    (message,) = read(user({"type": "tool_result", "tool_use_id": "t1", "content": content}))
    assert message == Message(Role.TOOL, expected, tool_call_id="t1")


def test_a_tool_that_failed_says_so() -> None:
    (message,) = read(user({"type": "tool_result", "tool_use_id": "t1", "content": "no file", "is_error": True}))
    assert message.content == "Error: no file"


PICTURE = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1:9999/x.png"}}


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("hi", "messages[0]"),
        ({}, "messages[0].role"),
        ({"role": "tool", "content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        (user("x"), "messages[0].content[0]"),
        (user({"text": "x"}), "messages[0].content[0].type"),
        (user(text("x"), text(None)), "messages[0].content[1].text"),
        (user({"type": "hologram"}), "messages[0].content[0].type"),
        (user({"type": "tool_use", "id": "t", "name": "f", "input": {}}), "messages[0].content[0].type"),
        (user({"type": "tool_result", "content": "x"}), "messages[0].content[0].tool_use_id"),
        (
            user({"type": "tool_result", "tool_use_id": "t", "content": [PICTURE]}),
            "messages[0].content[0].content[0].type",
        ),
        (assistant({"type": "tool_use", "name": "f", "input": {}}), "messages[0].content[0].id"),
        (assistant({"type": "tool_use", "id": "t", "name": "f", "input": "{}"}), "messages[0].content[0].input"),
        (assistant({"type": "server_tool_use", "id": "t"}), "messages[0].content[0].type"),
        ({"role": "system", "content": [PICTURE]}, "messages[0].content[0].type"),
    ],
    ids=repr,
)
def test_what_is_wrong_is_named_by_its_path(message: Any, param: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        read(message)
    assert refusal.value.param == param


@pytest.mark.parametrize(
    "message", [user(PICTURE), user({"type": "tool_result", "tool_use_id": "t", "content": [PICTURE]})]
)
def test_a_picture_gets_a_plain_word(message: Any) -> None:
    with pytest.raises(InvalidRequestError, match="this model can't see pictures"):
        read(message)


def test_only_system_blocks_of_text_are_taken() -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        read(HI, system=[PICTURE])
    assert refusal.value.param == "system[0].type"
