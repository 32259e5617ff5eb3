"""Ollama's chat and generate, outwards: events become lines of JSON, or one object. Pure but for the clocks it is given.

The two differ only in where the words of the model stand. A tool call is told when it is whole.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

import orjson
from attrs import define, evolve, field, frozen

from p2pexo.api.errors import ollama_error
from p2pexo.api.tool_arguments import read_arguments
from p2pexo.generation.errors import EngineError, from_report
from p2pexo.generation.events import (
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    Likelihood,
    TokenLogprobs,
    ToolCallDelta,
)

MEDIA_TYPE = "application/x-ndjson"


@frozen
class Said:
    """What a line tells of the answer."""

    text: str = ""
    thinking: str = ""
    calls: tuple[dict[str, object], ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()

    def __add__(self, more: "Said") -> "Said":
        return Said(
            self.text + more.text,
            self.thinking + more.thinking,
            self.calls + more.calls,
            self.logprobs + more.logprobs,
        )

    @property
    def is_worth_a_line(self) -> bool:
        return bool(self.text or self.thinking or self.calls)

    @property
    def extras(self) -> dict[str, object]:
        """Beside the text, only what there is."""
        extras: dict[str, object] = {}
        if self.thinking:
            extras["thinking"] = self.thinking
        if self.calls:
            extras["tool_calls"] = self.calls
        return extras


Shape = Callable[[Said], dict[str, object]]


def chat_shape(said: Said) -> dict[str, object]:
    return {"message": {"role": "assistant", "content": said.text, **said.extras}}


def generate_shape(said: Said) -> dict[str, object]:
    return {"response": said.text, **said.extras}


@frozen
class Voice:
    """How an answer is told: what every line repeats, the shape of the words, and the clocks."""

    model: str
    shape: Shape
    begun_ns: int
    """When the request came, on ``clock_ns``."""
    clock_ns: Callable[[], int]
    """Monotonic."""
    now: Callable[[], datetime]
    """Wall clock, UTC."""

    def line(self, said: Said, **more: object) -> bytes:
        line: dict[str, object] = {"model": self.model, "created_at": timestamp(self.now()), **self.shape(said)}
        if said.logprobs:
            line["logprobs"] = [_logprob(each) for each in said.logprobs]
        return orjson.dumps({**line, "done": False, **more}) + b"\n"

    def last_line(self, said: Said, end: Finished) -> bytes:
        return self.line(said, done=True, done_reason=_done_reason(end.reason), **self._counts(end))

    def _counts(self, end: Finished) -> dict[str, object]:
        """All durations in ns. What was neither prefill nor decoding counts as loading: waiting, too, is part of it."""
        total, prefill, decode = (
            self.clock_ns() - self.begun_ns,
            _nanoseconds(end.prefill_s),
            _nanoseconds(end.decode_s),
        )
        return {
            "total_duration": total,
            "load_duration": max(0, total - prefill - decode),
            "prompt_eval_count": end.usage.prompt_tokens,
            "prompt_eval_duration": prefill,
            "eval_count": end.usage.completion_tokens,
            "eval_duration": decode,
        }


@define
class _Calls:
    """Pieces of tool calls until each call is whole: when the next one begins, or the answer ends."""

    _current: ToolCallDelta | None = field(default=None, init=False)

    def take(self, pieces: Iterable[ToolCallDelta]) -> tuple[dict[str, object], ...]:
        """The calls that these pieces complete."""
        whole: tuple[dict[str, object], ...] = ()
        for piece in pieces:
            current = self._current
            if current is None or piece.index != current.index:
                whole += self.finish()
                self._current = piece
            else:
                self._current = evolve(current, arguments=current.arguments + piece.arguments)
        return whole

    def finish(self) -> tuple[dict[str, object], ...]:
        """The last call; none if it was cut off: what is left of it must not be taken for the call."""
        call, self._current = self._current, None
        arguments = None if call is None else read_arguments(call.arguments)
        if call is None or arguments is None:
            return ()
        return ({"id": call.id, "function": {"index": call.index, "name": call.name, "arguments": arguments}},)


@define
class OllamaStream:
    """Lines of one streamed answer. ``encode`` is fed every event once, in order."""

    voice: Voice
    _calls: _Calls = field(factory=_Calls, init=False)
    _untold: Said = field(factory=Said, init=False)

    def keep_alive(self) -> bytes:
        """Lines of JSON have no word for it: a blank one already breaks clients."""
        return b""

    def encode(self, event: Event) -> bytes:
        match event:
            case Delta(text=text, reasoning=reasoning, logprobs=logprobs):
                return self._tell(Said(text, reasoning, self._calls.take(event.tool_calls), logprobs))
            case Finished():
                calls = self._tell(Said(calls=self._calls.finish()))
                return calls + self.voice.last_line(self._untold, event)
            case Failed(error):
                return orjson.dumps(ollama_error(error)) + b"\n"
            case _:
                return b""

    def _tell(self, said: Said) -> bytes:
        """Log probabilities of tokens whose text is still held back wait for the next line."""
        self._untold += said
        if not self._untold.is_worth_a_line:
            return b""
        told, self._untold = self._untold, Said()
        return self.voice.line(told)


def whole(voice: Voice, events: Iterable[Event]) -> bytes:
    """The body of an answer that is not streamed. Raises the GenerationError that ended it, if one did."""
    said, calls = Said(), _Calls()
    for event in events:
        match event:
            case Delta(text=text, reasoning=reasoning, logprobs=logprobs):
                said += Said(text, reasoning, calls.take(event.tool_calls), logprobs)
            case Failed(error):
                raise from_report(error)
            case Finished():
                return voice.last_line(said + Said(calls=calls.finish()), event)
            case _:
                pass
    raise EngineError("the answer ended without saying why")


def timestamp(moment: datetime) -> str:
    """RFC 3339, UTC."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _done_reason(reason: FinishReason) -> str:
    return "length" if reason is FinishReason.LENGTH else "stop"


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1_000_000_000)


def _logprob(token: TokenLogprobs) -> dict[str, object]:
    return {**_likelihood(token.drawn), "top_logprobs": [_likelihood(each) for each in token.top]}


def _likelihood(token: Likelihood) -> dict[str, object]:
    return {"token": token.text, "logprob": token.logprob, "bytes": token.bytes}
