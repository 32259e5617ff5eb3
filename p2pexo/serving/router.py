"""Carries a request to the ring of its model, wherever that is, and the events back; waits where a ring is on its way."""

from collections import defaultdict
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from secrets import randbits

import structlog
import trio
from attrs import evolve

from networking.overlay import Overlay
from networking.transport import MAX_FRAME_BYTES, PeerId, TransportError
from p2pexo.cluster.control import Control
from p2pexo.cluster.observed import Cluster, observe
from p2pexo.generation.codec import DecodeError, decode_event, encode
from p2pexo.generation.errors import (
    EngineError,
    GenerationError,
    InvalidRequestError,
    OverloadedError,
    PlacementDeletedError,
    RingBrokenError,
)
from p2pexo.generation.events import Event, Failed, Finished, Waiting
from p2pexo.generation.request import Request
from p2pexo.ring.plan import Placement
from p2pexo.serving.attempts import Attempts
from p2pexo.serving.balance import Balance
from p2pexo.serving.calls import GENERATE_PROTOCOL, GenerateCall
from p2pexo.serving.channels import produced
from p2pexo.serving.line import Line
from p2pexo.serving.prompts import pieces_of
from p2pexo.serving.records import Recorder, Records
from p2pexo.serving.route import Ready, find_route
from p2pexo.serving.settings import RouterSettings
from p2pexo.serving.waiting import RingFinder

RETRY_PAUSE_S = 0.2
"""After a ring that looked ready turned a request away: the facts that say otherwise are on their way."""

CALL_OVERHEAD_BYTES = 1024
"""What a request gains on its way to the ring: the placement's id, a seed, and the number of the attempt."""

Events = AbstractAsyncContextManager[trio.MemoryReceiveChannel[Event]]

log = structlog.get_logger(__name__)


class Router:
    def __init__(self, overlay: Overlay, control: Control, settings: RouterSettings) -> None:
        self._overlay = overlay
        self._control = control
        self._settings = settings
        self.records = Records()
        """How the last requests of this node's clients fared."""
        self.running = 0
        """Answers that clients of this node wait for or are being told."""
        self._one_ended = trio.Event()
        self._lines: defaultdict[str, Line] = defaultdict(lambda: Line(settings.max_waiting))
        self._balances: defaultdict[str, Balance] = defaultdict(lambda: Balance(settings))
        """Both by model."""

    def generate(self, request: Request) -> Events:
        """The events of the answer, ended by ``Finished`` or ``Failed``. Leaving the block cancels the request everywhere."""

        async def produce(send: trio.MemorySendChannel[Event]) -> None:
            with self._counted(), self.records.watching(request) as recorder:
                answer = _Answer(send, recorder)
                try:
                    _check_size(request)
                    await self._carry(Attempts(_seeded(request), self._settings), answer)
                except GenerationError as error:
                    await answer.send(Failed(error.report()))

        return produced(produce)

    @contextmanager
    def _counted(self) -> Generator[None]:
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self._one_ended.set()
            self._one_ended = trio.Event()

    async def wait_until_none(self) -> None:
        """Until no client of this node has an answer on its way."""
        while self.running:
            await self._one_ended.wait()

    async def _carry(self, attempts: Attempts, answer: "_Answer") -> None:
        """A ring that turns the request away, or is lost, is followed by another, which goes on where that one was."""
        request = attempts.request
        balance, pieces = self._balances[request.model], pieces_of(request)

        def choose(cluster: Cluster, ready: tuple[Placement, ...]) -> Placement:
            return balance.choose(cluster, ready, request.id, pieces, trio.current_time())

        line, settings = self._lines[request.model], self._settings
        finder = RingFinder(request.model, self._overlay, self._control.place, choose, line, answer.tell, settings)
        while True:
            placement = await _find(finder, attempts)
            answer.recorder.sent(placement, observe(self._overlay.view).name_of(placement.first_peer))
            try:
                with balance.carrying(placement):
                    end = await self._relay(placement, attempts, answer)
                if isinstance(end, Finished):
                    balance.answered(placement, pieces)
                return
            except RingBrokenError as error:
                self._raise_if_deleted(placement)
                balance.lost(placement, trio.current_time())
                attempts.lose(error, trio.current_time())
                log.info("request goes to another ring", **_names(attempts, placement), reason=error.message)
                await answer.tell(f"the ring was lost, and the answer goes on with the next one: {error.message}")
            if find_route(observe(self._overlay.view), placement.model) == Ready((placement,)):
                await trio.sleep(RETRY_PAUSE_S)

    async def _relay(self, placement: Placement, attempts: Attempts, answer: "_Answer") -> Finished | Failed:
        """The last event. Raises RingBrokenError if the ring is not there, or ends before the answer does."""
        async with self._open(placement, GenerateCall(placement.id, attempts.request)) as events:
            async for event in events:
                if isinstance(event, Failed) and _may_go_on(event, attempts):
                    raise RingBrokenError(event.error.message)
                told = attempts.take(event, trio.current_time())
                if told is not None:
                    await answer.send(told)
                if isinstance(event, Finished | Failed):
                    return event
        raise RingBrokenError(f"the answer of {placement.first_peer} ended without an end")

    def _open(self, placement: Placement, call: GenerateCall) -> Events:
        peer = PeerId(placement.first_peer)

        async def receive(send: trio.MemorySendChannel[Event]) -> None:
            try:
                await _receive_events(self._overlay, peer, call, send)
            except TransportError as error:
                failure = RingBrokenError(f"the connection to {peer}, which runs stage 0, was lost: {error}")
                await send.send(Failed(failure.report()))

        return produced(receive)

    def _raise_if_deleted(self, placement: Placement) -> None:
        deletion = observe(self._overlay.view).placements.deletion_of(placement.id)
        if deletion is not None and deletion.was_asked_for:
            raise PlacementDeletedError(f"{placement.model} was stopped: {deletion.reason}")


