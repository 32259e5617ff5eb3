"""Each repair, shown by what fails without it. Only what needs two hosts runs on hosts, on loopback."""

import importlib
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast
from unittest import mock

import pytest
import trio
import trio.testing
from libp2p import new_host
from libp2p.io.exceptions import ConnectionClosedError, IncompleteReadError
from libp2p.network.connection import swarm_connection
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.stream.exceptions import StreamEOF
from libp2p.network.swarm import Swarm
from libp2p.stream_muxer.exceptions import MuxedStreamReset
from libp2p.stream_muxer.yamux import yamux
from libp2p.stream_muxer.yamux.yamux import Yamux, YamuxStream
from libp2p.transport.tcp import tcp

from networking import repairs
from networking.repairs import REPAIRS, RepairError

repairs.apply()


class Wire:
    """A secured connection that takes a frame byte by byte and may stop to do so."""

    def __init__(self) -> None:
        self.taken = bytearray()
        self.closed = False
        self.go_on = trio.Event()

    async def write(self, data: bytes) -> None:
        self.taken += data[:1]
        await self.go_on.wait()
        self.taken += data[1:]

    async def close(self) -> None:
        self.closed = True


def muxer(wire: Any) -> Yamux:
    return Yamux(wire, mock.Mock(), is_initiator=True)


def run(main: Any) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_every_repair_is_in_place() -> None:
    for repair in REPAIRS:
        assert getattr(repair.owner, repair.name) is repair.replacement


def test_another_version_is_refused() -> None:
    with mock.patch("importlib.metadata.version", return_value="0.9.0"), pytest.raises(RepairError, match=r"0\.9\.0"):
        repairs.apply()


def test_a_missing_name_is_refused() -> None:
    missing = repairs.Repair(Yamux, "no_such_name", 0)
    with mock.patch.object(repairs, "REPAIRS", (missing,)), pytest.raises(RepairError, match="no_such_name"):
        repairs.apply()


def test_a_cancelled_write_finishes_its_frame() -> None:
    async def main() -> None:
        wire = Wire()

        async def write_and_give_up() -> None:
            with trio.move_on_after(1):
                await muxer(wire)._write_frame(b"a whole frame")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write_and_give_up)
            await trio.sleep(2)
            wire.go_on.set()
        assert bytes(wire.taken) == b"a whole frame"
        assert not wire.closed

    run(main)


def test_a_peer_that_takes_nothing_loses_its_connection() -> None:
    async def main() -> None:
        wire = Wire()
        with pytest.raises(ConnectionClosedError, match="took no data for 8 s"):
            await muxer(wire)._write_frame(b"never whole")
        assert wire.closed
        assert trio.current_time() < repairs.WRITE_LIMIT + 1

    run(main)


class FrameWire:
    """A secured connection that takes each frame whole and lets others run in between."""

    def __init__(self) -> None:
        self.taken = bytearray()

    async def write(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.taken += data[yamux.HEADER_SIZE :]


def test_what_two_writers_write_does_not_mix() -> None:
    async def main() -> None:
        wire = FrameWire()
        stream = YamuxStream(1, muxer(wire), is_initiator=True)
        size = yamux.DEFAULT_WINDOW_SIZE // 2
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.write, b"a" * size)
            nursery.start_soon(stream.write, b"b" * size)
        assert bytes(wire.taken) in (b"a" * size + b"b" * size, b"b" * size + b"a" * size)

    run(main)


def test_a_writer_waits_for_a_slow_reader_as_long_as_it_takes() -> None:
    async def main() -> None:
        wire = Wire()
        wire.go_on.set()
        stream = YamuxStream(1, muxer(wire), is_initiator=True)
        stream.send_window = 4

        async def reopen_after_a_minute() -> None:
            await trio.sleep(60)
            stream.send_window += 100

        async with trio.open_nursery() as nursery:
            nursery.start_soon(reopen_after_a_minute)
            await stream.write(b"four and more")
        assert wire.taken.endswith(b" and more")

    run(main)


def test_a_writer_that_waits_for_its_window_hears_of_the_end() -> None:
    async def main() -> None:
        stream = YamuxStream(1, muxer(Wire()), is_initiator=True)
        stream.send_window = 0

        async def close_after_a_minute() -> None:
            await trio.sleep(60)
            stream.conn.event_shutting_down.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(close_after_a_minute)
            with pytest.raises(MuxedStreamReset):
                await stream.write(b"data")

    run(main)


def test_a_read_cancelled_while_it_gives_credit_keeps_its_bytes() -> None:
    async def main() -> None:
        wire = Wire()
        connection = muxer(wire)
        stream = YamuxStream(1, connection, is_initiator=True)
        connection.streams[1] = stream
        connection.stream_buffers[1] = bytearray(b"x" * yamux.DEFAULT_WINDOW_SIZE)
        connection.stream_events[1] = trio.Event()
        stream.recv_window = 0
        received: list[bytes] = []

        async def read_and_give_up() -> None:
            with trio.move_on_after(1):
                received.append(await stream.read(yamux.DEFAULT_WINDOW_SIZE))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_and_give_up)
            await trio.sleep(2)
            wire.go_on.set()
        assert wire.taken  # it did wait in the middle of its frame of credit
        assert [len(data) for data in received] == [yamux.DEFAULT_WINDOW_SIZE]

    run(main)


