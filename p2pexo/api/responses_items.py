"""The input items of the Responses dialect as ``generation.Message``s. Pure.

A turn of the assistant is spread over several items there (reasoning, message, function calls); models see it as one
message, so neighbours that belong together are joined.
"""

from collections.abc import Iterable, Mapping

from attrs import define, field

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
}

_TEXT_KEYS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""Kinds of content part that are text, and the field the text stands in."""

_SENSES = {
    "input_audio": "this model can't hear audio",
    "input_file": "this model can't read files",
}

ITEM_TYPES = ("message", "function_call", "function_call_output", "reasoning", "item_reference")


def read_input(body: Fields, items: Mapping[str, Fields], *, sees: bool = False) -> tuple[Message, ...]:
    """What ``input`` says. ``items`` are those that item references may name, by id; ``sees``: whether the model takes pictures.

    Raises InvalidRequestError naming the item and field at fault.
    """
    value = body.get("input")
    if isinstance(value, str):
        return (Message(Role.USER, value),)
    if not isinstance(value, list) or not value:
        raise body.wrong("input", "a string or a list with at least one item")
    return read_items(body.children("input"), items, sees=sees)


def read_items(items: Iterable[Fields], referable: Mapping[str, Fields], *, sees: bool = False) -> tuple[Message, ...]:
    """The messages that a list of items stands for."""
    turns = _Turns(sees)
    for item in items:
        turns.add(_resolved(item, referable))
    return turns.finished()


def references(body: Fields) -> tuple[str, ...]:
    """Ids of the items that ``input`` refers to without bringing them along."""
    if not isinstance(body.get("input"), list):
        return ()
    return tuple(item.required_text("id") for item in body.children("input") if _type_of(item) == "item_reference")


@define
class _Turns:
    """Joins the items of one turn of the assistant, in the order in which a model produces them."""

    _sees: bool
    _messages: list[Message] = field(factory=list[Message])
    _reasoning: str = ""
    _text: str | None = None
    _calls: list[ToolCall] = field(factory=list[ToolCall])

    def add(self, item: Fields) -> None:
        match _type_of(item):
            case "message":
                role = ROLES[item.choice("role", "", ROLES)]
                self._add_message(role, _content(item, "content", Sight.of(self._sees, role is Role.USER)))
            case "reasoning":
                self._add_reasoning(_reasoning(item))
            case "function_call":
                self._calls.append(_call(item))
            case _:
                self._end_turn()
                output, call_id = _content(item, "output", Sight.of(self._sees)), item.required_text("call_id")
                self._messages.append(Message(Role.TOOL, output.text, tool_call_id=call_id, pictures=output.pictures))

    def finished(self) -> tuple[Message, ...]:
        self._end_turn()
        return tuple(self._messages)

    def _add_message(self, role: Role, content: Content) -> None:
        if role is not Role.ASSISTANT:
            self._end_turn()
            self._messages.append(Message(role, content.text, pictures=content.pictures))
            return
        if self._text is not None or self._calls:
            self._end_turn()
        self._text = content.text

    def _add_reasoning(self, text: str) -> None:
        if self._text is not None or self._calls:
            self._end_turn()
        self._reasoning += text

    def _end_turn(self) -> None:
        if self._text is not None or self._calls or self._reasoning:
            reasoning = Prompt(self._reasoning) if self._reasoning else None
            calls = tuple(self._calls)
            self._messages.append(Message(Role.ASSISTANT, self._text or "", calls, reasoning=reasoning))
        self._reasoning, self._text, self._calls = "", None, []


def _type_of(item: Fields) -> str:
    """An item without a type is a message. Raises InvalidRequestError for a type that is not known, naming it."""
    kind = item.text("type", "message")
    if kind not in ITEM_TYPES:
        raise InvalidRequestError(
            f"{item.path}: an item of type {kind!r} is not taken; known are {', '.join(ITEM_TYPES)}",
            param=item.name_of("type"),
        )
    return kind


def _resolved(item: Fields, referable: Mapping[str, Fields]) -> Fields:
    if _type_of(item) != "item_reference":
        return item
    id = item.required_text("id")
    if id not in referable:
        raise InvalidRequestError(
            f"{item.path}: no item {id!r} is stored here; send the item itself", param=item.name_of("id")
        )
    return referable[id]


def _content(item: Fields, name: str, sight: Sight) -> Content:
    """Text, or a list of parts in order."""
    value = item.get(name)
    if isinstance(value, str):
        return Content(value)
    if not isinstance(value, list):
        raise item.wrong(name, "a string or a list of parts")
    return joined(item.items(name, lambda each, path: _part(as_object(each, path), sight)))


def _part(part: Fields, sight: Sight) -> Content:
    kind = part.required_text("type")
    if kind in _TEXT_KEYS:
        return Content(part.required_text(_TEXT_KEYS[kind]))
    if kind == "input_image" and sight is Sight.OPEN:
        return Content(pictures=(_picture(part),))
    reason = sight.value if kind == "input_image" else _SENSES.get(kind, "only text and input_image are")
    raise InvalidRequestError(
        f"{part.path}: a content part of type {kind!r} is not taken: {reason}", param=part.name_of("type")
    )


def _picture(part: Fields) -> PicturePart:
    if part.text("file_id", None) is not None:
        path = part.name_of("file_id")
        raise InvalidRequestError(f"{path}: no files are kept here; send the picture as image_url", param=path)
    check_detail(part)
    return read_picture(part.required_text("image_url"), part.name_of("image_url"))


def _reasoning(item: Fields) -> str:
    """The thoughts themselves where they are told, else their summary; what is encrypted can't be read here."""
    return _paragraphs(item, "content") or _paragraphs(item, "summary")


def _paragraphs(item: Fields, name: str) -> str:
    return "\n\n".join(item.items(name, _text_of))


def _text_of(value: object, path: str) -> str:
    return as_object(value, path).required_text("text")


def _call(item: Fields) -> ToolCall:
    return ToolCall(item.required_text("call_id"), item.required_text("name"), item.text("arguments", ""))
