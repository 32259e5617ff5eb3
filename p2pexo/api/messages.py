"""OpenAI's chat messages as ``generation.Message``s, in their order: the engine knows where a model wants its system texts."""

from p2pexo.api.fields import Fields, as_object
from p2pexo.api.pictures import Sight, check_detail, read_picture
from p2pexo.generation.content import Content, joined
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import Message, PicturePart, Role, ToolCall
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

_PICTURES = ("image_url", "input_image", "image")
"""Kinds of content part that are pictures somewhere; here it is the first one."""

_SENSES = {
    "input_audio": "this model can't hear audio",
    "video_url": "this model can't see videos",
    "file": "this model can't read files",
}


def read_messages(body: Fields, *, sees: bool = False) -> tuple[Message, ...]:
    """The conversation. ``sees``: whether the model takes pictures.

    Raises InvalidRequestError naming the message and field at fault.
    """
    messages = tuple(_message(fields, sees) for fields in body.children("messages"))
    if not messages:
        raise body.wrong("messages", "a list with at least one message")
    return messages


def _message(fields: Fields, sees: bool) -> Message:
    name = fields.choice("role", "", ROLES)
    calls = tuple(_tool_call(call) for call in fields.children("tool_calls")) if name == "assistant" else ()
    reasoning = _reasoning(fields) if name == "assistant" else None
    if fields.get("content") is None and not calls and reasoning is None:
        raise fields.wrong("content", "a string or a list of parts")
    content = _content(fields, Sight.of(sees, name in ("user", "tool")))
    return Message(ROLES[name], content.text, calls, fields.text("tool_call_id", None), reasoning, content.pictures)


def _reasoning(fields: Fields) -> Prompt | None:
    """What the model thought in that turn, as we send it, or by the name that some others give it."""
    text = fields.text("reasoning_content", None) or fields.text("reasoning", None)
    return Prompt(text) if text else None


def _content(fields: Fields, sight: Sight) -> Content:
    value = fields.get("content")
    if value is None or isinstance(value, str):
        return Content(value or "")
    if not isinstance(value, list):
        raise fields.wrong("content", "a string or a list of parts")
    return joined(fields.items("content", lambda item, path: _part(as_object(item, path), sight)))


def _part(part: Fields, sight: Sight) -> Content:
    kind = part.required_text("type")
    if kind in _TEXT_KEYS:
        return Content(part.required_text(_TEXT_KEYS[kind]))
    if kind == "image_url" and sight is Sight.OPEN:
        return Content(pictures=(_picture(part),))
    raise InvalidRequestError(
        f"{part.path}: a content part of type {kind!r} is not taken: {_reason(kind, sight)}",
        param=part.name_of("type"),
    )


def _picture(part: Fields) -> PicturePart:
    """``image_url`` is an object with the address, or, as some clients write it, the address itself."""
    if isinstance(part.get("image_url"), str):
        return read_picture(part.required_text("image_url"), part.name_of("image_url"))
    picture = part.child("image_url")
    if picture is None:
        raise part.wrong("image_url", "an object with the url of a picture")
    check_detail(picture)
    return read_picture(picture.required_text("url"), picture.name_of("url"))


def _reason(kind: str, sight: Sight) -> str:
    if kind in _PICTURES and sight is not Sight.OPEN:
        return sight.value
    return _SENSES.get(kind, "only text and image_url are")


def _tool_call(call: Fields) -> ToolCall:
    call.choice("type", "function", ("function",))
    function = call.child("function")
    if function is None:
        raise call.wrong("function", "an object with name and arguments")
    return ToolCall(call.required_text("id"), function.required_text("name"), function.text("arguments", ""))
