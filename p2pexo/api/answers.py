"""A running answer: the events of one generation, or of several side by side, with an end that tells the truth."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from math import inf

import structlog
import trio
from attrs import define, evolve, field

from p2pexo.api.backend import Generator
from p2pexo.api.errors import internal_error
from p2pexo.api.field_names import CHAT, FieldNames
from p2pexo.api.lifetime import Lifetime
from p2pexo.generation.errors import EngineError, ErrorReport, GenerationError, UnavailableError
from p2pexo.generation.events import Delta, Event, Failed, Finished
from p2pexo.generation.request import Request

log = structlog.get_logger(__name__)

BUFFERED_EVENTS = 64
"""Events a slow client may lag behind. Raise it and a stalled client holds more memory; lower it and fewer tokens share a write."""

WAKE_S = 1.0
"""How often an answer looks whether its client was left in silence too long. Lower it and idle answers cost more."""

_STOPPING = UnavailableError("this node is stopping; the answer is not complete").report()
_UNFINISHED = EngineError("the answer broke off before its end").report()


def is_token(event: Event) -> bool:
    """Whether this event settles the status of the answer: something was produced, or it is over."""
    return isinstance(event, Delta | Finished | Failed)


def is_last(event: Event) -> bool:
    """Whether nothing follows in the generation that this event belongs to."""
    return isinstance(event, Finished | Failed)


@define
class Answer:
    """The events of one answer of one or several choices. It ends with the last ``Finished``, or the first ``Failed``."""

    _events: trio.MemoryReceiveChannel[Event | None]
    """None stands for nothing: it wakes whoever receives."""
    _unfinished: int = 1
    """Choices that go on."""
    wake_at: float = field(default=inf, init=False)
    """When ``receive`` shall return on trio's clock, empty-handed if need be; up to WAKE_S later."""
    _held: list[Event] = field(factory=list[Event], init=False)

    @property
    def ended(self) -> bool:
        """Whether the last event has come."""
        return self._unfinished == 0

    async def hold(self, seconds: float) -> None:
        """Wait for the first token or the end, at most ``seconds``. What comes meanwhile is kept for ``receive``."""
        with trio.move_on_after(seconds):
            while not self._held or not is_token(self._held[-1]):
                self._keep(await self._events.receive())

    @property
    def failure(self) -> ErrorReport | None:
        """Why the answer has failed, if that is known already and not yet received."""
        last = self._held[-1] if self._held else None
        return last.error if isinstance(last, Failed) else None

    async def receive(self) -> list[Event]:
        """All events that are ready, at least one; an empty list if none has come by ``wake_at``."""
        if not self._held:
            self._keep(await self._events.receive())
        return self.take_ready()

    def take_ready(self) -> list[Event]:
        """All events that are ready."""
        while not self.ended:
            try:
                self._keep(self._events.receive_nowait())
            except trio.WouldBlock:
                break
        ready, self._held = self._held, []
        return ready

    def _keep(self, event: Event | None) -> None:
        if event is None:
            return
        self._held.append(event)
        if isinstance(event, Failed):
            self._unfinished = 0
        elif isinstance(event, Finished):
            self._unfinished -= 1

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            for event in await self.receive():
                yield event
            if self.ended:
                return


def start_answer(generator: Generator, request: Request, lifetime: Lifetime, names: FieldNames = CHAT) -> Answer:
    """Begin to generate in a task of the HTTP request, so that it is cancelled when the client goes away.

    ``names``: what the dialect calls the field that a failure names.
    """
    return start_answers(generator, (request,), lifetime, names)


def start_answers(
    generator: Generator, requests: Sequence[Request], lifetime: Lifetime, names: FieldNames = CHAT
) -> Answer:
    """Begin to generate all ``requests`` at once, as the choices of one answer: the request says which one it is."""
    send, receive = trio.open_memory_channel[Event | None](BUFFERED_EVENTS)
    answer = Answer(receive, len(requests))
    for request in requests:
        log.debug("a request goes to its ring", request=request)
        lifetime.nursery.start_soon(_pump, generator, request, names, lifetime.stopping, send.clone())
    lifetime.nursery.start_soon(_wake, answer, send)
    return answer


async def _wake(answer: Answer, events: trio.MemorySendChannel[Event | None]) -> None:
    """A look at the clock now and then costs far less than a timer of its own for each token."""
    with events:
        while not answer.ended:
            await trio.sleep(WAKE_S)
            if trio.current_time() >= answer.wake_at:
                with suppress(trio.WouldBlock):
                    events.send_nowait(None)


async def _pump(
    generator: Generator,
    request: Request,
    names: FieldNames,
    stopping: trio.Event,
    events: trio.MemorySendChannel[Event | None],
) -> None:
    ended = False
    failure = _UNFINISHED
    with events:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when, stopping, nursery.cancel_scope)
            try:
                ended = await _forward(generator, request, names, events)
            except GenerationError as error:
                failure = names.tell(error.report())
            except Exception:
                log.exception("generation failed", request=request.id)
                failure = internal_error().report()
            nursery.cancel_scope.cancel()
        if not ended:
            await events.send(Failed(_STOPPING if stopping.is_set() else failure))


async def _forward(
    generator: Generator, request: Request, names: FieldNames, events: trio.MemorySendChannel[Event | None]
) -> bool:
    """Whether the answer came to its end."""
    async with generator.generate(request) as incoming:
        async for event in incoming:
            told = Failed(names.tell(event.error)) if isinstance(event, Failed) else _of_choice(event, request.choice)
            await events.send(told)
            if is_last(event):
                return True
    return False


def _of_choice(event: Event, choice: int) -> Event:
    """The event, marked with the choice that was asked for."""
    if isinstance(event, Delta | Finished) and event.choice != choice:
        return evolve(event, choice=choice)
    return event


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
