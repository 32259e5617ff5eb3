"""The library's face, and the driver of the peer machine: join, members, leader, facts, requests and streams.

All decisions are made in ``peer.Peer``; this file only carries messages between it and a ``Transport``.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from random import Random, SystemRandom
from typing import Protocol

import trio
from attrs import define, field, frozen

from networking.actions import Action, Broadcast, Close, Save, SavedState, Send, Warn
from networking.controls import CONTROL_PROTOCOL, LINGER_S, Controls
from networking.dialling import Dialler, DialSettings, Signal
from networking.documents import FactTooLargeError
from networking.membership import MemberState
from networking.peer import MergePayloads, NotLeaderError, Peer, PeerSettings
from networking.requests import LocalStream, RequestHandler, RequestRefusedError, answer, ask
from networking.transport import (
    Address,
    Connection,
    PeerId,
    Sign,
    Stream,
    StreamHandler,
    Transport,
    TransportError,
    Verify,
)
from networking.view import Member, View
from networking.wire import encode

logger = logging.getLogger(__name__)

GOSSIP_TOPIC = "overlay/1"
QUEUED_BROADCASTS = 512
"""Beyond it, changes are left to the digests."""
PASSES_OF_A_FRAME = 10
"""Through how many tasks, one per pass of the event loop, a frame gets from its socket here. Lowered, a late node may judge others by
what it hasn't read yet; raised, its late tick is later still."""


class PeerState(Protocol):
    """Where a peer keeps what must not go back over restarts."""

    def load(self) -> SavedState: ...
    def save(self, state: SavedState) -> None:
        """Called seldom, and from the event loop: small and quick. May raise OSError."""
        ...


@define
class MemoryState:
    """A PeerState that forgets with the process."""

    state: SavedState = field(factory=SavedState)

    def load(self) -> SavedState:
        return self.state

    def save(self, state: SavedState) -> None:
        self.state = state


@frozen
class OverlaySettings:
    peer: PeerSettings = field(factory=PeerSettings)
    dialling: DialSettings = field(factory=DialSettings)


