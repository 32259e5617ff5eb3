"""``networking.transport`` over a simulated network: connections, streams and broadcasts in virtual time."""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

import trio

from networking.dialling import Signal
from networking.simulated_network import SimulatedNetwork
from networking.transport import (
    MAX_FRAME_BYTES,
    Address,
    DialError,
    PeerId,
    StreamClosedError,
    TransportError,
    TransportListener,
)

DIAL_TIMEOUT_S = 4.0
WINDOW_FRAMES = 256
"""A sender waits when its receiver has so many frames unread."""

_Event = tuple[float, int, Address, Callable[[], None]]
"""(when it is due, a number that keeps ties in order, the machine that it comes from, what happens)"""


class SimulatedTransport:
    """One process on a machine. Two may have one peer id (a cloned disk) if their addresses differ."""

    def __init__(self, network: SimulatedNetwork, me: PeerId, address: Address) -> None:
        self.network = network
        self._me = me
        self._address = address
        self._topics: set[str] = set()
        self._protocols: set[str] = set()
        self._listener: TransportListener | None = None
        self._nursery: trio.Nursery | None = None
        self._inbox: list[_Event] = []
        self._held: list[_Event] = []
        """What is due, but can't come in: from beyond a partition, or while this machine stands still."""
        self._woken = Signal()
        self._connections: dict[SimulatedConnection, None] = {}
        self.vanished = False
        """Set for a machine that loses its power: nobody is told that its connections are gone."""

    @property
    def me(self) -> PeerId:
        return self._me

    @property
    def address(self) -> Address:
        return self._address

    @property
    def addresses(self) -> tuple[Address, ...]:
        return (self._address,)

    async def run(
        self, listener: TransportListener, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        self._listener = listener
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.network.enter(self)
            try:
                task_status.started()
                await self._receive()
            finally:
                self.network.leave(self)
                self._nursery = None
                for connection in list(self._connections):
                    connection.abort()

    async def dial(self, address: Address, peer: PeerId | None = None) -> "SimulatedConnection":
        with trio.move_on_after(DIAL_TIMEOUT_S):
            await self.network.delivered(self._address, address)
            await self.network.delivered(address, self._address)
            return self._connect(address, peer)
        raise DialError(f"{address} did not answer within {DIAL_TIMEOUT_S:g} s")

    async def broadcast(self, topic: str, data: bytes) -> None:
        await self.network.awake(self._address)
        for connection in list(self._connections):
            if topic in connection.far._topics:
                self.network.count(data)
                for at in self.network.arrivals():
                    connection.far.deliver(at, self._address, connection.far._hearing(topic, data))
        await trio.lowlevel.checkpoint()

    def subscribe(self, topic: str) -> None:
        self._topics.add(topic)

    def register(self, protocol: str) -> None:
        self._protocols.add(protocol)

    def serves(self, protocol: str) -> bool:
        return protocol in self._protocols

    def topology_changed(self) -> None:
        held, self._held = self._held, []
        for event in held:
            heappush(self._inbox, event)
        self._woken.notify()

    def deliver(self, at: float, sender: Address, action: Callable[[], None]) -> None:
        """Let something happen here at that time, or when the sender reaches this machine again."""
        event = (at, self.network.next_in_order(), sender, action)
        is_next = not self._inbox or event < self._inbox[0]
        heappush(self._inbox, event)
        if is_next:
            self._woken.notify()

    def attach(self, connection: "SimulatedConnection") -> None:
        if self._nursery is not None and self._listener is not None:
            self._connections[connection] = None
            self._listener.connected(connection)

    def detach(self, connection: "SimulatedConnection") -> None:
        if connection in self._connections:
            del self._connections[connection]
            if self._listener is not None:
                self._listener.disconnected(connection)

    def serve(self, protocol: str, stream: "SimulatedStream", connection: "SimulatedConnection") -> None:
        if self._nursery is not None and not connection.closed:
            self._nursery.start_soon(self._serve, protocol, stream, connection)

    async def _serve(self, protocol: str, stream: "SimulatedStream", connection: "SimulatedConnection") -> None:
        assert self._listener is not None
        try:
            await self._listener.stream_opened(protocol, stream, connection)
        finally:
            stream.abort()

    def _hearing(self, topic: str, data: bytes) -> Callable[[], None]:
        def hear() -> None:
            if self._listener is not None:
                self._listener.broadcast_received(topic, data)

        return hear

    def _connect(self, address: Address, peer: PeerId | None) -> "SimulatedConnection":
        other = self.network.at(address)
        if not isinstance(other, SimulatedTransport) or other is self:
            raise DialError(f"nobody else listens at {address}")
        if peer is not None and other.me != peer:
            raise DialError(f"{address} is peer {other.me}, not {peer}")
        here = SimulatedConnection(self, other, outbound=True)
        there = SimulatedConnection(other, self, outbound=False)
        here.twin, there.twin = there, here
        other.attach(there)
        self.attach(here)
        return here

    async def _receive(self) -> None:
        """Let events happen in order; those from beyond a partition wait for its end, and all do while paused."""
        while True:
            while self._inbox and self._inbox[0][0] <= trio.current_time():
                event = heappop(self._inbox)
                if self.network.delivers(event[2], self._address):
                    event[3]()
                else:
                    self._held.append(event)
            with trio.move_on_at(self._inbox[0][0] if self._inbox else inf):
                await self._woken.wait()


class SimulatedConnection:
    def __init__(self, near: SimulatedTransport, far: SimulatedTransport, *, outbound: bool) -> None:
        self.near = near
        self.far = far
        self.twin = self
        self._outbound = outbound
        self._closed = False
        self._streams: dict[SimulatedStream, None] = {}
        self._last_arrival = 0.0

    @property
    def peer(self) -> PeerId:
        return self.far.me

    @property
    def outbound(self) -> bool:
        return self._outbound

    @property
    def remote_address(self) -> Address:
        return self.far.address

    @property
    def closed(self) -> bool:
        return self._closed

    async def open(self, protocol: str) -> "SimulatedStream":
        await self.near.network.awake(self.near.address)
        await trio.lowlevel.checkpoint()
        if self._closed:
            raise TransportError(f"the connection to {self.peer} is closed")
        if not self.far.serves(protocol):
            raise TransportError(f"{self.peer} does not serve {protocol}")
        here, there = SimulatedStream(self), SimulatedStream(self.twin)
        here.twin, there.twin = there, here
        self.add(here)
        self.twin.add(there)
        self.far.deliver(self.arrival(), self.near.address, lambda: self.far.serve(protocol, there, self.twin))
        return here

    def abort(self) -> None:
        if not self._closed:
            if not self.near.vanished:
                self.far.deliver(self.arrival(), self.near.address, self.twin.lose)
            self.lose()

    def lose(self) -> None:
        """The connection is gone, as this side sees it."""
        if not self._closed:
            self._closed = True
            for stream in list(self._streams):
                stream.break_off()
            self.near.detach(self)

    def arrival(self) -> float:
        """Of what is sent now: order is kept within a connection."""
        self._last_arrival = max(self._last_arrival, self.near.network.arrival())
        return self._last_arrival

    def add(self, stream: "SimulatedStream") -> None:
        self._streams[stream] = None

    def remove(self, stream: "SimulatedStream") -> None:
        self._streams.pop(stream, None)


class SimulatedStream:
    def __init__(self, connection: SimulatedConnection) -> None:
        self._connection = connection
        self.twin = self
        self._incoming: deque[bytes | None] = deque()
        self._on_its_way = 0
        self._woken = Signal()
        self._broken = False
        self._finished = False

    @property
    def peer(self) -> PeerId:
        return self._connection.peer

    async def send(self, frame: bytes) -> None:
        if len(frame) > MAX_FRAME_BYTES:
            raise TransportError(f"a frame has {len(frame)} bytes, at most {MAX_FRAME_BYTES} are carried")
        await self._connection.near.network.awake(self._connection.near.address)
        await trio.lowlevel.checkpoint()
        while self.twin.is_full and not self._broken:
            await self._woken.wait()
        if self._broken or self._finished:
            raise StreamClosedError(f"the stream to {self.peer} is closed")
        self.twin.expect(frame)

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            await self._connection.near.network.awake(self._connection.near.address)
            if self._broken:
                raise StreamClosedError(f"the stream to {self.peer} is closed")
            if self._incoming:
                return self._take()
            await self._woken.wait()

    async def finish(self) -> None:
        await trio.lowlevel.checkpoint()
        self._finish()

    def abort(self) -> None:
        self._finish()
        self.break_off()

    def break_off(self) -> None:
        self._broken = True
        self._connection.remove(self)
        self.wake()

    def expect(self, frame: bytes | None) -> None:
        """The other end has sent a frame, or its last one."""
        self._on_its_way += 1
        self._connection.near.network.count(frame or b"")
        sender = self._connection.twin
        self._connection.near.deliver(sender.arrival(), sender.near.address, lambda: self._put(frame))

    def wake(self) -> None:
        self._woken.notify()

    @property
    def is_full(self) -> bool:
        return self.unread >= WINDOW_FRAMES and not self._broken

    @property
    def unread(self) -> int:
        """Frames that were sent and not yet read."""
        return self._on_its_way + len(self._incoming)

    def _finish(self) -> None:
        if not self._finished and not self._broken:
            self._finished = True
            self.twin.expect(None)

    def _put(self, frame: bytes | None) -> None:
        self._on_its_way -= 1
        self._incoming.append(frame)
        self.wake()

    def _take(self) -> bytes:
        frame = self._incoming[0]
        if frame is None:
            raise StreamClosedError(f"{self.peer} has ended the stream")
        self._incoming.popleft()
        self.twin.wake()
        return frame
