"""The library's face, and the driver of the peer machine: join, members, leader, facts, requests and streams.

All decisions are made in ``peer.Peer``; this file only carries messages between it and a ``Transport``.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random, SystemRandom
from typing import Protocol

import trio
from attrs import define, field, frozen

from networking.actions import Action, Broadcast, Close, Save, SavedState, Send, Warn
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
    StreamClosedError,
    StreamHandler,
    Transport,
    TransportError,
    Verify,
)
from networking.view import Member, View
from networking.wire import encode

logger = logging.getLogger(__name__)

CONTROL_PROTOCOL = "/overlay/1/control"
GOSSIP_TOPIC = "overlay/1"
QUEUED_MESSAGES = 512
"""Per connection. Lowered, a slow connection is given up sooner; raised, it may hold more memory."""
LINGER_S = 1.0
"""How long a closing connection may take to deliver what was said last."""


class PeerState(Protocol):
    """Where a peer keeps what must not go back over restarts."""

    def load(self) -> SavedState: ...
    def save(self, state: SavedState) -> None:
        """Called seldom, and from the event loop: small and quick."""
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


@define(eq=False)
class _Control:
    """The control stream of one connection, from the driver's side."""

    number: int
    connection: Connection
    outgoing: trio.MemorySendChannel[bytes]
    queue: trio.MemoryReceiveChannel[bytes]
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    begun: bool = False
    ended: bool = False


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
    ) -> None:
        """``random`` and ``sleep`` (between two ticks) are for tests that have to repeat themselves."""
        random = random or SystemRandom()
        self._transport = transport
        self._settings = settings
        self._state = state
        self._sleep = sleep
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
        self._dialler = Dialler(transport, self._is_connected, settings.dialling, random)
        self._controls: dict[Connection, _Control] = {}
        self._by_number: dict[int, _Control] = {}
        self._last_number = 0
        self._gossip, self._gossip_queue = trio.open_memory_channel[bytes](QUEUED_MESSAGES)
        self._request_handlers: dict[str, RequestHandler] = {}
        self._stream_handlers: dict[str, StreamHandler] = {}
        self._view = self._peer.view()
        self._view_is_stale = False
        self._view_changed = Signal()
        self._nursery: trio.Nursery | None = None
        transport.subscribe(GOSSIP_TOPIC)

    # The face.

    @property
    def me(self) -> PeerId:
        return self._transport.me

    @property
    def view(self) -> View:
        if self._view_is_stale:
            self._view, self._view_is_stale = self._peer.view(), False
        return self._view

    @property
    def dropped_messages(self) -> dict[PeerId, int]:
        """How many messages of each peer could not be read."""
        return self._peer.dropped

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part until cancelled. ``started`` once the transport listens."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self._transport.run, self)
            self._do(self._peer.start(trio.current_time(), self._transport.addresses))
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
        self._do(self._peer.set_fact(trio.current_time(), key, value, volatile=volatile))

    def delete_fact(self, key: str) -> None:
        self._do(self._peer.delete_fact(trio.current_time(), key))

    def set_payload(self, payload: bytes) -> None:
        """Change what the leader tells everyone, one fact with its claim. Raises NotLeaderError and FactTooLargeError."""
        self._do(self._peer.set_payload(trio.current_time(), payload))

    def add_address(self, address: Address, peer: PeerId | None = None) -> None:
        """Somebody may be reached there; it is dialled again and again until a connection stands."""
        self._dialler.add(address, peer)

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
        return await self._connection_to(peer).open(protocol)

    def serve_requests(self, protocol: str, handler: RequestHandler) -> None:
        """``handler(peer, body)`` returns the answer, or raises RequestRefusedError with the reason."""
        self._request_handlers[protocol] = handler

    def serve_streams(self, protocol: str, handler: StreamHandler) -> None:
        self._stream_handlers[protocol] = handler

    async def leave(self) -> None:
        """Say goodbye, so that the others need not wait for a time-out; then ``run`` may be cancelled."""
        self._do(self._peer.leave(trio.current_time()))
        with trio.move_on_after(LINGER_S):
            while self._controls:
                await self._dialler.changed.wait()

    # What the transport tells.

    def connected(self, connection: Connection) -> None:
        self._last_number += 1
        outgoing, queue = trio.open_memory_channel[bytes](QUEUED_MESSAGES)
        control = _Control(self._last_number, connection, outgoing, queue)
        self._controls[connection] = self._by_number[control.number] = control
        assert self._nursery is not None
        self._nursery.start_soon(self._open_control if connection.outbound else self._expect_control, control)
        self._dialler.changed.notify()

    def disconnected(self, connection: Connection) -> None:
        control = self._controls.get(connection)
        if control is not None:
            self._end(control)

    def broadcast_received(self, topic: str, data: bytes) -> None:
        if topic == GOSSIP_TOPIC:
            self._do(self._peer.gossip_received(trio.current_time(), data))

    async def stream_opened(self, protocol: str, stream: Stream, connection: Connection) -> None:
        if protocol != CONTROL_PROTOCOL:
            await self._serve(protocol, stream)
            return
        control = self._controls.get(connection)
        if control is not None and not control.begun:
            await self._converse(control, stream)

    # The control stream of a connection.

    async def _open_control(self, control: _Control) -> None:
        try:
            with trio.fail_after(self._settings.peer.links.hello_within_s):
                stream = await control.connection.open(CONTROL_PROTOCOL)
        except (TransportError, trio.TooSlowError) as error:
            logger.info("no control stream to %s: %s", control.connection.peer, error)
            self._end(control)
        else:
            await self._converse(control, stream)

    async def _expect_control(self, control: _Control) -> None:
        await trio.sleep(self._settings.peer.links.hello_within_s)
        if not control.begun:
            self._end(control)

    async def _converse(self, control: _Control, stream: Stream) -> None:
        control.begun = True
        connection = control.connection
        self._do(
            self._peer.connected(trio.current_time(), control.number, connection.peer, outbound=connection.outbound)
        )
        try:
            with control.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write, control, stream)
                    await self._read(control, stream)
                    nursery.cancel_scope.cancel()
        finally:
            stream.abort()
            self._end(control)

    async def _read(self, control: _Control, stream: Stream) -> None:
        try:
            while True:
                frame = await stream.receive()
                self._do(self._peer.received(trio.current_time(), control.number, frame))
        except StreamClosedError:
            return

    async def _write(self, control: _Control, stream: Stream) -> None:
        """Send what is queued; once the queue is closed, give the peer a moment to read the rest, then end."""
        try:
            async for frame in control.queue:
                await stream.send(frame)
            await stream.finish()
            await trio.sleep(LINGER_S)
        except StreamClosedError:
            pass
        control.scope.cancel()

    def _end(self, control: _Control) -> None:
        """Forget a connection, however it came to its end. Safe to call twice."""
        if control.ended:
            return
        control.ended = True
        del self._controls[control.connection], self._by_number[control.number]
        control.scope.cancel()
        control.outgoing.close()
        control.connection.abort()
        self._dialler.changed.notify()
        self._do(self._peer.disconnected(trio.current_time(), control.number))

    # What the machine wants done.

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self._send(action)
            elif isinstance(action, Broadcast):
                self._broadcast(action)
            elif isinstance(action, Close):
                self._close(action)
            elif isinstance(action, Save):
                self._state.save(action.state)
            elif isinstance(action, Warn):
                logger.warning("%s", action.text)
            else:
                self._view_is_stale = True
                self._dialler.learn(self._peer.addresses)
                self._view_changed.notify()

    def _send(self, action: Send) -> None:
        control = self._by_number.get(action.connection)
        if control is None:
            return
        try:
            control.outgoing.send_nowait(encode(action.message))
        except trio.ClosedResourceError:
            return  # It is closing; nothing more is said.
        except trio.WouldBlock:
            logger.warning("peer %s does not read; its connection is closed", control.connection.peer)
            self._end(control)

    def _broadcast(self, action: Broadcast) -> None:
        try:
            self._gossip.send_nowait(encode(action.message))
        except trio.WouldBlock:
            logger.warning("gossip can't keep up; a change reaches the others by digests")

    def _close(self, action: Close) -> None:
        control = self._by_number.get(action.connection)
        if control is None:
            return
        if action.after_sending:
            control.outgoing.close()
        else:
            self._end(control)

    async def _tick(self) -> None:
        while True:
            self._do(self._peer.set_addresses(trio.current_time(), self._transport.addresses))
            self._do(self._peer.tick(trio.current_time()))
            await self._sleep(self._settings.peer.membership.tick_s)

    async def _spread_gossip(self) -> None:
        async for data in self._gossip_queue:
            await self._transport.broadcast(GOSSIP_TOPIC, data)

    # Requests and streams.

    def _is_connected(self, peer: PeerId) -> bool:
        return any(connection.peer == peer for connection in self._controls)

    def _connection_to(self, peer: PeerId) -> Connection:
        for connection in reversed(self._controls):
            if connection.peer == peer and not connection.closed:
                return connection
        raise TransportError(f"there is no connection to peer {peer}")

    def _open_to_myself(self, protocol: str) -> Stream:
        if self._nursery is None:
            raise TransportError("the overlay does not run")
        here, there = LocalStream.pair(self.me)
        self._nursery.start_soon(self._serve, protocol, there)
        return here

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
