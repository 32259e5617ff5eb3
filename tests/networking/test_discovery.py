import logging
import time
from contextlib import contextmanager
from unittest import mock

import pytest
import trio
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from zeroconf import ServiceInfo, Zeroconf

from networking import discovery
from networking.discovery import Discovery, Sighting
from networking.transport import Address, PeerId

SERVICE = "_clustertest._tcp.local."
LOOPBACK = ["127.0.0.1"]
A = Sighting(
    PeerId("12D3KooWBhSTC2GAk7u9AV1jzk9gCBBsm2EsxNpNbnRVhxfSMvsQ"),
    (Address("/ip4/127.0.0.1/tcp/4001"), Address("/ip6/fd00::1/tcp/4001")),
    "desk",
    "0123456789ab",
    1,
)
B = evolve(A, peer=PeerId("12D3KooWQ79QWevBiUp9n31wxJH4hA4Z41gA8aMHavXJs6K4NRsY"), cluster="another", version=2)


def nobody(_sighting: Sighting) -> None:
    pass


def test_a_peer_of_the_first_version_is_seen_as_one_that_nobody_can_ask() -> None:
    txt = {key: value for key, value in A.to_txt().items() if key not in ("n", "pair", "fresh")}
    assert Sighting.from_txt(txt) == A
    assert (A.members, A.pairing, A.fresh) == (1, None, False)


@pytest.mark.parametrize("change", [{"pair": "0"}, {"pair": "70000"}, {"pair": "door"}, {"n": "many"}])
def test_a_door_that_can_not_be_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        Sighting.from_txt(A.to_txt() | change)


@given(st.integers(1, 2000), st.none() | st.integers(1, 65535), st.booleans())
def test_who_can_be_asked_comes_over(members: int, port: int | None, fresh: bool) -> None:
    said = evolve(A, members=members, pairing=port, fresh=fresh)
    assert Sighting.from_txt(said.to_txt()) == said


@given(st.integers(0, 60))
def test_what_a_peer_says_of_itself_comes_over(addresses: int) -> None:
    said = evolve(A, addresses=tuple(Address(f"/ip4/10.0.0.{n}/tcp/4001") for n in range(addresses)))
    heard = Sighting.from_txt(said.to_txt())
    assert evolve(heard, addresses=()) == evolve(said, addresses=())
    assert heard.addresses == said.addresses[: len(heard.addresses)]
    assert len(heard.addresses) >= min(addresses, 8)
    assert all(len(f"{key}={value}") <= 255 for key, value in said.to_txt().items())


@pytest.mark.parametrize(
    "change", [{"v": "new"}, {"v": "0"}, {"v": "9" * 17}, {"a": "nowhere"}, {"a": "/ip4/300.1.1.1/tcp/1"}]
)
def test_what_is_no_peer_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        Sighting.from_txt(A.to_txt() | change)


@pytest.mark.parametrize(
    "change",
    [
        {"peer": "not a peer id at all"},
        {"peer": "QmcgpsyWgH8Y8ajJz1Cu72KnS5uo2Aa2LpzU7kinSupNKC"},
        {"cluster": "desk\x1b[2J"},
        {"cluster": ""},
    ],
)
def test_who_can_not_be_a_peer_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        Sighting.from_txt(A.to_txt() | change)


def test_a_stranger_can_not_make_us_look_up_names() -> None:
    sighting = Sighting.from_txt(A.to_txt() | {"a": "/dns/internal.example/tcp/22,/ip4/10.0.0.1/tcp/4001"})
    assert sighting.addresses == ("/ip4/10.0.0.1/tcp/4001",)


def test_a_peer_that_moved_tells_its_new_addresses_and_sees_the_others_anew() -> None:
    async def main() -> None:
        seen_by_a, a_sees = trio.open_memory_channel[Sighting](10)
        seen_by_b, b_sees = trio.open_memory_channel[Sighting](10)
        moved = evolve(B, addresses=(Address("/ip4/127.0.0.1/tcp/4002"),))
        async with trio.open_nursery() as nursery:
            with trio.fail_after(20):
                await nursery.start(Discovery(A, seen_by_a.send_nowait, service=SERVICE, interfaces=LOOPBACK).run)
                b = Discovery(B, seen_by_b.send_nowait, service=SERVICE, interfaces=LOOPBACK)
                await nursery.start(b.run)
                assert await a_sees.receive() == B
                assert await b_sees.receive() == A
                b.announce(B)
                b.announce(moved)
                assert await a_sees.receive() == moved
                assert await b_sees.receive() == A
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_what_a_peer_says_anew_is_seen_without_another_look_at_the_network() -> None:
    async def main() -> None:
        seen_by_a, a_sees = trio.open_memory_channel[Sighting](10)
        joined = evolve(B, cluster="desk", members=2)
        async with trio.open_nursery() as nursery:
            with trio.fail_after(20):
                await nursery.start(Discovery(A, seen_by_a.send_nowait, service=SERVICE, interfaces=LOOPBACK).run)
                b = Discovery(B, nobody, service=SERVICE, interfaces=LOOPBACK)
                await nursery.start(b.run)
                assert await a_sees.receive() == B
                with mock.patch.object(
                    discovery, "Zeroconf", side_effect=AssertionError("the network is opened again")
                ):
                    b.announce(joined)
                    assert await a_sees.receive() == joined
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_news_that_can_not_be_told_end_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        tried, seen = trio.Event(), trio.open_memory_channel[Sighting](10)
        token = trio.lowlevel.current_trio_token()

        def fail(_zeroconf: Zeroconf, _info: ServiceInfo) -> None:
            token.run_sync_soon(tried.set)
            raise OSError("network is unreachable")

        async with trio.open_nursery() as nursery:
            with trio.fail_after(20):
                a = Discovery(A, seen[0].send_nowait, service=SERVICE, interfaces=LOOPBACK)
                await nursery.start(a.run)
                with mock.patch.object(Zeroconf, "update_service", fail):
                    a.announce(evolve(A, members=2))
                    await tried.wait()
                await nursery.start(Discovery(B, nobody, service=SERVICE, interfaces=LOOPBACK).run)
                assert await seen[1].receive() == B
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert "can't be told what is new here" in caplog.text


