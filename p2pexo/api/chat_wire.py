"""OpenAI Chat Completions, outwards: events become chunks of a stream, or one completion. Pure."""

from collections.abc import Iterable

import orjson
from attrs import define, field, frozen

from p2pexo.api.errors import openai_error
from p2pexo.api.sse import KEEP_ALIVE, comment, data
from p2pexo.generation.errors import EngineError, from_report
from p2pexo.generation.events import Delta, Event, Failed, Finished, Progress, Started, Usage, Waiting

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


def _usage(usage: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


@define
class ChatStream:
    """Server-sent events of one streamed answer. ``encode`` is fed every event once, in order."""

    envelope: Envelope
    include_usage: bool = False
    _role_is_told: bool = field(default=False, init=False)

    def encode(self, event: Event) -> bytes:
        """The bytes that tell this event; empty when there is nothing to tell yet."""
        match event:
            case Waiting(reason):
                return comment(reason)
            case Progress(processed, total):
                return comment(f"prefill {processed}/{total}")
            case Started():
                return b""
            case Delta(text=text):
                return self._role() + self._chunk({"content": text}) if text else b""
            case Finished(reason, usage):
                return self._role() + self._chunk({}, reason.value) + self._total(usage) + DONE
            case Failed(error):
                return data(orjson.dumps(openai_error(error))) + DONE

    def keep_alive(self) -> bytes:
        return KEEP_ALIVE

    def _role(self) -> bytes:
        if self._role_is_told:
            return b""
        self._role_is_told = True
        return self._chunk({"role": "assistant", "content": ""})

    def _chunk(self, delta: dict[str, object], finish_reason: str | None = None) -> bytes:
        choice: dict[str, object] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._data([choice], None)

    def _total(self, usage: Usage) -> bytes:
        return self._data([], usage) if self.include_usage else b""

    def _data(self, choices: list[dict[str, object]], usage: Usage | None) -> bytes:
        chunk = self.envelope.around("chat.completion.chunk", choices=choices)
        if self.include_usage:
            chunk["usage"] = _usage(usage) if usage else None
        return data(orjson.dumps(chunk))


def completion(envelope: Envelope, events: Iterable[Event]) -> bytes:
    """The body of an answer that is not streamed. Raises the GenerationError that ended it, if one did."""
    text: list[str] = []
    for event in events:
        match event:
            case Delta():
                text.append(event.text)
            case Failed(error):
                raise from_report(error)
            case Finished():
                return orjson.dumps(_completion(envelope, "".join(text), event))
            case _:
                pass
    raise EngineError("the answer ended without saying why")


def _completion(envelope: Envelope, text: str, end: Finished) -> dict[str, object]:
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": end.reason.value}
    return envelope.around("chat.completion", choices=[choice], usage=_usage(end.usage))
