"""Ollama's messages and tools as ours. Pure. Its tool turns name the tool; ours name the call that they answer."""

from collections.abc import Iterable

import orjson
from attrs import define, evolve, field

from p2pexo.api.fields import Fields, as_text
from p2pexo.api.pictures import Sight, read_base64
from p2pexo.api.tool_names import check_names
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import Message, PicturePart, Role, Tool, ToolCall
from p2pexo.generation.text import Prompt

_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
}


def read_messages(body: Fields, *, sees: bool = False) -> tuple[Message, ...]:
    """The conversation; empty if there is none. ``sees``: whether the model takes pictures.

    Raises InvalidRequestError naming the message and field at fault.
    """
    calls = _OpenCalls()
    return tuple(calls.tie(_message(fields, sees), _tool_name(fields)) for fields in body.children("messages"))


def read_pictures(fields: Fields, sight: Sight) -> tuple[PicturePart, ...]:
    """The ``images`` of a message or of a prompt, in base64; they stand before its text."""
    images = fields.items("images", lambda image, path: (image, path))
    if images and sight is not Sight.OPEN:
        path = fields.name_of("images")
        raise InvalidRequestError(f"{path}: {sight.value}", param=path)
    return tuple(read_base64(as_text(image, path), path) for image, path in images)


def _message(fields: Fields, sees: bool) -> Message:
    role = _ROLES[fields.choice("role", "", _ROLES)]
    pictures = read_pictures(fields, Sight.of(sees, role in (Role.USER, Role.TOOL)))
    calls = tuple(_tool_call(call) for call in fields.children("tool_calls")) if role is Role.ASSISTANT else ()
    content = fields.text("content", None)
    if content is None and not calls and not pictures:
        raise fields.wrong("content", "a string")
    thinking = fields.text("thinking", "")
    return Message(
        role,
        content or "",
        calls,
        fields.text("tool_call_id", None) if role is Role.TOOL else None,
        Prompt(thinking) if thinking and role is Role.ASSISTANT else None,
        pictures,
    )


def _tool_name(fields: Fields) -> str | None:
    return fields.text("tool_name", None) or fields.text("name", None)


def _tool_call(call: Fields) -> ToolCall:
    function = call.child("function")
    if function is None:
        raise call.wrong("function", "an object with name and arguments")
    arguments = function.child("arguments") or Fields({})
    return ToolCall(call.text("id", ""), function.required_text("name"), orjson.dumps(arguments.values).decode())


@define
class _OpenCalls:
    """The calls so far that no result has come for yet."""

    _open: list[ToolCall] = field(factory=list[ToolCall], init=False)
    _count: int = field(default=0, init=False)

    def tie(self, message: Message, tool_name: str | None) -> Message:
        """Give each call an id, and each result the id of its call: the oldest open one of that name, or of any."""
        if message.tool_calls:
            calls = tuple(self._with_id(call) for call in message.tool_calls)
            self._open.extend(calls)
            return evolve(message, tool_calls=calls)
        if message.role is not Role.TOOL:
            return message
        answered = self._answered(message.tool_call_id, tool_name)
        if answered is None:
            return message
        self._open.remove(answered)
        return evolve(message, tool_call_id=answered.id)

    def _with_id(self, call: ToolCall) -> ToolCall:
        self._count += 1
        return call if call.id else evolve(call, id=f"call_{self._count}")

    def _answered(self, id: str | None, name: str | None) -> ToolCall | None:
        if id is not None:
            return _first(each for each in self._open if each.id == id)
        return _first(each for each in self._open if name is None or each.name == name)


def _first(calls: Iterable[ToolCall]) -> ToolCall | None:
    return next(iter(calls), None)


def read_tools(body: Fields) -> tuple[Tool, ...]:
    functions = tuple(map(_function, body.children("tools")))
    check_names(functions)
    return tuple(map(_tool, functions))


def _function(fields: Fields) -> Fields:
    fields.choice("type", "function", ("function",))
    function = fields.child("function")
    if function is None:
        raise fields.wrong("function", "an object with name and parameters")
    return function


def _tool(function: Fields) -> Tool:
    parameters = function.child("parameters") or Fields({})
    schema = orjson.dumps(parameters.values).decode()
    return Tool(function.required_text("name"), function.text("description", ""), schema)
