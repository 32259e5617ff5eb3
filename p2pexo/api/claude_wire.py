"""Claude Messages, outwards: events become content blocks, of a stream or of one message. Pure.

Blocks come one after another: as soon as the model goes over from thinking to speaking, or to a tool call, one block is
closed and the next opened.
"""

from collections.abc import Iterable, Iterator

import orjson
from attrs import define, evolve, field, frozen

from p2pexo.api import sse
from p2pexo.api.errors import claude_error
from p2pexo.api.tool_arguments import read_arguments
from p2pexo.generation.errors import EngineError, from_report
from p2pexo.generation.events import Delta, Event, Failed, Finished, FinishReason, Started, Usage, Waiting

SIGNATURE = "p2pexo"
"""Of thinking blocks. Clients want one that isn't empty; it proves nothing, and when it comes back nobody looks at it."""

_STOP_REASONS = {
    FinishReason.STOP: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.TOOL_CALLS: "tool_use",
}


@frozen
class Voice:
    """How the answer is told: what every message says of itself, and whether the client wants to read the thoughts."""

    id: str
    model: str
    show_thinking: bool = True
    request_id: str = ""
    """Of the HTTP request, as the header says it; a failure in a stream repeats it."""

    def message(self, content: list[dict[str, object]], end: Finished | None, usage: dict[str, object]) -> object:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            **_stop(end),
            "usage": usage,
        }


@frozen
class Piece:
    """More of a block. Pieces of the same block have the same ``kind`` and ``call``."""

    kind: str
    text: str
    call: int | None = None
    """Index of the tool call."""
    id: str = ""
    name: str = ""

    def continues(self, other: "Piece | None") -> bool:
        return other is not None and (self.kind, self.call) == (other.kind, other.call)


def _pieces(delta: Delta) -> Iterator[Piece]:
    if delta.reasoning:
        yield Piece("thinking", delta.reasoning)
    if delta.text:
        yield Piece("text", delta.text)
    for call in delta.tool_calls:
        yield Piece("tool_use", call.arguments, call.index, call.id, call.name)


@define
class ClaudeStream:
    """Server-sent events of one streamed answer. ``encode`` is fed every event once, in order."""

    voice: Voice
    _is_started: bool = field(default=False, init=False)
    _open: Piece | None = field(default=None, init=False)
    """The first piece of the block that is open."""
    _index: int = field(default=-1, init=False)

    def keep_alive(self) -> bytes:
        """Also before ``message_start``: the SDKs drop it before they look at the order."""
        return _event("ping")

    def encode(self, event: Event) -> bytes:
        match event:
            case Started(prompt_tokens, cached_tokens):
                return self._start(Usage(prompt_tokens, 0, cached_tokens))
            case Delta():
                return self._start(Usage(0, 0)) + b"".join(self._tell(piece) for piece in _pieces(event))
            case Finished():
                end = _event("message_delta", delta=_stop(event), usage=_usage(event.usage))
                return (
                    self._start(evolve(event.usage, completion_tokens=0)) + self._close() + end + _event("message_stop")
                )
            case Failed(error):
                return sse.event("error", orjson.dumps(claude_error(error, self.voice.request_id)))
            case Waiting() if self._is_started:
                return self.keep_alive()
            case _:
                return b""

    def _start(self, usage: Usage) -> bytes:
        if self._is_started:
            return b""
        self._is_started = True
        return _event("message_start", message=self.voice.message([], None, _usage(usage)))

    def _tell(self, piece: Piece) -> bytes:
        opened = b"" if piece.continues(self._open) else self._close() + self._begin(piece)
        is_hidden = piece.kind == "thinking" and not self.voice.show_thinking
        return opened if is_hidden or not piece.text else opened + self._delta(_delta(piece))

    def _begin(self, piece: Piece) -> bytes:
        self._open = piece
        self._index += 1
        return _event("content_block_start", index=self._index, content_block=_empty_block(piece))

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        is_thought = self._open.kind == "thinking"
        self._open = None
        signature = self._delta({"type": "signature_delta", "signature": SIGNATURE}) if is_thought else b""
        return signature + _event("content_block_stop", index=self._index)

    def _delta(self, delta: dict[str, object]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)


def _delta(piece: Piece) -> dict[str, object]:
    match piece.kind:
        case "thinking":
            return {"type": "thinking_delta", "thinking": piece.text}
        case "text":
            return {"type": "text_delta", "text": piece.text}
        case _:
            return {"type": "input_json_delta", "partial_json": piece.text}


def _empty_block(piece: Piece) -> dict[str, object]:
    match piece.kind:
        case "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}
        case "text":
            return {"type": "text", "text": ""}
        case _:
            return {"type": "tool_use", "id": piece.id, "name": piece.name, "input": {}}


def message(voice: Voice, events: Iterable[Event]) -> bytes:
    """The body of an answer that is not streamed. Raises the GenerationError that ended it, if one did."""
    blocks: list[list[Piece]] = []
    for event in events:
        match event:
            case Delta():
                _gather(blocks, event)
            case Failed(error):
                raise from_report(error)
            case Finished():
                content = [block for pieces in blocks if (block := _whole_block(voice, pieces)) is not None]
                return orjson.dumps(voice.message(content, event, _usage(event.usage)))
            case _:
                pass
    raise EngineError("the answer ended without saying why")


def _gather(blocks: list[list[Piece]], delta: Delta) -> None:
    for piece in _pieces(delta):
        if blocks and piece.continues(blocks[-1][0]):
            blocks[-1].append(piece)
        else:
            blocks.append([piece])


def _whole_block(voice: Voice, pieces: list[Piece]) -> dict[str, object] | None:
    """None for a tool call that was cut off: what is left of it must not be taken for the call."""
    text = "".join(piece.text for piece in pieces)
    block = _empty_block(pieces[0])
    match pieces[0].kind:
        case "thinking":
            return block | {"thinking": text if voice.show_thinking else "", "signature": SIGNATURE}
        case "text":
            return block | {"text": text}
        case _:
            arguments = read_arguments(text)
            return None if arguments is None else block | {"input": arguments}


def _stop(end: Finished | None) -> dict[str, object]:
    if end is None:
        return {"stop_reason": None, "stop_sequence": None}
    if end.stop_text is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": end.stop_text}
    return {"stop_reason": _STOP_REASONS[end.reason], "stop_sequence": None}


def _usage(usage: Usage) -> dict[str, object]:
    """``input_tokens`` and ``cache_read_input_tokens`` together are the prompt, so that their sum is what ``count_tokens`` says."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def _event(kind: str, **fields: object) -> bytes:
    return sse.event(kind, orjson.dumps({"type": kind, **fields}))
