"""The control stream that lives on each connection: carries the peer machine's messages, and ends with its connection."""

import logging
from collections.abc import Callable

import trio
from attrs import define, field

from networking.actions import Action, Close, Send
from networking.addresses import parse
from networking.dialling import Signal
from networking.peer import Peer
from networking.transport import Connection, PeerId, Stream, StreamClosedError, TransportError
from networking.wire import encode

logger = logging.getLogger(__name__)

CONTROL_PROTOCOL = "/overlay/1/control"
QUEUED_MESSAGES = 512
"""Per connection. Lowered, a slow connection is given up sooner; raised, it may hold more memory."""
QUIET_S = 3.4
"""A connection that wasn't heard for so long isn't relied on: others are dialled beside it. Lowered, pauses of a busy peer make
more connections; raised, an address that went down is found out later, and the peer is taken for dead meanwhile."""
LINGER_S = 1.0
"""How long a closing connection may take to deliver what was said last."""


@define(eq=False)
class _Control:
    number: int
    connection: Connection
    nursery: trio.Nursery
    outgoing: trio.MemorySendChannel[bytes]
    queue: trio.MemoryReceiveChannel[bytes]
    heard_at: float
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    begun: bool = False
    ended: bool = False


class Controls:
    """All connections of one peer, with their control streams. The side that dialled opens the stream."""

    def __init__(
        self,
        peer: Peer,
        perform: Callable[[list[Action]], None],
        hello_within_s: float,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self._peer = peer
        self._perform = perform
        self._hello_within_s = hello_within_s
        self._clock = clock
        self._controls: dict[Connection, _Control] = {}
        self._by_number: dict[int, _Control] = {}
        self._last_number = 0
        self.changed = Signal()
        """Notified when a connection came or went."""

    def is_connected(self, peer: PeerId) -> bool:
        """And heard of late."""
        since = self._clock() - QUIET_S * self._peer.patience
        return any(each.connection.peer == peer and each.heard_at > since for each in self._controls.values())

    def hosts_of(self, peer: PeerId) -> set[str]:
        """At the far ends of its connections, heard or not."""
        ends = (each.remote_address for each in self._controls if each.peer == peer)
        return {parse(end).host for end in ends}

    def connection_to(self, peer: PeerId) -> Connection:
        """Raises TransportError."""
        for connection in reversed(self._controls):
            if connection.peer == peer and not connection.closed:
                return connection
        raise TransportError(f"there is no connection to peer {peer}")

    def connected(self, connection: Connection, nursery: trio.Nursery) -> None:
        self._last_number += 1
        outgoing, queue = trio.open_memory_channel[bytes](QUEUED_MESSAGES)
        control = _Control(self._last_number, connection, nursery, outgoing, queue, self._clock())
        self._controls[connection] = self._by_number[control.number] = control
        nursery.start_soon(self._open if connection.outbound else self._expect, control)
        self.changed.notify()

    def disconnected(self, connection: Connection) -> None:
        control = self._controls.get(connection)
        if control is not None:
            self._end(control)

    async def opened(self, stream: Stream, connection: Connection) -> None:
        """The side that dialled has opened the control stream."""
        control = self._controls.get(connection)
        if control is not None and not control.begun:
            await self._converse(control, stream)

    def send(self, action: Send) -> None:
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

    def close(self, action: Close) -> None:
        control = self._by_number.get(action.connection)
        if control is None:
            return
        if action.after_sending:
            control.outgoing.close()
            control.nursery.start_soon(self._end_after_lingering, control)
        else:
            self._end(control)

    async def all_closed(self) -> None:
        while self._controls:
            await self.changed.wait()

    async def _open(self, control: _Control) -> None:
        try:
            with trio.fail_after(self._hello_within_s * self._peer.patience):
                stream = await control.connection.open(CONTROL_PROTOCOL)
        except (TransportError, trio.TooSlowError) as error:
            logger.info("no control stream to %s: %s", control.connection.peer, error)
            self._end(control)
        else:
            await self._converse(control, stream)

    async def _expect(self, control: _Control) -> None:
        with trio.move_on_after(self._hello_within_s * self._peer.patience), control.scope:
            await trio.sleep_forever()
        if not control.begun:
            self._end(control)

    async def _converse(self, control: _Control, stream: Stream) -> None:
        control.begun = True
        control.scope.cancel()
        control.scope = trio.CancelScope()
        connection = control.connection
        self._perform(
            self._peer.connected(
                self._clock(),
                control.number,
                connection.peer,
                outbound=connection.outbound,
                address=connection.remote_address,
            )
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
                control.heard_at = self._clock()
                self._perform(self._peer.received(self._clock(), control.number, frame))
        except StreamClosedError:
            return

    async def _write(self, control: _Control, stream: Stream) -> None:
        """Send what is queued, until the queue is closed."""
        try:
            async for frame in control.queue:
                await stream.send(frame)
            await stream.finish()
        except TransportError as error:
            logger.debug("the control stream to %s broke: %s", control.connection.peer, error)
            control.scope.cancel()

    async def _end_after_lingering(self, control: _Control) -> None:
        await trio.sleep(LINGER_S)
        self._end(control)

    def _end(self, control: _Control) -> None:
        """Forget a connection, however it came to its end. Safe to call twice."""
        if control.ended:
            return
        control.ended = True
        del self._controls[control.connection], self._by_number[control.number]
        control.scope.cancel()
        control.outgoing.close()
        control.connection.abort()
        self.changed.notify()
        self._perform(self._peer.disconnected(self._clock(), control.number))
