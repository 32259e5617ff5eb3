# pyright: reportUnknownMemberType=false
# (libp2p is typed in part)
"""One libp2p connection as a ``networking.transport.Connection``."""

import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Generator

import trio
from libp2p.custom_types import TProtocol
from libp2p.exceptions import BaseLibp2pError
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.stream.net_stream import NetStream
from libp2p.protocol_muxer.exceptions import MultiselectClientError
from libp2p.protocol_muxer.multiselect_client import MultiselectClient
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator
from libp2p.rcmgr import Direction

from networking.addresses import from_socket_name
from networking.streams import ByteStream, FramedStream, Room, Spawn
from networking.transport import Address, PeerId, Stream, TransportError

OPEN_LIMIT = 8.0
"""Seconds to open a stream. A peer allows 256 at once, and the next one just waits."""


MAX_SERVED = 256
"""Streams of one connection that are served at a time; libp2p lets a peer open no more, if it is libp2p. Lower it and a peer with
many requests is refused sooner; raise it and a peer gone wild takes more memory."""


class Libp2pConnection:
    """Made by ``Libp2pTransport`` alone."""

    def __init__(self, swarm_conn: SwarmConn, wire: trio.SocketStream, spawn: Spawn) -> None:
        self._swarm_conn = swarm_conn
        self._socket = wire.socket
        self._spawn = spawn
        self._aborted = False
        self._room = Room()
        self._served = 0
        self._remote_address = from_socket_name(wire.socket.getpeername())

    @property
    def peer(self) -> PeerId:
        return PeerId(str(self._swarm_conn.muxed_conn.peer_id))

    @property
    def outbound(self) -> bool:
        return self._swarm_conn.direction == Direction.OUTBOUND

    @property
    def remote_address(self) -> Address:
        return self._remote_address

    @property
    def closed(self) -> bool:
        return self._aborted or self._swarm_conn.is_closed

    async def open(self, protocol: str) -> Stream:
        if self.closed:
            raise TransportError(f"the connection to {self.peer} is closed")
        try:
            with trio.fail_after(OPEN_LIMIT):
                return FramedStream(self.peer, await self._negotiate(protocol), self._spawn, self._room)
        except trio.TooSlowError as error:
            raise TransportError(f"{self.peer} opened no stream of {protocol} within {OPEN_LIMIT:g} s") from error
        except MultiselectClientError as error:
            refused = "doesn't serve" if "not supported" in str(error) else "dropped a new stream of"
            raise TransportError(f"{self.peer} {refused} {protocol}") from error
        except BaseLibp2pError as error:
            raise TransportError(f"no stream of {protocol} to {self.peer}: {error!r}") from error

    @contextlib.contextmanager
    def serving(self, stream: ByteStream) -> Generator[FramedStream]:
        """A stream that the peer opened, dropped in the end. Raises TransportError if there are too many of them."""
        if self._served >= MAX_SERVED:
            raise TransportError(f"{self.peer} opened more than {MAX_SERVED} streams on one connection")
        self._served += 1
        framed = FramedStream(self.peer, stream, self._spawn, self._room)
        try:
            yield framed
        finally:
            self._served -= 1
            framed.abort()

    def abort(self) -> None:
        if not self._aborted:
            self._aborted = True
            with contextlib.suppress(OSError):  # libp2p may have closed it already
                # Without lingering, the peer is told at once, and data it doesn't take holds nothing here.
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._socket.close()

    async def _negotiate(self, protocol: str) -> NetStream:
        stream = await self._swarm_conn.new_stream()
        try:
            await MultiselectClient().select_one_of(
                [TProtocol(protocol)], MultiselectCommunicator(stream), int(OPEN_LIMIT)
            )
        except BaseException:
            self._spawn(_resetting(stream))
            raise
        return stream


def _resetting(stream: NetStream) -> Callable[[], Awaitable[None]]:
    async def reset() -> None:
        with trio.move_on_after(1):
            await stream.reset()

    return reset