class Overlay:
    """One node's part in the cluster. ``run`` it; everything else works while it runs."""

    def __init__(
        self,
        transport: Transport,
        *,
        sign: Sign,
        verify: Verify,
        state: PeerState,
        settings: OverlaySettings,
        merge_payloads: MergePayloads,
        may_lead: bool = True,
        random: Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = trio.sleep,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        """``random``, ``sleep`` (between two ticks) and ``clock`` (monotonic seconds) are for tests that repeat themselves."""
        random = random or SystemRandom()
        self._transport = transport
        self._settings = settings
        self._state = state
        self._sleep = sleep
        self._clock = clock
        self._peer = Peer(
            transport.me,
            process=random.getrandbits(53),
            saved=state.load(),
            sign=sign,
            verify=verify,
            merge_payloads=merge_payloads,
            settings=settings.peer,
            may_lead=may_lead,
        )
        self._controls = Controls(self._peer, self._do, settings.peer.links.hello_within_s, clock)
        self._dialler = Dialler(
            transport,
            self._controls.is_connected,
            self._controls.changed,
            self._dialled,
            settings.dialling,
            random,
            self._controls.hosts_of,
        )
        self._gossip, self._gossip_queue = trio.open_memory_channel[bytes](QUEUED_BROADCASTS)
        self._request_handlers: dict[str, RequestHandler] = {}
        self._stream_handlers: dict[str, StreamHandler] = {}
        self._view = self._peer.view()
        self._view_is_stale = False
        self._view_changed = Signal()
        self._nursery: trio.Nursery | None = None
        self._leaving = False
        transport.subscribe(GOSSIP_TOPIC)
        transport.register(CONTROL_PROTOCOL)

    # The face.

    @property
    def me(self) -> PeerId:
        return self._transport.me

    @property
    def view(self) -> View:
        if self._view_is_stale:
            self._view, self._view_is_stale = self._peer.view(), False
        return self._view

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part until cancelled. ``started`` once the transport listens."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self._transport.run, self)
            self._do(self._peer.start(self._clock(), self._transport.addresses))
            nursery.start_soon(self._tick)
            nursery.start_soon(self._spread_gossip)
            nursery.start_soon(self._dialler.run)
            task_status.started()

    async def views(self) -> AsyncIterator[View]:
        """The current view at once, then the latest after each change; changes in quick succession are seen as one."""
        seen: View | None = None
        while True:
            view = self.view
            if view != seen:
                seen = view
                yield view
            else:
                await self._view_changed.wait()

    def set_fact(self, key: str, value: bytes, *, volatile: bool = False) -> None:
        """Tell everyone; at once, or merged with others and at most every two seconds if ``volatile``. Raises FactTooLargeError."""
        self._do(self._peer.set_fact(self._clock(), key, value, volatile=volatile))

    def delete_fact(self, key: str) -> None:
        self._do(self._peer.delete_fact(self._clock(), key))

    def set_payload(self, payload: bytes) -> None:
        """Change what the leader tells everyone, one fact with its claim. Raises NotLeaderError and FactTooLargeError."""
        self._do(self._peer.set_payload(self._clock(), payload))

    def add_address(self, address: Address, peer: PeerId | None = None) -> None:
        """Somebody is to be reached there; it is dialled again and again until a connection stands. Failure is warned of."""
        self._dialler.give(address, peer)

    def add_sighting(self, peer: PeerId, addresses: Iterable[Address]) -> None:
        """A peer may have been seen on the local network, at these addresses and no longer at those of an earlier sighting.

        It is dialled for a while. Anybody may say anything there, so only so many are dialled, and nobody is told of failure.
        """
        self._dialler.sight(peer, addresses)

    async def request(self, peer: PeerId, protocol: str, body: bytes, *, timeout_s: float) -> bytes:
        """Ask a peer. Raises TransportError, and RequestRefusedError with the remote handler's own words."""
        with trio.move_on_after(timeout_s):
            stream = await self.open(peer, protocol)
            try:
                return await ask(stream, body)
            finally:
                stream.abort()
        raise TransportError(f"peer {peer} did not answer a request to {protocol} within {timeout_s:g} s")

    async def open(self, peer: PeerId, protocol: str) -> Stream:
        """A stream that the peer's handler for the protocol serves. Raises TransportError."""
        if peer == self.me:
            return self._open_to_myself(protocol)
        return await self._controls.connection_to(peer).open(protocol)

    def serve_requests(self, protocol: str, handler: RequestHandler) -> None:
        """``handler(peer, body)`` returns the answer, or raises RequestRefusedError with the reason. Call it before ``run``."""
        self._transport.register(protocol)
        self._request_handlers[protocol] = handler

    def serve_streams(self, protocol: str, handler: StreamHandler) -> None:
        """The stream is dropped when the handler returns. Call it before ``run``."""
        self._transport.register(protocol)
        self._stream_handlers[protocol] = handler

    def move_in(self) -> None:
        """This node was alone, and a cluster let it in: it takes the last place there, and leads it only when that is its turn."""
        self._do(self._peer.move_in(self._clock()))

    async def leave(self) -> None:
        """Say goodbye, so that the others need not wait for a time-out; then ``run`` may be cancelled."""
        self._leaving = True
        self._dialler.stop()
        self._do(self._peer.leave(self._clock()))
        with trio.move_on_after(LINGER_S):
            await self._controls.all_closed()

    # What the transport tells.

    def connected(self, connection: Connection) -> None:
        assert self._nursery is not None
        if self._leaving:
            connection.abort()
        else:
            self._controls.connected(connection, self._nursery)

    def disconnected(self, connection: Connection) -> None:
        self._controls.disconnected(connection)

    def broadcast_received(self, topic: str, data: bytes) -> None:
        if topic == GOSSIP_TOPIC:
            self._do(self._peer.gossip_received(self._clock(), data))

    async def stream_opened(self, protocol: str, stream: Stream, connection: Connection) -> None:
        if protocol == CONTROL_PROTOCOL:
            await self._controls.opened(stream, connection)
        else:
            await self._serve(protocol, stream)

    # What the machine wants done.

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self._controls.send(action)
            elif isinstance(action, Broadcast):
                self._broadcast(action)
            elif isinstance(action, Close):
                self._controls.close(action)
            elif isinstance(action, Save):
                self._save(action)
            elif isinstance(action, Warn):
                logger.warning("%s", action.text)
            else:
                self._view_is_stale = True
                self._dialler.learn(self._peer.addresses)
                self._view_changed.notify()

    def _save(self, action: Save) -> None:
        try:
            self._state.save(action.state)
        except OSError as error:  # the others remember it, too, as long as one of them runs
            logger.warning("the peer's state can't be saved (%s); it is tried again at its next change", error)

    def _dialled(self, target: str, problem: str | None) -> None:
        self._do(self._peer.dialled(self._clock(), target, problem))

    def _broadcast(self, action: Broadcast) -> None:
        try:
            self._gossip.send_nowait(encode(action.message))
        except trio.WouldBlock:
            logger.warning("gossip can't keep up; a change reaches the others by digests")

    async def _tick(self) -> None:
        tick_s = self._settings.peer.membership.tick_s
        while True:
            self._do(self._peer.set_addresses(self._clock(), self._transport.addresses))
            self._do(self._peer.tick(self._clock()))
            due = self._clock() + tick_s
            await self._sleep(tick_s)
            if self._clock() - due >= tick_s:
                await self._read_what_waits()

    async def _read_what_waits(self) -> None:
        """A node that is late hears what was said meanwhile before it judges anyone."""
        for _ in range(PASSES_OF_A_FRAME):
            await trio.lowlevel.checkpoint()

    async def _spread_gossip(self) -> None:
        async for data in self._gossip_queue:
            try:
                await self._transport.broadcast(GOSSIP_TOPIC, data)
            except TransportError as error:
                logger.warning("a change was not broadcast, it reaches the others by digests: %s", error)

    # Requests and streams.

    def _open_to_myself(self, protocol: str) -> Stream:
        if self._nursery is None:
            raise TransportError("the overlay does not run")
        here, there = LocalStream.pair(self.me)
        self._nursery.start_soon(self._serve_myself, protocol, there)
        return here

    async def _serve_myself(self, protocol: str, stream: Stream) -> None:
        try:
            await self._serve(protocol, stream)
        finally:
            stream.abort()

    async def _serve(self, protocol: str, stream: Stream) -> None:
        requests, streams = self._request_handlers.get(protocol), self._stream_handlers.get(protocol)
        try:
            if requests is not None:
                await answer(stream, requests)
            elif streams is not None:
                await streams(stream)
            else:
                logger.warning("peer %s opened a stream of unknown protocol %s", stream.peer, protocol)
                stream.abort()
        except TransportError as error:
            logger.info("a stream %s of peer %s broke: %s", protocol, stream.peer, error)
            stream.abort()
        except Exception:
            logger.exception("the handler of %s failed on a stream of peer %s", protocol, stream.peer)
            stream.abort()


__all__ = [
    "FactTooLargeError",
    "Member",
    "MemberState",
    "MemoryState",
    "NotLeaderError",
    "Overlay",
    "OverlaySettings",
    "PeerState",
    "RequestRefusedError",
    "SavedState",
    "View",
]
