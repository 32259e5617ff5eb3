# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownParameterType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportMissingTypeArgument=false
# (the private parts of libp2p are the very subject here)
"""What libp2p 0.8.1 gets wrong, mended in one place.

Each repair replaces one name inside libp2p; ``apply`` sets them all. A repair is for this version only: with another one
``apply`` refuses, so that whoever raises the version looks at each of them again.
"""

import importlib.metadata
import logging
import struct
from collections.abc import Callable
from typing import Any

import trio
from attrs import frozen
from libp2p.abc import IMuxedConn, IMuxedStream, INetStream
from libp2p.host import ping
from libp2p.io import msgio
from libp2p.io import utils as io_utils
from libp2p.io.abc import Reader, ReadWriteCloser
from libp2p.io.exceptions import ConnectionClosedError, IncompleteReadError, MessageTooLarge
from libp2p.network.auto_connector import AutoConnector
from libp2p.network.connection import swarm_connection
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.stream.exceptions import StreamEOF
from libp2p.network.swarm import Swarm
from libp2p.pubsub import gossipsub, pubsub, rpc_queue
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.stream_muxer.exceptions import MuxedStreamReset
from libp2p.stream_muxer.yamux import yamux
from libp2p.stream_muxer.yamux.yamux import Yamux, YamuxStream
from libp2p.transport.tcp import tcp
from libp2p.utils import varint
from multiaddr import Multiaddr

logger = logging.getLogger(__name__)

LIBP2P_VERSION = "0.8.1"

WRITE_LIMIT = 8.0
"""Seconds a peer may refuse to take a frame before its connection is closed. Lower it and a slow radio link counts as
dead; raise it and a frozen peer blocks its writers for longer."""

OUTBOUND_QUEUE_SIZE = 512
"""Gossip messages that may wait for one peer. Beyond it they are lost without a word; the stock 32 are lost in a burst."""

SUBSCRIPTION_QUEUE_SIZE = 4096
"""Gossip messages that may wait for our own reader, which takes them at once."""

MAX_WINDOW = 2 << 20
"""Bytes of a stream that a peer may send ahead of our reading. Stock: 16 MiB, though nobody reads, so a peer's 256 streams can
make us hold 4 GiB. Raise it for bulk data over long distances; lower it for less memory with many streams."""

WINDOW_POLL = 0.005
"""Seconds between looks at a window that the peer has not reopened yet. Lower it for throughput, raise it for idle CPU."""

_CLOSE_LIMIT = 1.0
_PREFIX_LIMIT = 10
_stock_handle_stream = SwarmConn._handle_muxed_stream
_stock_give_credit = YamuxStream._auto_tune_and_send_window_update
_stock_push_msg = Pubsub.push_msg


class RepairError(RuntimeError):
    """This libp2p is not the one that the repairs are made for."""


async def finish_started_frame(self: Yamux, data: bytes) -> None:
    """Stock: a cancelled write leaves half an encrypted frame behind, and the connection is lost, often without a sign.

    A frame once begun is finished, or the connection is closed: a peer that takes nothing can't hold us for longer.
    """
    async with self._write_lock:
        with trio.move_on_after(WRITE_LIMIT, shield=True) as limit:
            await self.secured_conn.write(data)
        if limit.cancelled_caught:
            self.event_shutting_down.set()
            await _close(self.secured_conn)
            raise ConnectionClosedError(f"{self.peer_id} took no data for {WRITE_LIMIT:g} s", transport="tcp")
    await trio.lowlevel.checkpoint()


async def write_in_turn(self: YamuxStream, data: bytes) -> None:
    """Stock: two writers' messages of over 64 KiB mix, which gossip does to itself; and a reader that pauses for 5 s
    makes the writer fail, though flow control is there to let it wait.

    Waits as long as the stream lives. That the peer lives is for the heartbeat to find out.
    """
    rest = memoryview(data)
    async with self.rw_lock.write_lock():
        while rest:
            size = min(await _take_window(self), yamux.MAX_MESSAGE_SIZE - yamux.HEADER_SIZE, len(rest))
            self.send_window -= size
            header = struct.pack(yamux.YAMUX_HEADER_FORMAT, 0, yamux.TYPE_DATA, 0, self.stream_id, size)
            await self.conn._write_frame(header + rest[:size])
            rest = rest[size:]


