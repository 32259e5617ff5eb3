"""The event stream of a chat completion, read line by line into pieces. Pure."""

from collections.abc import Iterable, Iterator

from attrs import frozen

from p2pexo.generation.codec import DecodeError, decode

KEEP_ALIVE = "keep-alive"
"""The comment by which a node only says that it still works."""


class ChatError(Exception):
    """The answer failed, or broke off."""


@frozen
class Note:
    """What the node says while nothing of the answer is there yet, such as that the model is loading."""

    text: str


@frozen
class Text:
    text: str


@frozen
class Usage:
    prompt_tokens: int
    completion_tokens: int


@frozen
class End:
    finish_reason: str
    usage: Usage | None


ChatPiece = Note | Text | End


@frozen
class _Delta:
    content: str | None = None


@frozen
class _Choice:
    delta: _Delta = _Delta()
    finish_reason: str | None = None


@frozen
class _Error:
    message: str


@frozen
class _Chunk:
    choices: tuple[_Choice, ...] = ()
    usage: Usage | None = None
    error: _Error | None = None


def read_pieces(lines: Iterable[str]) -> Iterator[ChatPiece]:
    """``Note``s and ``Text``s, and one ``End`` last. Raises ChatError if the answer doesn't come to its end."""
    finish_reason, usage = None, None
    for line in lines:
        if line.startswith(":"):
            note = line[1:].strip()
            if note and note != KEEP_ALIVE:
                yield Note(note)
            continue
        if not line.startswith("data:") or (data := line[5:].strip()) == "[DONE]":
            continue
        chunk = _decode(data)
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish_reason = choice.finish_reason or finish_reason
            if choice.delta.content:
                yield Text(choice.delta.content)
    if finish_reason is None:
        raise ChatError("the answer broke off: the node closed the connection before its end")
    yield End(finish_reason, usage)


def _decode(data: str) -> _Chunk:
    try:
        chunk = decode(data.encode(), _Chunk)
    except DecodeError as error:
        raise ChatError(f"the node sent something that is no part of an answer: {data[:80]!r} ({error})") from error
    if chunk.error is not None:
        raise ChatError(chunk.error.message)
    return chunk
