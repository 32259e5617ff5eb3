"""Tools for models whose chat template knows none: told in the system message, in the form that Hermes models made common.

What the model is told is ``GUIDE``; its calls and their results stand in the messages as text, so that a talk that goes
on looks to the model like what it was told. Calls are read by the Hermes parser.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve

from p2pexo.generation.content import Content, joined
from p2pexo.generation.request import Message, Role, ToolCall

GUIDE = """You have tools, which are functions that somebody runs for you. Each is described by one line of JSON:
<tools>
{tools}
</tools>
When a tool helps, call it by writing nothing but its name and its arguments, like this:
<tool_call>
{{"name": "the name of the tool", "arguments": {{"the name of an argument": "its value"}}}}
</tool_call>
Several calls are several such blocks. The results come in the next message, inside of <tool_response>. When no tool
helps, answer in plain words."""


def explained(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """The messages without any tool call or result that is more than text, and the guide to the tools, if there are any."""
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    guide = (Message(Role.SYSTEM, GUIDE.format(tools=lines)),) if tools else ()
    return (*(message for message in messages if message.role is Role.SYSTEM), *guide, *_talk(messages))


def _talk(messages: Sequence[Message]) -> Iterator[Message]:
    """Results go into one message of the user with what the user says next: many templates want the roles to alternate."""
    results: list[Content] = []
    for message in messages:
        if message.role is Role.TOOL:
            results.append(_response(message))
        elif message.role is Role.USER and results:
            yield from _told([*results, Content.of(message)])
            results = []
        elif message.role is not Role.SYSTEM:
            yield from _told(results)
            results = []
            yield _with_calls(message)
    yield from _told(results)


def _response(result: Message) -> Content:
    return joined((Content("<tool_response>\n"), Content.of(result), Content("\n</tool_response>")))


def _told(contents: Sequence[Content]) -> Iterator[Message]:
    if contents:
        content = joined(contents, "\n")
        yield Message(Role.USER, content.text, pictures=content.pictures)


def _with_calls(message: Message) -> Message:
    calls = (f"<tool_call>\n{_call(call)}\n</tool_call>" for call in message.tool_calls)
    content = "\n".join(filter(None, (message.content, *calls)))
    return evolve(message, content=content, tool_calls=(), tool_call_id=None)


def _call(call: ToolCall) -> str:
    return f'{{"name": {json.dumps(call.name, ensure_ascii=False)}, "arguments": {call.arguments}}}'
