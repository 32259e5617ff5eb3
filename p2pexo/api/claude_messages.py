"""Claude's system prompt and messages, blocks and all, as ``generation.Message``s. Pure.

The texts of a turn's blocks are paragraphs: an empty line is put between them. What a user's turn says round its tool
results keeps its place. Marks for caches are not looked at.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import orjson

from p2pexo.api.fields import Fields, as_object
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import Message, Role, ToolCall
from p2pexo.generation.text import Prompt

BILLING_HEADER = "x-anthropic-billing-header:"
"""Claude Code begins its system prompt with such a line, another one each time. Lines at the head of the system prompt
that begin so are dropped, or no two prompts would begin alike."""

PARAGRAPH = "\n\n"

_USER_BLOCKS = ("text", "tool_result")
_ASSISTANT_BLOCKS = ("text", "tool_use", "thinking", "redacted_thinking")
_TEXT_ONLY = ("text",)

_SIDES = (Role.USER, Role.ASSISTANT)

_SENSES = {
    "image": "this model can't see pictures",
    "document": "this model can't read files; send their text",
}


def read_messages(body: Fields) -> tuple[Message, ...]:
    """The conversation, led by the system text if there is any. Raises InvalidRequestError naming what is at fault."""
    turns = [message for turn in body.children("messages") for message in _turn(turn)]
    if not turns:
        raise body.wrong("messages", "a list with at least one message")
    return (*_system(body), *_combined(turns))


def _system(body: Fields) -> list[Message]:
    text = _without_billing_headers(_text(body, "system"))
    return [Message(Role.SYSTEM, text)] if text else []


def _without_billing_headers(text: str) -> str:
    while text.startswith(BILLING_HEADER):
        text = text.partition("\n")[2].lstrip("\n")
    return text


def _combined(turns: Iterable[Message]) -> list[Message]:
    """What follows on the same side is one turn, as Claude has it: many templates want the sides to alternate."""
    combined: list[Message] = []
    for turn in turns:
        if combined and turn.role is combined[-1].role and turn.role in _SIDES:
            combined[-1] = _both(combined[-1], turn)
        else:
            combined.append(turn)
    return combined


def _both(first: Message, second: Message) -> Message:
    thoughts = _paragraphs((first.reasoning, second.reasoning))
    return Message(
        first.role,
        _paragraphs((first.content, second.content)),
        first.tool_calls + second.tool_calls,
        reasoning=Prompt(thoughts) if thoughts else None,
    )


def _turn(turn: Fields) -> list[Message]:
    role = turn.choice("role", "", ("user", "assistant", "system"))
    if turn.get("content") is None:
        raise turn.wrong("content", "a string or a list of content blocks")
    if role == "system":
        return [Message(Role.SYSTEM, text)] if (text := _text(turn, "content")) else []
    return [_assistant(turn)] if role == "assistant" else list(_user(turn))


def _user(turn: Fields) -> Iterator[Message]:
    blocks = _blocks(turn, "content", _USER_BLOCKS) or (_text_block(""),)
    for kind, run in groupby(blocks, key=_kind):
        if kind == "tool_result":
            yield from (_tool_result(block) for block in run)
        else:
            yield Message(Role.USER, _joined(list(run)))


def _assistant(turn: Fields) -> Message:
    blocks = _blocks(turn, "content", _ASSISTANT_BLOCKS)
    thoughts = _paragraphs(block.required_text("thinking") for block in blocks if _kind(block) == "thinking")
    return Message(
        Role.ASSISTANT,
        _joined([block for block in blocks if _kind(block) == "text"]),
        tuple(_tool_call(block) for block in blocks if _kind(block) == "tool_use"),
        reasoning=Prompt(thoughts) if thoughts else None,
    )


def _tool_call(block: Fields) -> ToolCall:
    arguments = block.child("input") or Fields({})
    return ToolCall(block.required_text("id"), block.required_text("name"), orjson.dumps(arguments.values).decode())


def _tool_result(block: Fields) -> Message:
    text = _text(block, "content")
    if block.boolean("is_error"):
        text = f"Error: {text}"
    return Message(Role.TOOL, text, tool_call_id=block.required_text("tool_use_id"))


def _text(fields: Fields, name: str) -> str:
    """What stands under ``name``: a string, or blocks of text; empty when absent."""
    return _joined(_blocks(fields, name, _TEXT_ONLY))


def _joined(blocks: Sequence[Fields]) -> str:
    return _paragraphs(block.required_text("text") for block in blocks)


def _paragraphs(texts: Iterable[str | None]) -> str:
    return PARAGRAPH.join(filter(None, texts))


def _blocks(fields: Fields, name: str, kinds: Sequence[str]) -> tuple[Fields, ...]:
    """The content blocks under ``name``; a string is one block of text."""
    value = fields.get(name)
    if isinstance(value, str):
        return (_text_block(value, fields.name_of(name)),)
    if value is not None and not isinstance(value, list):
        raise fields.wrong(name, "a string or a list of content blocks")
    return fields.items(name, lambda item, path: _block(item, path, kinds))


def _block(item: object, path: str, kinds: Sequence[str]) -> Fields:
    block = as_object(item, path)
    kind = block.required_text("type")
    if kind in kinds:
        return block
    reason = _SENSES.get(kind, f"here stand only {', '.join(kinds)}")
    raise InvalidRequestError(f"{path}: a block of type {kind!r} is not taken: {reason}", param=f"{path}.type")


def _text_block(text: str, path: str = "") -> Fields:
    return Fields({"type": "text", "text": text}, path)


def _kind(block: Fields) -> object:
    return block.get("type")
