"""Who is not of the cluster stays outside, is told of in one line, and costs little."""

import logging
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest
import trio
from real_hosts import CLUSTER, Start, connect, ended, on_peers, silent_connection

from networking import greetings, handshakes
from networking.greetings import Greeting
from networking.ticket import Cluster
from networking.transport import Address, DialError, OtherClusterError


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (Cluster("desk", b"1" * 32), "our name, 'desk', but with another secret"),
        (Cluster("lab", bytes(32)), "another cluster, '"),
        (Cluster("desk"), "another secret"),
    ],
)
def test_another_secret_or_name_never_connects_and_both_sides_say_why(
    tmp_path: Path, other: Cluster, difference: str, caplog: pytest.LogCaptureFixture
) -> None:
    told, heard = trio.open_memory_channel[tuple[Address, str]](10)

    async def test(start: Start) -> None:
        member = await start("a", turned_away=lambda address, why: told.send_nowait((address, why)))
        stranger, friend = await start("b", other), await start("c")
        for _ in range(3):
            with pytest.raises(OtherClusterError, match=difference):
                await stranger.transport.dial(member.transport.addresses[0])
        address, why = await heard.receive()
        assert address.startswith("/ip4/127.0.0.1/")
        assert difference in why
        assert member.listener.news.statistics().current_buffer_used == 0
        await connect(friend, member)

    on_peers(tmp_path, test)
    assert caplog.text.count("dialled this node and was turned away") == 1


def test_who_greets_in_another_version_is_named_on_both_sides(tmp_path: Path) -> None:
    told, heard = trio.open_memory_channel[tuple[Address, str]](10)
    older = greetings.MAGIC[:-1] + b"0"
    here = greetings.MAGIC[-1:].decode()

    async def test(start: Start) -> None:
        member = await start("a", turned_away=lambda address, why: told.send_nowait((address, why)))
        stranger = await silent_connection(member.transport.addresses[0])
        await stranger.send_all(older + Greeting.of(CLUSTER).encode()[len(older) :])
        address, why = await heard.receive()
        assert address.startswith("/ip4/127.0.0.1/")
        assert why == f"it greets in version 0, this node in {here}; update the older one"
        await ended(stranger)

        async def be_older(stream: trio.SocketStream) -> None:
            await stream.send_all(older)
            await trio.sleep_forever()

        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, be_older, [listener])
            port = listener.socket.getsockname()[1]
            with pytest.raises(OtherClusterError, match="version 0"):
                await member.transport.dial(Address(f"/ip4/127.0.0.1/tcp/{port}"))
            nursery.cancel_scope.cancel()

    on_peers(tmp_path, test)


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", bytes(64), greetings.MAGIC + bytes((3,)) + b"\xff\xff\xff", b"over"]
)
def test_garbage_is_turned_away_at_once_and_is_no_warning(
    tmp_path: Path, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(start: Start) -> None:
        member, friend = await start("a"), await start("b")
        stranger = await silent_connection(member.transport.addresses[0])
        await stranger.send_all(garbage)
        with suppress(trio.BrokenResourceError):  # gone already, most often
            await stranger.send_eof()
        await ended(stranger)
        await connect(friend, member)

    caplog.set_level(logging.INFO)
    on_peers(tmp_path, test)
    lines = [record for record in caplog.records if "turned away" in record.message]
    assert [record.levelname for record in lines] == ["INFO"]


def test_the_right_greeting_does_not_help_without_the_key(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        member, friend = await start("a"), await start("b")
        stranger = await silent_connection(member.transport.addresses[0])
        await stranger.send_all(Greeting.of(CLUSTER).encode() + bytes(200))
        with mock.patch.object(handshakes, "HANDSHAKE_LIMIT", 0.2):
            await ended(stranger)
        assert member.listener.news.statistics().current_buffer_used == 0
        await connect(friend, member)

    on_peers(tmp_path, test)


def test_a_stranger_that_drips_its_words_is_sent_away_in_time(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        member = await start("a")
        with mock.patch.object(handshakes, "HANDSHAKE_LIMIT", 0.3):
            stranger = await silent_connection(member.transport.addresses[0])
            async with trio.open_nursery() as nursery:

                async def drip() -> None:
                    with suppress(trio.BrokenResourceError):
                        for byte in Greeting.of(CLUSTER).encode() * 100:
                            await stranger.send_all(bytes((byte,)))
                            await trio.sleep(0.02)

                nursery.start_soon(drip)
                await ended(stranger)
                nursery.cancel_scope.cancel()

    on_peers(tmp_path, test)


def test_who_is_not_allowed_never_connects_in_either_direction(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        friend, stranger = await start("a"), await start("b")
        member = await start("c", allow=lambda peer: peer == friend.transport.me)
        with pytest.raises(DialError, match="not allow"):
            await stranger.transport.dial(member.transport.addresses[0])
        with pytest.raises(DialError, match=f"{stranger.transport.me} is not allowed here"):
            await member.transport.dial(stranger.transport.addresses[0])
        assert member.listener.news.statistics().current_buffer_used == 0
        await connect(friend, member)

    on_peers(tmp_path, test)


def test_a_flood_of_silent_strangers_is_pushed_out_and_keeps_nobody_from_connecting(tmp_path: Path) -> None:
    gone: list[trio.SocketStream] = []

    async def watch(stranger: trio.SocketStream, oldest_gone: trio.Event) -> None:
        await ended(stranger)
        gone.append(stranger)
        if len(gone) == 100 - handshakes.MAX_HANDSHAKES:
            oldest_gone.set()

    async def test(start: Start) -> None:
        member, friend = await start("a"), await start("b")
        address, oldest_gone = member.transport.addresses[0], trio.Event()
        async with trio.open_nursery() as nursery:
            strangers = [await silent_connection(address) for _ in range(100)]
            for stranger in strangers:
                nursery.start_soon(watch, stranger, oldest_gone)
            await oldest_gone.wait()
            await connect(friend, member)
            assert not set(gone) & set(strangers[-handshakes.MAX_HANDSHAKES + 1 :])
            nursery.cancel_scope.cancel()

    with mock.patch.object(handshakes, "HANDSHAKE_LIMIT", 1000):
        on_peers(tmp_path, test)


def test_a_stranger_that_stays_silent_is_sent_away(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        member = await start("a")
        with mock.patch.object(handshakes, "HANDSHAKE_LIMIT", 0.1):
            await ended(await silent_connection(member.transport.addresses[0]))

    on_peers(tmp_path, test)
