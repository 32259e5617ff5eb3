"""OpenAI Chat Completions, outwards: events become chunks of a stream. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Iterable

import orjson
from attrs import define, field, frozen

from p2pexo.api.errors import openai_error
from p2pexo.api.said import HeldLogprobs
from p2pexo.api.sse import KEEP_ALIVE, data, meanwhile
from p2pexo.api.usage import openai_usage, total_usage
from p2pexo.generation.events import (
    Delta,
    Event,
    Failed,
    Finished,
    Likelihood,
    Progress,
    Started,
    TokenLogprobs,
    ToolCallDelta,
    Usage,
    Waiting,
)

DONE = data(b"[DONE]")


@frozen
class Envelope:
    """What every chunk of an answer repeats."""

    id: str
    created: int
    """Unix seconds."""
    model: str

    def around(self, kind: str, **parts: object) -> dict[str, object]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, **parts}


@define
class _Choice:
    """One of the answers that a stream tells side by side."""

    index: int
    role_is_told: bool = False
    logprobs: HeldLogprobs = field(factory=HeldLogprobs)


class ChunkStream(ABC):
    """A stream of chunks that ends with ``[DONE]``, as Chat Completions and legacy Completions both are."""

    def encode(self, event: Event) -> bytes:
        """The bytes that tell this event; empty when there is nothing to tell yet."""
        match event:
            case Waiting() | Progress() | Started():
                return meanwhile(event)
            case Delta():
                return self._delta(event)
            case Finished():
                return self._finish(event)
            case Failed(error):
                return data(orjson.dumps(openai_error(error))) + DONE

    def keep_alive(self) -> bytes:
        return KEEP_ALIVE

    @abstractmethod
    def _delta(self, event: Delta) -> bytes: ...

    @abstractmethod
    def _finish(self, event: Finished) -> bytes: ...


@define
class ChatStream(ChunkStream):
    """Server-sent events of one streamed answer. ``encode`` is fed every event once, in order."""

    envelope: Envelope
    include_usage: bool = False
    choices: int = 1
    _choices: dict[int, _Choice] = field(factory=dict[int, _Choice], init=False)
    _usages: dict[int, Usage] = field(factory=dict[int, Usage], init=False)

    def _delta(self, event: Delta) -> bytes:
        choice = self._choice(event.choice)
        logprobs = choice.logprobs.of_text(event)
        delta = delta_of(event)
        return self._role(choice) + self._chunk(choice, delta, logprobs) if delta else b""

    def _finish(self, event: Finished) -> bytes:
        choice = self._choice(event.choice)
        self._usages[event.choice] = event.usage
        told = self._role(choice) + self._chunk(choice, {}, choice.logprobs.at_end(event), event.reason.value)
        return told + self._end() if len(self._usages) == self.choices else told

    def _end(self) -> bytes:
        if not self.include_usage:
            return DONE
        return self._data([], total_usage(self._usages, self.choices)) + DONE

    def _choice(self, index: int) -> _Choice:
        if index not in self._choices:
            self._choices[index] = _Choice(index)
        return self._choices[index]

    def _role(self, choice: _Choice) -> bytes:
        if choice.role_is_told:
            return b""
        choice.role_is_told = True
        return self._chunk(choice, {"role": "assistant", "content": ""})

    def _chunk(
        self,
        choice: _Choice,
        delta: dict[str, object],
        logprobs: tuple[TokenLogprobs, ...] = (),
        finish_reason: str | None = None,
    ) -> bytes:
        told: dict[str, object] = {
            "index": choice.index,
            "delta": delta,
            "logprobs": openai_logprobs(logprobs) if logprobs else None,
            "finish_reason": finish_reason,
        }
        return self._data([told], None)

    def _data(self, choices: list[dict[str, object]], usage: Usage | None) -> bytes:
        chunk = self.envelope.around("chat.completion.chunk", choices=choices)
        if self.include_usage:
            chunk["usage"] = openai_usage(usage) if usage else None
        return data(orjson.dumps(chunk))


def delta_of(event: Delta) -> dict[str, object]:
    """What is new to be read; empty when all of it is held back."""
    delta: dict[str, object] = {}
    if event.reasoning:
        delta["reasoning_content"] = event.reasoning
    if event.text:
        delta["content"] = event.text
    if event.tool_calls:
        delta["tool_calls"] = [_call_piece(piece) for piece in event.tool_calls]
    return delta


def _call_piece(piece: ToolCallDelta) -> dict[str, object]:
    """Clients join the pieces: ``id``, ``type`` and ``name`` are told once, or they would be doubled."""
    if not piece.id:
        return {"index": piece.index, "function": {"arguments": piece.arguments}}
    function = {"name": piece.name, "arguments": piece.arguments}
    return {"index": piece.index, "id": piece.id, "type": "function", "function": function}


def openai_logprobs(tokens: Iterable[TokenLogprobs]) -> dict[str, object]:
    content = [
        {**_likelihood(token.drawn), "top_logprobs": [_likelihood(each) for each in token.top]} for token in tokens
    ]
    return {"content": content, "refusal": None}


def _likelihood(each: Likelihood) -> dict[str, object]:
    return {"token": each.text, "logprob": each.logprob, "bytes": each.bytes}