async def _take_window(stream: YamuxStream) -> int:
    while True:
        if stream.send_closed or stream.closed or stream.conn.event_shutting_down.is_set():
            raise MuxedStreamReset("the stream is closed for sending")
        if stream.send_window > 0:
            return stream.send_window
        await trio.sleep(WINDOW_POLL)


async def keep_what_was_read(self: YamuxStream, *, bytes_read: int = 0) -> None:
    """Stock: a read cancelled while it gives the peer new credit loses the bytes it has already taken."""
    with trio.CancelScope(shield=True):
        await _stock_give_credit(self, bytes_read=bytes_read)


def credit_in_batches() -> bool:
    """Stock: each read, also of one byte, sends a frame of new credit: a quarter of the CPU of a gossip message."""
    return False


async def give_back_inbound_slot(
    self: Swarm, read_write_closer: ReadWriteCloser, maddr: Multiaddr, failure_event: object
) -> None:
    """Stock: an inbound connection keeps its slot until the whole host stops, so after 250 of them none gets in."""
    raw = RawConnection(read_write_closer, False)
    try:
        muxed: Any = await self.upgrade_inbound_raw_conn(raw, maddr)
        await muxed.event_closed.wait()
    except Exception as error:
        logger.debug("inbound connection on %s ended: %r", maddr, error)
    finally:
        await _close(raw)


async def contain_stream_handler(self: SwarmConn, muxed_stream: IMuxedStream) -> None:
    """Stock: an exception in a stream handler, or garbage from a peer, ends the connection's accept loop or the host."""
    try:
        await _stock_handle_stream(self, muxed_stream)
    except Exception as error:
        logger.debug("stream from %s ended: %r", self.muxed_conn.peer_id, error)
        with trio.move_on_after(_CLOSE_LIMIT, shield=True):
            await _ignoring_errors(muxed_stream.reset)


async def read_in_any_number_of_pieces(reader: Reader, n: int, retry_count: int = 0) -> bytes:
    """Stock: gives up after 100 partial reads, which breaks large messages and paths that deliver small pieces."""
    data = bytearray()
    while len(data) < n:
        piece = await reader.read(n - len(data))
        if not piece:
            raise IncompleteReadError(f"the connection ended after {len(data)} of {n} bytes", n, len(data))
        data += piece
    return bytes(data)


async def read_gossip_in_blocks(stream: INetStream, max_length: int) -> bytes:
    """Stock: reads the length of each gossip message byte by byte, each byte a turn through muxer and scheduler."""
    holder: Any = stream
    buffer: bytearray = holder.__dict__.setdefault("_gossip_buffer", bytearray())
    while (message := take_prefixed(buffer, max_length)) is None:
        block = await stream.read(65536)
        if not block:
            raise StreamEOF
        buffer += block
    return message


def take_prefixed(buffer: bytearray, max_length: int) -> bytes | None:
    """Cut the first varint-prefixed message off the buffer; None while it is incomplete. Raises MessageTooLarge."""
    length = 0
    for index, byte in enumerate(buffer[:_PREFIX_LIMIT]):
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    else:
        if len(buffer) >= _PREFIX_LIMIT:
            raise MessageTooLarge("the length of a gossip message has no end")
        return None
    if length > max_length:
        raise MessageTooLarge(f"a gossip message of {length} bytes; at most {max_length}")
    start = index + 1
    if len(buffer) < start + length:
        return None
    message = bytes(buffer[start : start + length])
    del buffer[: start + length]
    return message


async def survive_malformed_gossip(self: Pubsub, msg_forwarder: Any, msg: Any) -> None:
    """Stock: a message with a broken key or signature, or a validator that raises, ends the whole pubsub service."""
    try:
        await _stock_push_msg(self, msg_forwarder, msg)
    except Exception as error:
        logger.warning("gossip message from %s dropped: %r", msg_forwarder, error)


def send_no_peer_record(host: object) -> tuple[bytes, bool]:
    """Stock: each message carries a signed address record dated by the wall clock.

    A peer whose clock was set back is then ignored by all, and good addresses are overwritten by advertised ones.
    """
    return b"", False


def ignore_peer_record(*_arguments: object) -> bool:
    """The other half of ``send_no_peer_record``."""
    return True


