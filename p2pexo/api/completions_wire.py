"""OpenAI's legacy Completions, outwards: chunks of a stream, or one body. Pure."""

from collections.abc import Iterable, Sequence

import orjson
from attrs import define, field

from p2pexo.api.chat_whole import gather
from p2pexo.api.chat_wire import DONE, ChunkStream, Envelope
from p2pexo.api.said import HeldLogprobs
from p2pexo.api.sse import data
from p2pexo.api.usage import openai_usage, total_usage
from p2pexo.generation.events import (
    Delta,
    Event,
    Finished,
    FinishReason,
    TokenLogprobs,
    Usage,
)

KIND = "text_completion"


@define
class CompletionStream(ChunkStream):
    """Server-sent events of the answers to all prompts, side by side. ``encode`` is fed every event once, in order."""

    envelope: Envelope
    echoes: tuple[str, ...] = ("",)
    """What stands before each answer."""
    per_prompt: int = 1
    include_usage: bool = False
    _choices: "list[_Choice]" = field(init=False)
    _usages: dict[int, Usage] = field(factory=dict[int, Usage], init=False)

    def __attrs_post_init__(self) -> None:
        self._choices = [_Choice(index, echo) for index, echo in enumerate(self.echoes)]

    def _delta(self, event: Delta) -> bytes:
        choice = self._choices[event.choice]
        logprobs = choice.held.of_text(event)
        return self._chunk(choice.tell(event.text, logprobs)) if event.text else b""

    def _finish(self, event: Finished) -> bytes:
        choice = self._choices[event.choice]
        self._usages[event.choice] = event.usage
        told = self._chunk(choice.tell("", choice.held.at_end(event), _reason(event)))
        return told + self._end() if len(self._usages) == len(self._choices) else told

    def _end(self) -> bytes:
        if not self.include_usage:
            return DONE
        usage = openai_usage(total_usage(self._usages, self.per_prompt))
        return data(orjson.dumps(self.envelope.around(KIND, choices=[], usage=usage))) + DONE

    def _chunk(self, choice: dict[str, object]) -> bytes:
        usage = {"usage": None} if self.include_usage else {}
        return data(orjson.dumps(self.envelope.around(KIND, choices=[choice], **usage)))


@define
class _Choice:
    index: int
    echo: str
    held: HeldLogprobs = field(factory=HeldLogprobs)
    _offset: int = 0

    def tell(self, text: str, logprobs: tuple[TokenLogprobs, ...], reason: str | None = None) -> dict[str, object]:
        text, self.echo = self.echo + text, ""
        told = _told(self.index, text, logprobs, self._offset, reason)
        self._offset += len(text)
        return told


def whole_completion(
    envelope: Envelope,
    events: Iterable[Event],
    echoes: Sequence[str] = ("",),
    per_prompt: int = 1,
) -> bytes:
    """The body of a whole answer. Raises the GenerationError that ended it, if one did."""
    said = gather(events, len(echoes))
    usage = total_usage({index: end.usage for index, (_, end) in enumerate(said)}, per_prompt)
    choices = [
        _told(index, echo + "".join(each.text), each.logprobs, 0, _reason(end))
        for index, (echo, (each, end)) in enumerate(zip(echoes, said, strict=True))
    ]
    return orjson.dumps(envelope.around(KIND, choices=choices, usage=openai_usage(usage)))


def _told(
    index: int, text: str, logprobs: Sequence[TokenLogprobs], offset: int, reason: str | None
) -> dict[str, object]:
    told = legacy_logprobs(logprobs, offset) if logprobs else None
    return {"index": index, "text": text, "logprobs": told, "finish_reason": reason}


def _reason(end: Finished) -> str:
    return "length" if end.reason is FinishReason.LENGTH else "stop"


def legacy_logprobs(tokens: Sequence[TokenLogprobs], offset: int) -> dict[str, object]:
    """The layout from before the chats: four lists side by side. ``offset`` is where the first token begins in the text."""
    offsets: list[int] = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.drawn.text)
    return {
        "tokens": [token.drawn.text for token in tokens],
        "token_logprobs": [token.drawn.logprob for token in tokens],
        "top_logprobs": [{each.text: each.logprob for each in token.top} for token in tokens],
        "text_offset": offsets,
    }
