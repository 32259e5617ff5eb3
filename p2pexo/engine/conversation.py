"""A request as a chat template sees it: messages, tools and options, in the form of Hugging Face's templates. Pure."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from attrs import field, frozen

from p2pexo.engine.parsers.chat_format import is_bound
from p2pexo.engine.parsers.families import Family
from p2pexo.engine.tool_guide import explained
from p2pexo.engine.turns import in_turns
from p2pexo.generation.content import parts
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import Message, PicturePart, Request, Thinking, Tool, ToolCall, ToolMode
from p2pexo.generation.text import Prompt


@frozen
class Conversation:
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    options: Mapping[str, Any] = field(factory=dict[str, Any])
    """Names that a template may look at; one that doesn't know them is not disturbed."""


def conversation(request: Request, family: Family) -> Conversation:
    """The messages as ``turns`` puts them.

    A template that knows no tools finds them described in the system message, and calls and results written into the messages.
    Raises InvalidRequestError for a tool whose parameters are not a JSON object.
    """
    tools = [] if request.tool_choice.mode is ToolMode.NONE else [_tool(tool) for tool in request.tools]
    messages = request.messages
    if not family.knows_tools:
        messages, tools = explained(messages, tools), []
    shown = _Messages(family, _call_names(messages))
    return Conversation([shown.show(message) for message in in_turns(messages)], tools, _options(request, family))


class _Messages:
    """Shows messages one after the other."""

    def __init__(self, family: Family, names: Mapping[str, str]) -> None:
        self._family = family
        self._names = names
        """Of the tools, by the ids of calls."""
        self._ids: dict[str, str] = {}

    def show(self, message: Message) -> dict[str, Any]:
        shown: dict[str, Any] = {"role": str(message.role), "content": _content(message)}
        if message.reasoning:
            shown["reasoning_content"] = message.reasoning
            if not message.content:  # gpt-oss has its own name for it, and refuses both together
                shown["thinking"] = message.reasoning
        if message.tool_calls:
            shown["tool_calls"] = [self._call(call) for call in message.tool_calls]
        if message.tool_call_id is not None:
            shown["tool_call_id"] = self._ids.get(message.tool_call_id, message.tool_call_id)
            if message.tool_call_id in self._names:
                shown["name"] = self._names[message.tool_call_id]
        return shown

    def _call(self, call: ToolCall) -> dict[str, Any]:
        id = self._family.call_id(call.id, call.name, len(self._ids))
        self._ids[call.id] = id
        return {"id": id, "type": "function", "function": {"name": call.name, "arguments": _arguments(call)}}


def _content(message: Message) -> Prompt | list[dict[str, Any]]:
    """With pictures, the list of parts that the templates of models that see expect. Texts keep their short ``repr``."""
    if not message.pictures:
        return message.content
    return [
        {"type": "image", "image": part.data} if isinstance(part, PicturePart) else {"type": "text", "text": part}
        for part in parts(message)
    ]


class Arguments(dict[str, Any]):
    """An object, as most templates expect it; DeepSeek's take it for text, and find its JSON."""

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)

    def __radd__(self, before: object) -> str:
        return f"{before}{self}"

    def __add__(self, behind: object) -> str:
        return f"{self}{behind}"


def _arguments(call: ToolCall) -> Arguments | str:
    """Text that is no JSON object is passed on as it is."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return str(call.arguments)
    return Arguments(cast(dict[str, Any], arguments)) if isinstance(arguments, dict) else str(call.arguments)


def _call_names(messages: Iterable[Message]) -> dict[str, str]:
    return {call.id: call.name for message in messages for call in message.tool_calls}


def _tool(tool: Tool) -> dict[str, Any]:
    try:
        parameters = json.loads(tool.parameters)
    except ValueError as error:
        raise InvalidRequestError(f"the parameters of tool {tool.name} are no JSON: {error}", param="tools") from error
    if not isinstance(parameters, dict):
        raise InvalidRequestError(f"the parameters of tool {tool.name} are not a JSON object", param="tools")
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": cast(dict[str, Any], parameters),
    }
    return {"type": "function", "function": function}


def _options(request: Request, family: Family) -> dict[str, Any]:
    """How templates name the wish to think. An answer that a grammar binds has no room for thoughts."""
    thinking = Thinking.OFF if is_bound(request) else request.thinking
    if thinking is None:
        return {}
    wanted = thinking is not Thinking.OFF
    options: dict[str, Any] = {"enable_thinking": wanted, "thinking": wanted}
    if wanted or family.is_harmony:  # gpt-oss always thinks
        options["reasoning_effort"] = str(thinking) if wanted else "low"
    return options