def remember_no_messages(self: GossipSub, msg: object) -> bool:
    """Stock: keeps every message whole to compare later ones with it, half a gigabyte in a busy hour. Ours are signed."""
    return True


async def connect_to_nobody(self: AutoConnector) -> None:
    """Stock: dials whoever is in the address book, again and again. Here only the overlay decides who is dialled."""


class LongerRpcQueue(rpc_queue.RpcQueue):
    """Stock: 32 messages may wait for a peer, so a burst is lost without an error."""

    def __init__(self) -> None:
        super().__init__(max_size=OUTBOUND_QUEUE_SIZE)


def share_no_port(sock: trio.socket.SocketType) -> None:
    """Stock: SO_REUSEPORT lets a second process listen on the same port, and the kernel deals connections to either."""
    sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_REUSEADDR, 1)


@frozen
class Repair:
    """One name inside libp2p and what takes its place."""

    owner: Any
    name: str
    replacement: Callable[..., Any] | int | logging.Logger


REPAIRS = (
    Repair(Yamux, "_write_frame", finish_started_frame),
    Repair(YamuxStream, "write", write_in_turn),
    Repair(YamuxStream, "_auto_tune_and_send_window_update", keep_what_was_read),
    Repair(yamux, "_yamux_release_on_read", credit_in_batches),
    Repair(yamux, "MAX_WINDOW_SIZE", MAX_WINDOW),
    Repair(Swarm, "_do_handle_inbound_connection", give_back_inbound_slot),
    Repair(SwarmConn, "_handle_muxed_stream", contain_stream_handler),
    *(
        Repair(module, "read_exactly", read_in_any_number_of_pieces)
        for module in (io_utils, msgio, varint, ping, yamux)
    ),
    Repair(pubsub, "read_varint_prefixed_bytes_limited", read_gossip_in_blocks),
    Repair(Pubsub, "push_msg", survive_malformed_gossip),
    *(Repair(module, "env_to_send_in_RPC", send_no_peer_record) for module in (pubsub, gossipsub)),
    *(Repair(module, "maybe_consume_signed_record", ignore_peer_record) for module in (pubsub, gossipsub)),
    Repair(GossipSub, "_check_equivocation", remember_no_messages),
    Repair(pubsub, "RpcQueue", LongerRpcQueue),
    Repair(pubsub, "SUBSCRIPTION_CHANNEL_SIZE", SUBSCRIPTION_QUEUE_SIZE),
    Repair(AutoConnector, "maybe_connect", connect_to_nobody),
    Repair(tcp, "_set_reuse_flags", share_no_port),
    # Stock: logs through the root logger, whose first use puts a handler on stderr behind the application's back.
    Repair(swarm_connection, "logging", logging.getLogger(swarm_connection.__name__)),
)

# Its own logger doesn't propagate and has no handler, so warnings went to stderr past the application's log. These say
# at error level what is every day's business here: a peer that is gone, a dial that failed.
_NOISY_LOGGERS = (
    "host.basic_host",
    "identity.identify.identify",
    "network.connection.swarm_connection",
    "network.swarm",
    "protocol_muxer.multiselect_client",
    "stream_muxer.yamux.yamux",
    "transport.tcp.tcp",
)


def apply() -> None:
    """Mend libp2p in this process; a second call does no harm. Raises RepairError if it isn't the version for it."""
    found = importlib.metadata.version("libp2p")
    if found != LIBP2P_VERSION:
        raise RepairError(f"libp2p {found} is installed, but the repairs are for {LIBP2P_VERSION}: install that one")
    for repair in REPAIRS:
        if not hasattr(repair.owner, repair.name):
            raise RepairError(f"libp2p {found} has no {repair.owner.__name__}.{repair.name}: reinstall it")
        setattr(repair.owner, repair.name, repair.replacement)
    _quieten()


def _quieten() -> None:
    root = logging.getLogger("libp2p")
    root.propagate = True
    for name in _NOISY_LOGGERS:
        root.getChild(name).setLevel(logging.CRITICAL)


async def _close(connection: RawConnection | IMuxedConn | Any) -> None:
    with trio.move_on_after(_CLOSE_LIMIT, shield=True):
        await _ignoring_errors(connection.close)


async def _ignoring_errors(clean_up: Callable[[], Any]) -> None:
    try:
        await clean_up()
    except Exception as error:
        logger.debug("while closing: %r", error)
