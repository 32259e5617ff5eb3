"""Claude's system prompt and messages, blocks and all, as ``generation.Message``s. Pure.

The texts of a turn's blocks are paragraphs: an empty line is put between them. What a user's turn says round its tool
results, and pictures, keep their places. Marks for caches are not looked at.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import orjson

from p2pexo.api.fields import Fields, as_object
from p2pexo.api.pictures import Sight, check_media_type, read_base64, read_picture
from p2pexo.generation.content import PARAGRAPH, Content, joined, paragraphs
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import Message, PicturePart, Role, ToolCall
from p2pexo.generation.text import Prompt

BILLING_HEADER = "x-anthropic-billing-header:"
"""Claude Code begins its system prompt with such a line, another one each time. Lines at the head of the system prompt
that begin so are dropped, or no two prompts would begin alike."""

_USER_BLOCKS = ("text", "image", "tool_result")
_RESULT_BLOCKS = ("text", "image")
_ASSISTANT_BLOCKS = ("text", "tool_use", "thinking", "redacted_thinking")
_TEXT_ONLY = ("text",)

_SENSES = {
    "document": "this model can't read files; send their text",
}


def read_messages(body: Fields, *, sees: bool = False) -> tuple[Message, ...]:
    """The conversation, led by the system text if there is any. ``sees``: whether the model takes pictures.

    Raises InvalidRequestError naming what is at fault.
    """
    turns = [message for turn in body.children("messages") for message in _turn(turn, sees)]
    if not turns:
        raise body.wrong("messages", "a list with at least one message")
    return (*_system(body, sees), *turns)


def _system(body: Fields, sees: bool) -> list[Message]:
    text = _without_billing_headers(_text(body, "system", sees))
    return [Message(Role.SYSTEM, text)] if text else []


def _without_billing_headers(text: str) -> str:
    while text.startswith(BILLING_HEADER):
        text = text.partition("\n")[2].lstrip("\n")
    return text


def _turn(turn: Fields, sees: bool) -> list[Message]:
    role = turn.choice("role", "", ("user", "assistant", "system"))
    if turn.get("content") is None:
        raise turn.wrong("content", "a string or a list of content blocks")
    if role == "system":
        return [Message(Role.SYSTEM, text)] if (text := _text(turn, "content", sees)) else []
    return [_assistant(turn, sees)] if role == "assistant" else list(_user(turn, sees))


def _user(turn: Fields, sees: bool) -> Iterator[Message]:
    blocks = _blocks(turn, "content", _USER_BLOCKS, sees) or (_text_block(""),)
    for is_result, run in groupby(blocks, key=lambda block: _kind(block) == "tool_result"):
        if is_result:
            yield from (_tool_result(block, sees) for block in run)
        else:
            content = _content(run)
            yield Message(Role.USER, content.text, pictures=content.pictures)


def _assistant(turn: Fields, sees: bool) -> Message:
    blocks = _blocks(turn, "content", _ASSISTANT_BLOCKS, sees)
    thoughts = paragraphs(block.required_text("thinking") for block in blocks if _kind(block) == "thinking")
    return Message(
        Role.ASSISTANT,
        _joined([block for block in blocks if _kind(block) == "text"]),
        tuple(_tool_call(block) for block in blocks if _kind(block) == "tool_use"),
        reasoning=Prompt(thoughts) if thoughts else None,
    )


def _tool_call(block: Fields) -> ToolCall:
    arguments = block.child("input") or Fields({})
    return ToolCall(block.required_text("id"), block.required_text("name"), orjson.dumps(arguments.values).decode())


def _tool_result(block: Fields, sees: bool) -> Message:
    content = _content(_blocks(block, "content", _RESULT_BLOCKS, sees))
    if block.boolean("is_error"):
        content = joined((Content("Error: "), content))
    return Message(Role.TOOL, content.text, tool_call_id=block.required_text("tool_use_id"), pictures=content.pictures)


def _content(blocks: Iterable[Fields]) -> Content:
    return joined(map(_text_or_picture, blocks), PARAGRAPH)


def _text_or_picture(block: Fields) -> Content:
    if _kind(block) == "image":
        return Content(pictures=(_picture(block),))
    return Content(block.required_text("text"))


def _picture(block: Fields) -> PicturePart:
    source = block.child("source")
    if source is None:
        raise block.wrong("source", "an object with the data or the url of a picture")
    match source.choice("type", "", ("base64", "url", "file")):
        case "base64":
            check_media_type(source.required_text("media_type"), source.name_of("media_type"))
            return read_base64(source.required_text("data"), source.name_of("data"))
        case "url":
            return read_picture(source.required_text("url"), source.name_of("url"))
        case _:
            path = source.name_of("file_id")
            raise InvalidRequestError(f"{path}: no files are kept here; send the picture itself", param=path)


def _text(fields: Fields, name: str, sees: bool) -> str:
    """What stands under ``name``: a string, or blocks of text; empty when absent."""
    return _joined(_blocks(fields, name, _TEXT_ONLY, sees))


def _joined(blocks: Sequence[Fields]) -> str:
    return paragraphs(block.required_text("text") for block in blocks)


def _blocks(fields: Fields, name: str, kinds: Sequence[str], sees: bool) -> tuple[Fields, ...]:
    """The content blocks under ``name``; a string is one block of text. ``kinds`` may stand there, if the model can read them."""
    value = fields.get(name)
    if isinstance(value, str):
        return (_text_block(value, fields.name_of(name)),)
    if value is not None and not isinstance(value, list):
        raise fields.wrong(name, "a string or a list of content blocks")
    return fields.items(name, lambda item, path: _block(as_object(item, path), kinds, sees))


def _block(block: Fields, kinds: Sequence[str], sees: bool) -> Fields:
    kind = block.required_text("type")
    sight = Sight.of(sees, "image" in kinds)
    if kind in kinds and (kind != "image" or sight is Sight.OPEN):
        return block
    reason = sight.value if kind == "image" else _SENSES.get(kind, f"here stand only {', '.join(kinds)}")
    raise InvalidRequestError(
        f"{block.path}: a block of type {kind!r} is not taken: {reason}", param=block.name_of("type")
    )


def _text_block(text: str, path: str = "") -> Fields:
    return Fields({"type": "text", "text": text}, path)


def _kind(block: Fields) -> object:
    return block.get("type")