class _Answer:
    """What the client is told."""

    def __init__(self, channel: trio.MemorySendChannel[Event], recorder: Recorder) -> None:
        self.recorder = recorder
        self._channel = channel
        self._told = ""

    async def send(self, event: Event) -> None:
        self.recorder.told(event, trio.current_time())
        await self._channel.send(event)

    async def tell(self, reason: str) -> None:
        """Why the client waits; the same reason is not told twice in a row."""
        if reason != self._told:
            self._told = reason
            await self._channel.send(Waiting(reason))


async def _find(finder: RingFinder, attempts: Attempts) -> Placement:
    try:
        return await finder.find(attempts.gives_up_at)
    except PlacementDeletedError:
        raise
    except GenerationError as error:
        if attempts.gives_up_at is None:
            raise
        raise attempts.given_up(error) from error


def _may_go_on(failed: Failed, attempts: Attempts) -> bool:
    """Of the failures that a ring tells: its own end; and no room for a request that had its room on the ring before."""
    kind = failed.error.kind
    return kind == RingBrokenError.kind or (kind == OverloadedError.kind and attempts.has_begun)


def _names(attempts: Attempts, placement: Placement) -> dict[str, object]:
    request = attempts.request
    return {
        "request": request.id,
        "attempt": request.attempt,
        "tokens": len(request.replayed_tokens),
        "placement": placement.id,
    }


async def _receive_events(
    overlay: Overlay, peer: PeerId, call: GenerateCall, send: trio.MemorySendChannel[Event]
) -> None:
    """Until the other side finishes. However this ends, the stream is dropped, which cancels the request there."""
    stream = await overlay.open(peer, GENERATE_PROTOCOL)
    try:
        await stream.send(encode(call))
        while True:
            event = decode_event(await stream.receive())
            await send.send(event)
            if isinstance(event, Finished | Failed):
                return
    except DecodeError as error:
        await send.send(Failed(EngineError(f"{peer} sent an event that can't be read: {error}").report()))
    finally:
        stream.abort()


def _check_size(request: Request) -> None:
    """The same on the node of stage 0 as elsewhere. Raises InvalidRequestError."""
    size = len(encode(request)) + CALL_OVERHEAD_BYTES
    if size > MAX_FRAME_BYTES:
        sizes = f"{size / 1e6:.1f} MB, and at most {MAX_FRAME_BYTES / 1e6:.1f} MB can be carried"
        raise InvalidRequestError(f"the messages are too long: the request takes {sizes}", param="messages")


def _seeded(request: Request) -> Request:
    """A seed is drawn here, once, so that another attempt draws the same tokens."""
    if request.sampling.seed is not None:
        return request
    return evolve(request, sampling=evolve(request.sampling, seed=randbits(63)))
