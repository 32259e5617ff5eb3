"""What the overlay needs from below: connections to peers, framed streams on them, and a best-effort broadcast.

Two things implement it: ``libp2p_host.Libp2pTransport`` and ``simulated_transport.SimulatedTransport``. The overlay is
written against these protocols alone, so the very driver that runs in production is the one the simulation puts under test.
"""

from collections.abc import Awaitable, Callable
from typing import NewType, Protocol

import trio

PeerId = NewType("PeerId", str)
"""A libp2p peer id in its base58 text form; made from the peer's ed25519 public key."""

Address = NewType("Address", str)
"""A multiaddr in text form without the ``/p2p/...`` part, such as ``/ip4/192.168.1.7/tcp/52416``."""

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""The largest frame a stream carries. Raise it and a peer can make us hold more memory; lower it and large prompts are refused."""


class TransportError(Exception):
    """The connection or stream failed; the message says which peer and why."""


class StreamClosedError(TransportError):
    """The other side ended or reset the stream, or its connection is gone."""


class DialError(TransportError):
    """No connection could be made; the message names the address and the reason."""


class OtherClusterError(DialError):
    """Somebody answers there, but of another cluster or version: unlike other failures, waiting doesn't help."""


class Stream(Protocol):
    """An ordered, flow-controlled stream of frames to one peer. A frame arrives whole or not at all."""

    @property
    def peer(self) -> PeerId: ...

    async def send(self, frame: bytes) -> None:
        """Send one frame of at most MAX_FRAME_BYTES. Cancelling it never corrupts the connection. Raises StreamClosedError."""
        ...

    async def receive(self) -> bytes:
        """The next frame. Raises StreamClosedError once the other side has finished or is gone."""
        ...

    async def finish(self) -> None:
        """Say that no more frames follow; receiving goes on."""
        ...

    def abort(self) -> None:
        """Drop the stream in both directions at once, without waiting. Safe to call twice and in clean-up."""
        ...


class Connection(Protocol):
    """One authenticated connection to one peer. A pair may briefly have two; liveness is judged per connection."""

    @property
    def peer(self) -> PeerId: ...
    @property
    def outbound(self) -> bool:
        """True if this side dialled."""
        ...

    @property
    def remote_address(self) -> Address: ...
    @property
    def closed(self) -> bool: ...

    async def open(self, protocol: str) -> Stream:
        """Open a stream that the peer's handler for ``protocol`` will serve. Raises TransportError."""
        ...

    def abort(self) -> None:
        """Close at once, without waiting for the peer. Both sides' ``disconnected`` follows."""
        ...


class TransportListener(Protocol):
    """What a transport tells its user. The three plain methods must return at once; only ``stream_opened`` may take its time."""

    def connected(self, connection: Connection) -> None: ...
    def disconnected(self, connection: Connection) -> None: ...
    def broadcast_received(self, topic: str, data: bytes) -> None: ...
    async def stream_opened(self, protocol: str, stream: Stream, connection: Connection) -> None:
        """Serve one inbound stream. Runs in a task of its own; when it returns or raises, the stream is dropped."""
        ...


class Transport(Protocol):
    @property
    def me(self) -> PeerId: ...

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where this peer can be dialled, once running."""
        ...

    async def run(
        self, listener: TransportListener, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen and serve until cancelled. ``started`` once the addresses are known."""
        ...

    async def dial(self, address: Address, peer: PeerId | None = None) -> Connection:
        """Connect to an address; with ``peer`` given, only to that peer. At most 4 s. Raises DialError."""
        ...

    async def broadcast(self, topic: str, data: bytes) -> None:
        """Best effort to every peer of the cluster, under 900 KB. Not heard by the sender; order is not kept; may be lost."""
        ...

    def subscribe(self, topic: str) -> None:
        """Hear broadcasts on a topic; call before ``run``."""
        ...

    def register(self, protocol: str) -> None:
        """Serve inbound streams of exactly this protocol, through ``stream_opened``; call before ``run``.

        A peer that opens a stream of a protocol nobody registered gets a TransportError.
        """
        ...


Sign = Callable[[bytes], bytes]
Verify = Callable[[PeerId, bytes, bytes], bool]
"""(peer, signed bytes, signature) -> whether the peer's key made it."""

StreamHandler = Callable[[Stream], Awaitable[None]]
