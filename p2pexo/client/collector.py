"""Puts the events of a stream together to a whole answer, and measures it as its reader hears it."""

import time
from collections import defaultdict
from collections.abc import Callable

from attrs import define, field

from p2pexo.client.chat import (
    Answer,
    ChatEvent,
    Choice,
    Finished,
    Logprobs,
    Note,
    Reasoning,
    Text,
    TokenLogprob,
    ToolCallPart,
    Usage,
)
from p2pexo.client.errors import BrokenStreamError
from p2pexo.client.messages import ToolCall


@define
class _Gathered:
    text: list[str] = field(factory=list[str])
    reasoning: list[str] = field(factory=list[str])
    calls: dict[int, ToolCall] = field(factory=dict[int, ToolCall])
    logprobs: list[TokenLogprob] = field(factory=list[TokenLogprob])

    def add(self, event: Reasoning | Text | ToolCallPart | Logprobs) -> None:
        match event:
            case Text(text):
                self.text.append(text)
            case Reasoning(text):
                self.reasoning.append(text)
            case Logprobs(tokens):
                self.logprobs += tokens
            case ToolCallPart(index, id, name, arguments):
                known = self.calls.get(index, ToolCall("", "", ""))
                self.calls[index] = ToolCall(known.id + id, known.name + name, known.arguments + arguments)

    def choice(self, reason: str) -> Choice:
        calls = tuple(self.calls[index] for index in sorted(self.calls))
        return Choice("".join(self.text), "".join(self.reasoning), calls, reason, tuple(self.logprobs))


@define
class Collector:
    """Make it when you ask, ``add`` each event; then ``answer``, or ``so_far`` if you went away before the end."""

    _clock: Callable[[], float] = field(default=time.monotonic, alias="clock")
    _asked_at: float = field(init=False)
    _first_at: float | None = field(default=None, init=False)
    _last_at: float = field(default=0.0, init=False)
    _choices: defaultdict[int, _Gathered] = field(factory=lambda: defaultdict[int, _Gathered](_Gathered), init=False)
    _end: Finished | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._asked_at = self._clock()

    def add(self, event: ChatEvent) -> None:
        match event:
            case Finished():
                self._end = event
            case Note():
                pass
            case _:
                self._choices[event.choice].add(event)
                self._last_at = self._clock()
                self._first_at = self._last_at if self._first_at is None else self._first_at

    def answer(self) -> Answer:
        """Raises BrokenStreamError if the answer has no end."""
        if self._end is None:
            raise BrokenStreamError("the answer broke off before its end")
        return self.so_far()

    def so_far(self) -> Answer:
        """What has come until now; without an end it has no reason and no usage."""
        reasons = dict(enumerate(self._end.reasons)) if self._end else {}
        count = max([*self._choices, *reasons], default=0) + 1
        return Answer(
            tuple(self._choices[index].choice(reasons.get(index, "")) for index in range(count)),
            self._end.usage if self._end else Usage(),
            None if self._first_at is None else self._first_at - self._asked_at,
            0.0 if self._first_at is None else self._last_at - self._first_at,
        )
