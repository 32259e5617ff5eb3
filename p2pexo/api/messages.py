"""OpenAI's chat messages as ``generation.Message``s, in their order: the engine knows where a model wants its system texts."""

from p2pexo.api.fields import Fields, as_object
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import Message, Role, ToolCall
from p2pexo.generation.text import Prompt

ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
}

_TEXT_KEYS = {"text": "text", "refusal": "refusal"}
"""Kinds of content part that are text, and the field the text stands in."""

_SENSES = {
    "image_url": "this model can't see pictures",
    "input_image": "this model can't see pictures",
    "image": "this model can't see pictures",
    "input_audio": "this model can't hear audio",
    "video_url": "this model can't see videos",
    "file": "this model can't read files",
}


def read_messages(body: Fields) -> tuple[Message, ...]:
    """The conversation. Raises InvalidRequestError naming the message and field at fault."""
    messages = tuple(_message(fields) for fields in body.children("messages"))
    if not messages:
        raise body.wrong("messages", "a list with at least one message")
    return messages


def _message(fields: Fields) -> Message:
    name = fields.choice("role", "", ROLES)
    calls = tuple(_tool_call(call) for call in fields.children("tool_calls")) if name == "assistant" else ()
    reasoning = _reasoning(fields) if name == "assistant" else None
    if fields.get("content") is None and not calls and reasoning is None:
        raise fields.wrong("content", "a string or a list of text parts")
    return Message(ROLES[name], _content(fields), calls, fields.text("tool_call_id", None), reasoning)


def _reasoning(fields: Fields) -> Prompt | None:
    """What the model thought in that turn, as we send it, or by the name that some others give it."""
    text = fields.text("reasoning_content", None) or fields.text("reasoning", None)
    return Prompt(text) if text else None


def _content(fields: Fields) -> str:
    value = fields.get("content")
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise fields.wrong("content", "a string or a list of text parts")
    return "".join(fields.items("content", _part))


def _part(value: object, path: str) -> str:
    part = as_object(value, path)
    kind = part.required_text("type")
    if kind not in _TEXT_KEYS:
        raise InvalidRequestError(
            f"{path}: a content part of type {kind!r} is not taken: {_SENSES.get(kind, 'only text parts are')}",
            param=f"{path}.type",
        )
    return part.required_text(_TEXT_KEYS[kind])


def _tool_call(call: Fields) -> ToolCall:
    call.choice("type", "function", ("function",))
    function = call.child("function")
    if function is None:
        raise call.wrong("function", "an object with name and arguments")
    return ToolCall(call.required_text("id"), function.required_text("name"), function.text("arguments", ""))