def test_small_reads_send_no_credit_each() -> None:
    async def main() -> None:
        wire = Wire()
        connection = muxer(wire)
        stream = YamuxStream(1, connection, is_initiator=True)
        connection.streams[1] = stream
        connection.stream_buffers[1] = bytearray(b"gossip")
        connection.stream_events[1] = trio.Event()
        stream.recv_window = yamux.DEFAULT_WINDOW_SIZE
        with trio.fail_after(1):
            while connection.stream_buffers[1]:
                await stream.read(1)
        assert not wire.taken

    run(main)


def test_a_window_does_not_grow_without_end() -> None:
    async def main() -> None:
        stream = YamuxStream(1, muxer(Wire()), is_initiator=True)
        stream.conn._rtt = 1000.0
        for _ in range(20):
            stream._apply_autotune_epoch(buffered=0)
        assert stream.target_recv_window == repairs.MAX_WINDOW

    run(main)


class Muxed:
    def __init__(self) -> None:
        self.event_closed = trio.Event()


def test_an_inbound_slot_is_given_back_when_the_connection_ends() -> None:
    async def main() -> None:
        muxed = Muxed()
        wire = mock.AsyncMock()
        swarm = mock.Mock()
        swarm._inbound_limiter = trio.CapacityLimiter(1)
        swarm.metric_send_channel = None
        swarm.manager.wait_finished = trio.sleep_forever
        swarm.upgrade_inbound_raw_conn = mock.AsyncMock(return_value=muxed)
        swarm._do_handle_inbound_connection = lambda *arguments: Swarm._do_handle_inbound_connection(swarm, *arguments)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(Swarm._handle_inbound_connection, swarm, wire, mock.Mock())
            await trio.testing.wait_all_tasks_blocked()
            assert swarm._inbound_limiter.borrowed_tokens == 1
            muxed.event_closed.set()
        assert swarm._inbound_limiter.borrowed_tokens == 0
        wire.close.assert_awaited()

    run(main)


@pytest.mark.parametrize("error", [ValueError("a bug"), StreamEOF()])
def test_an_exception_in_a_stream_handler_stays_in_its_stream(error: Exception) -> None:
    async def main() -> None:
        swarm = mock.AsyncMock()
        swarm._stream_semaphore = swarm._resource_manager = None
        swarm.common_stream_handler.side_effect = error
        muxed_stream = mock.AsyncMock()
        connection = SwarmConn(mock.Mock(), swarm)
        await connection._handle_muxed_stream(muxed_stream)
        muxed_stream.reset.assert_awaited()

    run(main)


class Dripping:
    """Delivers one byte at a time."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    async def read(self, n: int | None = None) -> bytes:
        self.position += 1
        return self.data[self.position - 1 : self.position]


@pytest.mark.parametrize("module", ["io.utils", "io.msgio", "utils.varint", "host.ping", "stream_muxer.yamux.yamux"])
def test_a_message_may_come_in_any_number_of_pieces(module: str) -> None:
    async def main() -> None:
        read_exactly = importlib.import_module(f"libp2p.{module}").read_exactly
        assert await read_exactly(Dripping(b"x" * 500), 500) == b"x" * 500
        with pytest.raises(IncompleteReadError) as ended:
            await read_exactly(Dripping(b"x" * 5), 6)
        assert not ended.value.is_clean_close

    run(main)


def test_libp2p_dials_nobody_on_its_own() -> None:
    async def main() -> None:
        connector = cast(Any, new_host().get_network()).auto_connector
        connector._started = True
        with mock.patch.object(connector, "_get_candidate_peers", mock.AsyncMock(return_value=[])) as look_for:
            await connector.maybe_connect()
        look_for.assert_not_awaited()

    trio.run(main)


def test_a_port_is_not_shared() -> None:
    async def main() -> None:
        (first,) = await tcp._open_reuseport_listeners("127.0.0.1", 0)
        async with first:
            port = first.socket.getsockname()[1]
            with pytest.raises(Exception, match="in use"):
                await tcp._open_reuseport_listeners("127.0.0.1", port)

    trio.run(main)


@contextmanager
def bare_root_logger() -> Generator[logging.Logger]:
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        yield root
    finally:
        root.handlers = handlers


def test_libp2p_puts_no_handler_on_the_root_logger() -> None:
    async def main() -> None:
        with bare_root_logger() as root:
            connection = SwarmConn(mock.AsyncMock(), mock.AsyncMock(remove_conn=mock.Mock()))
            await connection.close()
            cast(Any, swarm_connection).logging.debug("as the module does")
            assert not root.handlers

    run(main)
