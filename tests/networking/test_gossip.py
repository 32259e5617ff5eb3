from pathlib import Path
from unittest import mock

import trio
from libp2p import new_host
from real_hosts import TOPIC, Peer, Start, connect, on_peers

from networking import gossip
from networking.gossip import Gossip

HERE = b"I am here"


def test_a_restart_repeats_no_number_even_if_the_clock_was_set_back() -> None:
    with mock.patch("time.time", return_value=1.0), mock.patch("time.time_ns", return_value=1):
        lives = [Gossip(new_host(), (), lambda topic, data: None) for _ in range(2)]
    first, second = [int.from_bytes(each._pubsub._next_seqno(), "big") for each in lives]
    for each in lives:
        each._pubsub.seen_messages.stop()
    assert abs(first - second) > 1_000_000


def test_a_burst_of_broadcasts_arrives_whole(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        a, b = await start("a"), await start("b")
        await connect(a, b)
        await until_heard(a, b)
        sent = {b"%d" % number for number in range(200)}
        for message in sent:
            await a.transport.broadcast(TOPIC, message)
        heard: set[bytes] = set()
        while not heard >= sent:
            heard.add(await b.listener.broadcasts.receive())

    on_peers(tmp_path, test)


def test_broadcasts_arrive_after_one_of_two_connections_was_closed(tmp_path: Path) -> None:
    async def test(start: Start) -> None:
        a, b = await start("a"), await start("b")
        first = await connect(a, b)
        await connect(b, a)
        first.abort()
        await until_heard(a, b)
        await until_heard(b, a)

    with mock.patch.object(gossip, "ANNOUNCE_INTERVAL", 0.2):
        on_peers(tmp_path, test)


def test_a_delivery_is_noted_nowhere() -> None:
    deliveries = gossip._Sink()
    for number in range(10):
        deliveries["peer"]["topic"].append(number)
    assert not deliveries


async def until_heard(speaker: Peer, hearer: Peer) -> None:
    """Broadcasts are best effort, and nothing before both have told their topics."""
    while hearer.listener.broadcasts.statistics().current_buffer_used == 0:
        await speaker.transport.broadcast(TOPIC, HERE)
        await trio.sleep(0.05)