def test_who_is_still_there_is_sighted_again_and_again() -> None:
    async def main() -> None:
        seen, sees = trio.open_memory_channel[Sighting](10)
        async with trio.open_nursery() as nursery:
            with trio.fail_after(20):
                await nursery.start(Discovery(A, seen.send_nowait, service=SERVICE, interfaces=LOOPBACK).run)
                await nursery.start(Discovery(B, nobody, service=SERVICE, interfaces=LOOPBACK).run)
                for _ in range(3):
                    assert await sees.receive() == B
            nursery.cancel_scope.cancel()

    with mock.patch.object(discovery, "REPEAT_INTERVAL", 0.1):
        trio.run(main)


def test_peers_see_one_another_also_across_clusters() -> None:
    async def main() -> None:
        seen_by_a, a_sees = trio.open_memory_channel[Sighting](10)
        seen_by_b, b_sees = trio.open_memory_channel[Sighting](10)
        async with trio.open_nursery() as nursery:
            with trio.fail_after(20):
                await nursery.start(Discovery(A, seen_by_a.send_nowait, service=SERVICE, interfaces=LOOPBACK).run)
                await nursery.start(Discovery(B, seen_by_b.send_nowait, service=SERVICE, interfaces=LOOPBACK).run)
                assert await a_sees.receive() == B
                assert await b_sees.receive() == A
            nursery.cancel_scope.cancel()

    trio.run(main)


@contextmanager
def stranger_on_the_service():
    zeroconf = Zeroconf(interfaces=LOOPBACK)
    name, address = f"printer.{SERVICE}", bytes((127, 0, 0, 1))
    info = ServiceInfo(
        SERVICE, name, port=1, addresses=[address], properties={"paper": "none"}, server="printer.local."
    )
    zeroconf.register_service(info, cooperating_responders=True)
    try:
        yield
    finally:
        zeroconf.close()


def test_a_stranger_under_the_same_service_is_passed_over() -> None:
    async def main() -> None:
        seen, sees = trio.open_memory_channel[Sighting](10)
        async with trio.open_nursery() as nursery:
            with trio.fail_after(20):
                await nursery.start(Discovery(A, seen.send_nowait, service=SERVICE, interfaces=LOOPBACK).run)
                await nursery.start(Discovery(B, nobody, service=SERVICE, interfaces=LOOPBACK).run)
                assert await sees.receive() == B
            nursery.cancel_scope.cancel()

    with stranger_on_the_service():
        trio.run(main)


def test_a_sighting_that_can_not_be_taken_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        taken = trio.Event()

        def fail(_sighting: Sighting) -> None:
            taken.set()
            raise ValueError("a bug of the user")

        async with trio.open_nursery() as nursery:
            with trio.fail_after(20):
                await nursery.start(Discovery(A, fail, service=SERVICE, interfaces=LOOPBACK).run)
                await nursery.start(Discovery(B, nobody, service=SERVICE, interfaces=LOOPBACK).run)
                await taken.wait()
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert "could not be taken" in caplog.text


def test_without_multicast_it_says_so_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(Discovery(A, nobody).run)
            nursery.cancel_scope.cancel()

    with (
        mock.patch.object(discovery, "Zeroconf", side_effect=OSError("network is unreachable")),
        caplog.at_level(logging.WARNING),
    ):
        trio.run(main)
    assert [record.getMessage() for record in caplog.records if record.name == "networking.discovery"] == [
        "no discovery on the local network (network is unreachable): join by ticket or address instead"
    ]


def test_starting_never_holds_up_the_loop() -> None:
    async def main() -> None:
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        def open_slowly(**_settings: object) -> Zeroconf:
            before = turns
            while turns < before + 10:  # only a loop that goes on gets this far
                time.sleep(0.001)
            raise OSError("far enough")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn)
            with mock.patch.object(discovery, "Zeroconf", side_effect=open_slowly):
                await nursery.start(Discovery(A, nobody).run)
            nursery.cancel_scope.cancel()

    trio.run(main)
