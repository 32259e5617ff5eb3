"""The transport on real hosts, on loopback."""

import errno
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import trio
from real_hosts import ANSWER, BUG, CLUSTER, ECHO, HOLD, LOOPBACK, TOPIC, Listener, Start, connect, on_peers

from networking import addresses, libp2p_connection, libp2p_host, repairs
from networking.identity import Identity
from networking.libp2p_host import Libp2pTransport
from networking.transport import Address, DialError, PeerId, StreamClosedError, TransportError


def test_both_sides_hear_of_a_connection_and_of_its_end(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        a, b = await start("a"), await start("b")
        dialled = await a.transport.dial(b.transport.addresses[0])
        assert await a.listener.hears("connected") is dialled
        accepted = await b.listener.hears("connected")
        assert (dialled.peer, dialled.outbound) == (b.transport.me, True)
        assert (accepted.peer, accepted.outbound) == (a.transport.me, False)
        assert dialled.remote_address == b.transport.addresses[0]
        dialled.abort()
        dialled.abort()
        assert dialled.closed
        assert await a.listener.hears("disconnected") is dialled
        assert await b.listener.hears("disconnected") is accepted
        with pytest.raises(TransportError, match="closed"):
            await dialled.open(ECHO)

    on_peers(tmp_path, test)


def test_frames_of_any_size_go_both_ways(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        connection = await connect(await start("a"), await start("b"))
        stream = await connection.open(ECHO)
        for frame in (b"", b"small", bytes(3_000_000)):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stream.send, frame)
                assert await stream.receive() == frame

    on_peers(tmp_path, test)


def test_the_last_frame_arrives_though_the_handler_has_returned(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        connection = await connect(await start("a"), await start("b"))
        stream = await connection.open(ANSWER)
        assert await stream.receive() == b"the answer"
        with pytest.raises(StreamClosedError):
            await stream.receive()

    on_peers(tmp_path, test)


def test_a_bug_in_a_handler_ends_its_stream_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(start: Start) -> None:
        connection = await connect(await start("a"), await start("b"))
        with pytest.raises(TransportError):
            await (await connection.open(BUG)).receive()
        stream = await connection.open(ECHO)
        await stream.send(b"alive")
        assert await stream.receive() == b"alive"

    on_peers(tmp_path, test)
    assert "a bug in a handler" in caplog.text


def test_a_cancelled_send_harms_no_other_stream(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        connection = await connect(await start("a"), await start("b"))
        for _ in range(5):
            held = await connection.open(HOLD)
            with trio.move_on_after(0.02):  # its window is full long before
                await held.send(bytes(10_000_000))
        stream = await connection.open(ECHO)
        await stream.send(b"whole")
        assert await stream.receive() == b"whole"

    on_peers(tmp_path, test)


def test_more_streams_than_a_connection_allows_at_once(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        connection = await connect(await start("a"), await start("b"))
        for _ in range(260):
            stream = await connection.open(ANSWER)
            await stream.receive()
            stream.abort()

    on_peers(tmp_path, test)


def test_streams_beyond_the_limit_are_refused_and_room_is_made_by_those_that_end(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        connection = await connect(await start("a"), await start("b"))
        with mock.patch.object(libp2p_connection, "MAX_SERVED", 2):
            held = [await connection.open(ECHO) for _ in range(2)]
            with pytest.raises(TransportError):  # at once, or when its protocol was agreed upon already
                await (await connection.open(ECHO)).receive()
            held[0].abort()
            for _ in range(100):  # until the peer has heard of it
                with suppress(TransportError):
                    assert await (await connection.open(ANSWER)).receive() == b"the answer"
                    break
            else:
                raise AssertionError("a stream that ended makes no room")

    on_peers(tmp_path, test)


def test_one_stream_too_many_fails_in_time(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        connection = await connect(await start("a"), await start("b"))
        muxer: Any = connection
        muxer._swarm_conn.muxed_conn.stream_backlog_semaphore = trio.Semaphore(2)  # 256, and not that soon reached
        with (
            mock.patch.object(libp2p_connection, "OPEN_LIMIT", 1.0),
            pytest.raises(TransportError, match=r"opened no stream .* within 1 s"),
        ):
            for _ in range(20):  # streams of libp2p's own that end make room meanwhile
                await connection.open(HOLD)

    on_peers(tmp_path, test)


def test_whoever_does_not_read_lets_the_sender_wait_and_holds_little(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        connection = await connect(await start("a"), await start("b"))
        stream, sent = await connection.open(HOLD), 0
        with trio.move_on_after(1):
            while True:
                await stream.send(bytes(100_000))
                sent += 1
        assert 0 < sent * 100_000 <= repairs.MAX_WINDOW
        other = await connection.open(ECHO)
        await other.send(b"not held up")
        assert await other.receive() == b"not held up"

    on_peers(tmp_path, test)


def test_a_protocol_that_nobody_serves_is_refused(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        connection = await connect(await start("a"), await start("b"))
        with pytest.raises(TransportError, match="doesn't serve /test/none/1"):
            await connection.open("/test/none/1")

    on_peers(tmp_path, test)


def test_a_broadcast_reaches_all_others_and_not_its_sender(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        a, b, c = [await start(name) for name in "abc"]
        await connect(a, b)
        await connect(b, c)
        for peer in (b, c):
            while peer.listener.broadcasts.statistics().current_buffer_used == 0:
                await a.transport.broadcast(
                    TOPIC, b"x" * 100_000
                )  # best effort: until the peers have told their topics
                await trio.sleep(0.05)
            assert await peer.listener.broadcasts.receive() == b"x" * 100_000
        assert a.listener.broadcasts.statistics().current_buffer_used == 0
        with pytest.raises(ValueError, match="at most"):
            await a.transport.broadcast(TOPIC, bytes(900_001))

    on_peers(tmp_path, test)


def test_peers_connect_over_ipv6(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        a, b = (
            await start("a", listen=[Address("/ip6/::1/tcp/0")]),
            await start("b", listen=[Address("/ip6/::1/tcp/0")]),
        )
        connection = await connect(a, b)
        assert connection.remote_address == b.transport.addresses[0]
        assert connection.remote_address.startswith("/ip6/::1/tcp/")

    on_peers(tmp_path, test)


def test_dial_errors_name_the_address_and_the_reason(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        a, b = await start("a"), await start("b")
        here, there = a.transport.addresses[0], b.transport.addresses[0]
        for address, peer, reason in (
            (here, b.transport.me, f"{a.transport.me} is there, not {b.transport.me}"),
            (there, a.transport.me, f"{b.transport.me} is there, not {a.transport.me}"),
            (Address("/ip4/127.0.0.1/tcp/1"), None, "refused"),
            (Address("localhost:4001"), None, "write it like"),
        ):
            with pytest.raises(DialError, match=reason) as refusal:
                await a.transport.dial(address, peer)
            assert address in str(refusal.value)

    on_peers(tmp_path, test)


def test_a_copy_of_our_home_can_be_talked_to(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        original, copy = await start("a"), await start("a")
        for other in (copy, original):
            connection = await original.transport.dial(other.transport.addresses[0])
            assert connection.peer == original.transport.me
            stream = await connection.open(ECHO)
            await stream.send(b"who are you?")
            assert await stream.receive() == b"who are you?"

    on_peers(tmp_path, test)


def test_a_machine_that_accepts_and_stays_silent_is_given_up(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        a = await start("a")
        (silent,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with silent:
            address = addresses.from_socket_name(silent.socket.getsockname())
            with mock.patch.object(libp2p_host, "DIAL_LIMIT", 0.2), pytest.raises(DialError, match=r"waited 0\.2 s"):
                await a.transport.dial(address)

    on_peers(tmp_path, test)


def test_without_descriptors_the_addresses_known_last_count(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        transport = (await start("a")).transport
        known = transport.addresses
        with mock.patch.object(libp2p_host, "reachable", side_effect=OSError(errno.EMFILE, "Too many open files")):
            assert known and transport.addresses == known

    on_peers(tmp_path, test)


def test_a_peer_that_stops_says_goodbye(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        a, b = await start("a"), await start("b")
        connection = await connect(a, b)
        stream = await connection.open(ECHO)
        b.stop()
        await a.listener.hears("connected")
        assert await a.listener.hears("disconnected") is connection
        with pytest.raises(StreamClosedError):
            await stream.receive()

    on_peers(tmp_path, test)


def test_a_transport_that_is_cancelled_while_it_starts_ends(tmp_path: Path) -> None:
    async def main() -> None:
        transport = Libp2pTransport(Identity.load(tmp_path), CLUSTER, [LOOPBACK])
        with trio.CancelScope() as scope:
            scope.cancel()
            await transport.run(Listener())

    trio.run(main)


def test_the_same_identity_comes_back_at_once(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        a, b = await start("a"), await start("b")
        await connect(a, b)
        b.stop()
        await a.listener.hears("connected")
        await a.listener.hears("disconnected")
        assert (await connect(a, await start("b"))).peer == b.transport.me

    on_peers(tmp_path, test)


def test_a_port_in_use_is_refused_by_name(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        address = (await start("a")).transport.addresses[0]
        with pytest.raises(TransportError, match=f"can't listen on {address}: Address already in use"):
            await Libp2pTransport(Identity.load(tmp_path / "b"), CLUSTER, [address]).run(Listener())

    on_peers(tmp_path, test)


def test_what_comes_too_late_is_refused(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        transport = (await start("a")).transport
        for late in (transport.register, transport.subscribe):
            with pytest.raises(TransportError, match="too late"):
                late("/late/1")

    on_peers(tmp_path, test)


def test_a_transport_that_does_not_run_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        transport = Libp2pTransport(Identity.load(tmp_path), CLUSTER, [LOOPBACK])
        assert transport.addresses == ()
        with pytest.raises(DialError, match="isn't running"):
            await transport.dial(Address("/ip4/127.0.0.1/tcp/1"), PeerId("nobody"))
        with pytest.raises(TransportError, match="isn't running"):
            await transport.broadcast(TOPIC, b"")

    trio.run(main)


def test_a_wildcard_is_never_advertised(tmp_path: Path) -> None:
    found = addresses.reachable([Address("/ip4/0.0.0.0/tcp/4001"), Address("/ip4/127.0.0.1/tcp/4002")])
    assert found[-1] == "/ip4/127.0.0.1/tcp/4002"
    assert found[0] == f"/ip4/{addresses.interface_hosts('ip4')[0]}/tcp/4001"
    assert not any("0.0.0.0" in address for address in found)


@pytest.mark.parametrize(
    "wrong", ["", "/ip4/127.0.0.1", "/ip4/1.2.3/tcp/1", "/ip4/::1/tcp/1", "/ip4/1.2.3.4/tcp/70000"]
)
def test_a_wrong_address_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError):
        addresses.parse(wrong)


def test_a_host_listens_on_tcp_alone(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        transport: Any = (await start("a")).transport
        assert list(transport._host.get_network().listeners) == [LOOPBACK]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # would be taken by QUIC
            probe.bind(("127.0.0.1", addresses.parse(transport.addresses[0]).port))

    on_peers(tmp_path, test)


def test_a_host_leaves_no_thread_behind(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        await start("a")

    on_peers(tmp_path / "first", test)
    before = threading.active_count()
    on_peers(tmp_path / "second", test)
    assert threading.active_count() <= before
