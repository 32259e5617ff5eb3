"""A transport that goes over to another cluster, or another secret, while it runs."""

from contextlib import suppress
from pathlib import Path

import pytest
import trio
from real_hosts import CLUSTER, ECHO, Start, connect, on_peers

from networking.ticket import Cluster
from networking.transport import DialError, OtherClusterError, PeerId

OTHER = Cluster("desk", b"another secret, of 32 bytes, too"[:32])


def test_connections_that_stand_outlive_a_change_of_the_secret(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        a, b = await start("a"), await start("b")
        connection = await connect(a, b)
        a.transport.move(OTHER)
        b.transport.move(OTHER)
        stream = await connection.open(ECHO)
        await stream.send(b"still here")
        assert await stream.receive() == b"still here"

    on_peers(tmp_path, test)


def test_new_connections_need_the_new_secret_on_both_sides(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        a, b = await start("a"), await start("b")
        a.transport.move(OTHER)
        for one, other in ((a, b), (b, a)):
            with pytest.raises(OtherClusterError, match="another secret"):
                await one.transport.dial(other.transport.addresses[0])
        b.transport.move(OTHER)
        stream = await (await connect(a, b)).open(ECHO)
        await stream.send(b"in")
        assert await stream.receive() == b"in"

    on_peers(tmp_path, test)


def test_a_peer_that_is_no_longer_allowed_is_cut_off_and_stays_so(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        removed: set[PeerId] = set()
        a, b, c = await start("a", allow=lambda peer: peer not in removed), await start("b"), await start("c")
        to_b, to_c = await connect(a, b), await connect(a, c)
        removed.add(b.transport.me)
        a.transport.move(CLUSTER)
        assert await a.listener.hears("connected") is to_b
        assert await a.listener.hears("connected") is to_c
        assert await a.listener.hears("disconnected") is to_b
        assert (to_b.closed, to_c.closed) == (True, False)
        with pytest.raises(DialError):
            await a.transport.dial(b.transport.addresses[0])

    on_peers(tmp_path, test)


def test_a_peer_that_is_removed_while_it_shakes_hands_does_not_get_in(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        answers = iter((True,))
        a, b = await start("a", allow=lambda _peer: next(answers, False)), await start("b")
        with suppress(DialError):
            await b.transport.dial(a.transport.addresses[0])
            await b.listener.hears("connected")
            await b.listener.hears("disconnected")
        assert next(answers, None) is None
        with pytest.raises(trio.WouldBlock):
            a.listener.news.receive_nowait()

    on_peers(tmp_path, test)
