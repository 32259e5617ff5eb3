"""The order of messages, and what a template that insists on it makes of them."""

import pytest

from p2pexo.engine.conversation import conversation
from p2pexo.engine.parsers.families import FAMILIES
from p2pexo.engine.template import ChatTemplate
from p2pexo.engine.turns import in_turns
from p2pexo.generation.request import Message, Request, Role, ToolCall
from p2pexo.generation.text import Prompt

STRICT = ChatTemplate(
    """{%- for message in messages -%}
    {%- if message.role == 'system' and not loop.first -%}{{ raise_exception('System message must be first') }}{%- endif -%}
    {%- if not loop.first and message.role == loop.previtem.role and message.role != 'tool' -%}
        {{ raise_exception('Roles must alternate') }}
    {%- endif -%}
    [{{ message.role }}] {{ message.content }}{% for call in message.tool_calls or [] %} <{{ call.id }}>{% endfor %}
    {%- endfor -%}"""
)
HERMES = next(each for each in FAMILIES if each.name == "hermes")
ROLES = {"s": Role.SYSTEM, "u": Role.USER, "a": Role.ASSISTANT, "t": Role.TOOL}


def turns(roles: str) -> list[Message]:
    """One message for each letter, which says its place."""
    return [Message(ROLES[role], str(place)) for place, role in enumerate(roles)]


def rendered(messages: list[Message]) -> str:
    shown = conversation(Request("r1", "a/b", tuple(messages)), HERMES)
    return STRICT.render(shown.messages)


@pytest.mark.parametrize(
    ("roles", "prompt"),
    [
        ("suasu", "[system] 0\n\n3[user] 1[assistant] 2[user] 4"),
        ("uu", "[user] 0\n\n1"),
        ("ssu", "[system] 0\n\n1[user] 2"),
        ("usu", "[system] 1[user] 0\n\n2"),
        ("uaau", "[user] 0[assistant] 1\n\n2[user] 3"),
        ("uuuaasuu", "[system] 5[user] 0\n\n1\n\n2[assistant] 3\n\n4[user] 6\n\n7"),
        ("us", "[system] 1[user] 0"),
        ("u", "[user] 0"),
    ],
)
def test_a_strict_template_takes_messages_in_any_order(roles: str, prompt: str) -> None:
    assert rendered(turns(roles)) == prompt


def test_results_of_parallel_calls_stay_apart() -> None:
    results = [Message(Role.TOOL, "12", tool_call_id="c1"), Message(Role.TOOL, "13", tool_call_id="c2")]
    assert in_turns(results) == results


def test_a_turn_keeps_its_calls_and_thoughts_wherever_they_stand() -> None:
    one, two = ToolCall("c1", "f", "{}"), ToolCall("c2", "f", "{}")
    told = [
        Message(Role.ASSISTANT, "Let me look.", reasoning=Prompt("Hm.")),
        Message(Role.ASSISTANT, "", (one,)),
        Message(Role.ASSISTANT, "", (two,), reasoning=Prompt("And that.")),
        Message(Role.TOOL, "12", tool_call_id="c1"),
        Message(Role.TOOL, "13", tool_call_id="c2"),
    ]
    turn, *results = in_turns(told)
    assert turn == Message(Role.ASSISTANT, "Let me look.", (one, two), reasoning=Prompt("Hm.\n\nAnd that."))
    assert results == told[3:]


def test_what_comes_before_the_last_turn_stays_as_it_was() -> None:
    """A talk that goes on begins like it did, so that its caches can be used again."""
    before, after = turns("suuau"), turns("suuauau")
    assert rendered(after).startswith(rendered(before))


@pytest.mark.parametrize("content", [("", "b"), ("a", ""), ("", "")])
def test_an_empty_text_adds_no_paragraph(content: tuple[str, str]) -> None:
    (turn,) = in_turns([Message(Role.USER, each) for each in content])
    assert turn.content == "".join(content)


def test_a_talk_in_turns_is_left_alone() -> None:
    assert in_turns(turns("suaua")) == turns("suaua")
