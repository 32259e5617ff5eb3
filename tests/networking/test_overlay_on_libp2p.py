"""The overlay on real hosts, on loopback."""

from functools import partial
from pathlib import Path

import pytest
import trio

from networking.dialling import DialSettings
from networking.identity import Identity, verify
from networking.libp2p_host import Libp2pTransport
from networking.overlay import MemoryState, Overlay, OverlaySettings
from networking.simulation import join_payloads
from networking.ticket import Cluster
from networking.transport import Address, PeerId

CLUSTER = Cluster("desk", bytes(32))


def overlay(home: Path, cluster: Cluster = CLUSTER) -> tuple[Overlay, Libp2pTransport]:
    identity = Identity.load(home)
    transport = Libp2pTransport(identity, cluster, [Address("/ip4/127.0.0.1/tcp/0")])
    settings = OverlaySettings(dialling=DialSettings())
    face = Overlay(
        transport,
        sign=identity.sign,
        verify=verify,
        state=MemoryState(),
        settings=settings,
        merge_payloads=join_payloads,
    )
    return face, transport


def test_a_pair_finds_together_and_each_knows_what_the_other_tells(tmp_path: Path) -> None:
    async def main() -> None:
        (one, here), (other, _) = overlay(tmp_path / "one"), overlay(tmp_path / "other")
        async with trio.open_nursery() as nursery:
            with trio.fail_after(30):
                await nursery.start(one.run)
                await nursery.start(other.run)
                one.set_fact("name", b"desk")
                other.add_address(here.addresses[0])
                async for view in other.views():
                    if view.member(one.me) and view.leader and view.facts[one.me] == {"name": b"desk"}:
                        break
            member = other.view.member(one.me)
            assert member is not None
            assert member.proven == here.addresses
            assert other.view.warnings == ()
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_wrong_secret_is_said_in_the_log_and_in_the_view(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        member, there = overlay(tmp_path / "a")
        stranger, _ = overlay(tmp_path / "b", Cluster("desk", b"x" * 32))
        async with trio.open_nursery() as nursery:
            with trio.fail_after(30):
                await nursery.start(member.run)
                await nursery.start(stranger.run)
                stranger.add_address(there.addresses[0])
                async for view in stranger.views():
                    if any("another secret" in each and there.addresses[0] in each for each in view.warnings):
                        break
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert [line.split()[0] for line in caplog.text.splitlines() if "another secret" in line] == ["WARNING", "WARNING"]


def test_a_request_whose_caller_gives_up_is_cancelled_at_the_other_side(tmp_path: Path) -> None:
    """On the wire it is one frame that resets the stream; others on the same connection go on."""
    begun, cancelled = trio.Event(), trio.Event()

    async def work(_peer: PeerId, body: bytes) -> bytes:
        if body != b"for ever":
            return body
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    async def main() -> None:
        (asker, _), (worker, there) = overlay(tmp_path / "asker"), overlay(tmp_path / "worker")
        worker.serve_requests("/test/work", work)
        async with trio.open_nursery() as nursery:
            with trio.fail_after(30):
                await nursery.start(worker.run)
                await nursery.start(asker.run)
                asker.add_address(there.addresses[0])
                async for view in asker.views():
                    if view.member(worker.me):
                        break
                async with trio.open_nursery() as callers:
                    callers.start_soon(partial(asker.request, worker.me, "/test/work", b"for ever", timeout_s=3600))
                    await begun.wait()
                    assert not cancelled.is_set()
                    assert await asker.request(worker.me, "/test/work", b"beside", timeout_s=30) == b"beside"
                    callers.cancel_scope.cancel()
                await cancelled.wait()
                assert await asker.request(worker.me, "/test/work", b"again", timeout_s=30) == b"again"
            nursery.cancel_scope.cancel()

    trio.run(main)
