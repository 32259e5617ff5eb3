"""The output items of a response, growing from events: reasoning, message, function calls. Pure.

One item is open at a time; a piece of another kind closes it and opens the next. Each step gives the wire events that
tell it, without their sequence numbers.
"""

from collections.abc import Iterator
from typing import Protocol

from attrs import define, field

from p2pexo.api.said import HeldLogprobs
from p2pexo.generation.events import Delta, Finished, FinishReason, Likelihood, TokenLogprobs, ToolCallDelta

WireEvent = dict[str, object]
"""One event as JSON, ``type`` first."""

Item = dict[str, object]

RESPONSE_PREFIX = "resp_"


class OpenItem(Protocol):
    """An item that still grows."""

    def opening(self) -> list[WireEvent]: ...
    def closing(self) -> list[WireEvent]: ...
    def item(self, status: str) -> Item: ...


@define
class Place:
    """Where an item stands: what all of its events repeat."""

    id: str
    index: int

    def event(self, kind: str, **parts: object) -> WireEvent:
        return {"type": f"response.{kind}", "item_id": self.id, "output_index": self.index, **parts}


@define
class ReasoningItem:
    place: Place
    text: str = ""

    def add(self, piece: str) -> WireEvent:
        self.text += piece
        return self.place.event("reasoning_summary_text.delta", summary_index=0, delta=piece)

    def opening(self) -> list[WireEvent]:
        return [self.place.event("reasoning_summary_part.added", summary_index=0, part=self._part())]

    def closing(self) -> list[WireEvent]:
        return [
            self.place.event("reasoning_summary_text.done", summary_index=0, text=self.text),
            self.place.event("reasoning_summary_part.done", summary_index=0, part=self._part()),
        ]

    def item(self, status: str) -> Item:
        summary = [self._part()] if self.text else []
        return {"id": self.place.id, "type": "reasoning", "status": status, "summary": summary}

    def _part(self) -> Item:
        return {"type": "summary_text", "text": self.text}


@define
class TextItem:
    place: Place
    text: str = ""
    logprobs: list[Item] = field(factory=list[Item])
    is_opening: bool = True
    """The content part is announced after the item, which has none until then."""

    def add(self, piece: str, logprobs: list[Item]) -> WireEvent:
        self.text += piece
        self.logprobs += logprobs
        return self.place.event("output_text.delta", content_index=0, delta=piece, logprobs=logprobs)

    def opening(self) -> list[WireEvent]:
        self.is_opening = False
        return [self.place.event("content_part.added", content_index=0, part=self._part())]

    def closing(self) -> list[WireEvent]:
        return [
            self.place.event("output_text.done", content_index=0, text=self.text, logprobs=list(self.logprobs)),
            self.place.event("content_part.done", content_index=0, part=self._part()),
        ]

    def item(self, status: str) -> Item:
        content = [] if self.is_opening else [self._part()]
        return {"id": self.place.id, "type": "message", "status": status, "role": "assistant", "content": content}

    def _part(self) -> Item:
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": list(self.logprobs)}


@define
class CallItem:
    place: Place
    call_id: str
    name: str
    arguments: str = ""

    def add(self, piece: str) -> WireEvent:
        self.arguments += piece
        return self.place.event("function_call_arguments.delta", delta=piece)

    def opening(self) -> list[WireEvent]:
        return []

    def closing(self) -> list[WireEvent]:
        return [self.place.event("function_call_arguments.done", name=self.name, arguments=self.arguments)]

    def item(self, status: str) -> Item:
        return {
            "id": self.place.id,
            "type": "function_call",
            "status": status,
            "call_id": self.call_id,
            "name": self.name,
            "arguments": self.arguments,
        }


@define
class Output:
    """The items of one response. Their ids are made from its own, so that each leads back to it."""

    response_id: str
    _done: list[Item] = field(factory=list[Item], init=False)
    _open: OpenItem | None = field(default=None, init=False)
    _held: HeldLogprobs = field(factory=HeldLogprobs, init=False)

    def add(self, delta: Delta) -> Iterator[WireEvent]:
        """Take in what the model produced. The events must be drawn to their end."""
        logprobs = [_logprob(each) for each in self._held.of_text(delta)]
        if delta.reasoning:
            yield from self._add_reasoning(delta.reasoning)
        if delta.text:
            yield from self._add_text(delta.text, logprobs)
        for piece in delta.tool_calls:
            yield from self._add_call(piece)

    def end(self, end: Finished) -> Iterator[WireEvent]:
        """Close what is open, ``incomplete`` if the answer was cut. An answer without anything is an empty message."""
        if self._open is None and not self._done:
            yield from self._begin(TextItem(self._place("msg")))
        if isinstance(self._open, TextItem):
            self._open.logprobs += map(_logprob, self._held.at_end(end))
        yield from self._close("incomplete" if end.reason is FinishReason.LENGTH else "completed")

    def items(self) -> list[Item]:
        """All items as they stand; one that still grows is ``incomplete``."""
        return [*self._done, self._open.item("incomplete")] if self._open else list(self._done)

    def _add_reasoning(self, piece: str) -> Iterator[WireEvent]:
        if not isinstance(self._open, ReasoningItem):
            yield from self._close()
            yield from self._begin(reasoning := ReasoningItem(self._place("rs")))
        else:
            reasoning = self._open
        yield reasoning.add(piece)

    def _add_text(self, piece: str, logprobs: list[Item]) -> Iterator[WireEvent]:
        if not isinstance(self._open, TextItem):
            yield from self._close()
            yield from self._begin(text := TextItem(self._place("msg")))
        else:
            text = self._open
        yield text.add(piece, logprobs)

    def _add_call(self, piece: ToolCallDelta) -> Iterator[WireEvent]:
        if piece.id or not isinstance(self._open, CallItem):
            yield from self._close()
            yield from self._begin(call := CallItem(self._place("fc"), piece.id, piece.name))
        else:
            call = self._open
        if piece.arguments:
            yield call.add(piece.arguments)

    def _begin(self, item: OpenItem) -> Iterator[WireEvent]:
        self._open = item
        yield self._item_event("added", item.item("in_progress"))
        yield from item.opening()

    def _close(self, status: str = "completed") -> Iterator[WireEvent]:
        if self._open is None:
            return
        yield from self._open.closing()
        item, self._open = self._open.item(status), None
        yield self._item_event("done", item)
        self._done.append(item)

    def _item_event(self, kind: str, item: Item) -> WireEvent:
        return item_event(kind, len(self._done), item)

    def _place(self, kind: str) -> Place:
        name = self.response_id.removeprefix(RESPONSE_PREFIX)
        return Place(f"{kind}_{name}_{len(self._done)}", len(self._done))


def item_event(kind: str, index: int, item: Item) -> WireEvent:
    """``kind``: ``added`` or ``done``."""
    return {"type": f"response.output_item.{kind}", "output_index": index, "item": item}


def _logprob(token: TokenLogprobs) -> Item:
    return {**_likelihood(token.drawn), "top_logprobs": [_likelihood(each) for each in token.top]}


def _likelihood(token: Likelihood) -> Item:
    return {"token": token.text, "bytes": list(token.bytes), "logprob": token.logprob}


def response_id_of(item_id: str) -> str:
    """The id of the response that an output item belongs to; of no response if the item is not ours."""
    name, _, _ = item_id.partition("_")[2].rpartition("_")
    return RESPONSE_PREFIX + name
