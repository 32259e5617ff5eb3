"""What somebody learns whom nobody has let in: exactly what docs/pairing.md says, and nothing of the members."""

import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
import trio
from attrs import define, evolve, field
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from real_hosts import Start, on_peers, silent_connection

from networking import handshakes, pairing_listener
from networking.charter import Charter, Named
from networking.discovery import Sighting
from networking.greetings import MAGIC
from networking.identity import Identity, verify
from networking.overlay import MemoryState, Overlay, OverlaySettings
from networking.pairing import Asker, PairingError, Party
from networking.pairing_channel import PairingChannel
from networking.pairing_desk import Desk, DeskSettings, WrongCodeError
from networking.pairing_messages import Purpose, Reveal, decode
from networking.pairing_rate import KnockRate, RateSettings
from networking.simulated_network import SimulatedNetwork
from networking.simulated_transport import SimulatedTransport
from networking.simulation import join_payloads, sign_as
from networking.ticket import Cluster
from networking.transport import Address
from p2pexo.node.belonging import Belonging
from p2pexo.node.doors import Doors

PAGE = (Path(__file__).parents[3] / "docs" / "pairing.md").read_text()
SECTION = PAGE.partition("## What a stranger learns\n")[2].partition("\n## ")[0]
LOOPBACK = "127.0.0.1"


def party(number: int) -> Party:
    identity = Identity(Path(), Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))
    return Party(identity.peer_id, identity.sign, verify)


STUDIO, BEN, CLEO, REMOVED, STRANGER, ANOTHER = (party(number) for number in range(1, 7))
CHARTER = Charter(
    Cluster("desk", b"the secret that nobody may see.."),
    known=(BEN.me, CLEO.me),
    removed=frozenset({REMOVED.me}),
    former=("f0f0f0f0f0f0",),
    named=(Named(BEN.me, "bens-attic", "Apple M9, 7 TB"),),
)
OWN_ADDRESS = Address("/dns/studio-inside/tcp/1")
SECRETS = [
    CHARTER.cluster.secret,
    b64encode(CHARTER.cluster.secret or b""),
    CHARTER.cluster.network_key,
    CHARTER.cluster.fingerprint,
    *(each.me for each in (BEN, CLEO, REMOVED)),
    "f0f0f0f0f0f0",
    "bens-attic",
    "Apple M9",
    "studio-inside",
]


def row(where: str) -> str:
    (line,) = re.findall(rf"^\| {where} \|.*$", SECTION, re.MULTILINE)
    return line


def told_by_the_page() -> dict[str, set[str]]:
    """The fields of each message, by its kind."""
    messages = re.findall(r"`([A-Z]\w+)`(?: \(([^)]*)\))?", row("the port for newcomers"))
    return {kind: set(re.findall(r"`(\w+)`", fields)) for kind, fields in messages}


REASONS = {" ".join(each.split()) for each in re.findall(r"^- (.+(?:\n  .+)*)", SECTION, re.MULTILINE)}


@define
class Door:
    nursery: trio.Nursery
    doors: Doors
    port: int
    heard: list[bytes] = field(factory=list)

    async def until_waiting(self, count: int = 1) -> None:
        while len(self.doors.reception.waiting) != count:
            await self.doors.until_waiting_changes()

    def knock(self, who: Party = STRANGER, **more: Any) -> trio.Event:
        """Set when it has been refused, or hung up on."""
        closed = trio.Event()
        self.nursery.start_soon(self._knock, who, closed, more)
        return closed

    async def _knock(self, who: Party, closed: trio.Event, more: dict[str, Any]) -> None:
        with suppress(PairingError):  # as when the other side has closed
            await self._listen(who, **more)
        closed.set()

    async def _listen(
        self, who: Party, purpose: Purpose = Purpose.JOIN, version: int = 1, signature: bytes | None = None
    ) -> None:
        wire = await trio.open_tcp_stream(LOOPBACK, self.port)
        channel = await PairingChannel.dial(wire)
        self.heard.append(channel._stream.getpeercert(binary_form=True))
        asker = Asker(who, STUDIO.me, purpose=purpose, name="x", machine="y", channel=channel.binding, nonce=b"n" * 32)
        await channel.send(evolve(asker.begin(), version=version))
        try:
            while True:
                frame = await self._frame(channel)
                self.heard.append(frame)
                reply = asker.received(decode(frame))  # raises what a refusal says
                if isinstance(reply, Reveal):
                    await channel.send(evolve(reply, signature=signature) if signature else reply)
        finally:
            wire.socket.close()

    async def _frame(self, channel: PairingChannel) -> bytes:
        await channel._fill(4)
        size = int.from_bytes(channel._received[:4], "big")
        await channel._fill(4 + size)
        frame = bytes(channel._received[4 : 4 + size])
        del channel._received[: 4 + size]
        return frame


@asynccontextmanager
async def door(folder: Path, settings: DeskSettings) -> AsyncGenerator[Door]:
    transport = SimulatedTransport(SimulatedNetwork(seed=1), STUDIO.me, OWN_ADDRESS)
    overlay = Overlay(
        transport,
        sign=sign_as(STUDIO.me),
        verify=lambda *_: True,
        state=MemoryState(),
        settings=OverlaySettings(),
        merge_payloads=join_payloads,
        random=Random(1),
    )
    doors = Doors(overlay, STUDIO, Belonging(folder, CHARTER), lambda: (OWN_ADDRESS,), approve_all=False)
    doors.reception._desk = Desk(settings)
    doors.reception._rate = KnockRate(RateSettings(burst=1000, burst_of_all=1000))
    async with trio.open_nursery() as nursery:
        with trio.fail_after(30):
            await nursery.start(overlay.run)
            port: int = await nursery.start(doors.reception.run, [LOOPBACK], 0)
            yield Door(nursery, doors, port)
        nursery.cancel_scope.cancel()


async def is_denied(door: Door) -> None:
    closed = door.knock()
    await door.until_waiting()
    door.doors.reception.deny(STRANGER.me)
    await closed.wait()
    await door.knock().wait()


async def asks_twice(door: Door) -> None:
    first = door.knock()
    await door.until_waiting()
    second = door.knock()
    await first.wait()
    await door.until_waiting()
    door.doors.reception.move()
    await second.wait()


async def waits_until_its_time_is_up(door: Door) -> None:
    await door.knock().wait()


async def is_one_too_many_and_shows_a_wrong_code(door: Door) -> None:
    waits = door.knock()
    await door.until_waiting()
    await door.knock(ANOTHER).wait()
    with pytest.raises(WrongCodeError):
        door.doors.reception.approve(STRANGER.me, "no code")
    await waits.wait()


async def calls_itself_a_member(door: Door) -> None:
    await door.knock(purpose=Purpose.RENEW).wait()
    await door.knock(REMOVED, purpose=Purpose.RENEW).wait()
    await door.knock(REMOVED).wait()


async def says_what_can_not_be(door: Door) -> None:
    await door.knock(signature=b"s" * 64).wait()
    await door.knock(version=2).wait()


STORIES: list[tuple[Callable[[Door], Awaitable[None]], DeskSettings]] = [
    (is_denied, DeskSettings()),
    (asks_twice, DeskSettings()),
    (waits_until_its_time_is_up, DeskSettings(lasts_s=0.3)),
    (is_one_too_many_and_shows_a_wrong_code, DeskSettings(waiting=1, wrong_codes=1)),
    (calls_itself_a_member, DeskSettings()),
]


def hear(folder: Path, story: Callable[[Door], Awaitable[None]], settings: DeskSettings) -> list[bytes]:
    heard: list[bytes] = []

    async def main() -> None:
        async with door(folder, settings) as scene:
            await story(scene)
            heard.extend(scene.heard)

    trio.run(main)
    return heard


def messages(heard: list[bytes]) -> list[dict[str, Any]]:
    return [orjson.loads(each) for each in heard if each.startswith(b"{")]


@pytest.mark.parametrize(
    ("story", "settings"),
    [*STORIES, (says_what_can_not_be, DeskSettings())],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_stranger_at_the_door_hears_what_the_page_says_and_nothing_of_the_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, story: Callable[[Door], Awaitable[None]], settings: DeskSettings
) -> None:
    monkeypatch.setattr(pairing_listener, "REASSURE_S", 0.05)
    heard = hear(tmp_path, story, settings)
    assert messages(heard)
    for message in messages(heard):
        kind = message.pop("kind")
        assert message.keys() == told_by_the_page()[kind]
        assert message.get("cluster", "desk") == "desk"
    for certificate in (x509.load_der_x509_certificate(each) for each in heard if not each.startswith(b"{")):
        assert [each.value for each in certificate.subject] == ["pairing"]
        assert certificate.subject == certificate.issuer
    for secret in SECRETS:
        assert (secret if isinstance(secret, bytes) else str(secret).encode()) not in b"\n".join(heard)


def test_who_only_claims_a_peer_id_hears_the_same_whoever_that_is(tmp_path: Path) -> None:
    """So nobody can find out by asking who is a member, or was removed."""
    told: list[str] = []
    for claimed in (BEN, REMOVED, ANOTHER):

        async def pretend(door: Door, claimed: Party = claimed) -> None:
            await door.knock(evolve(STRANGER, me=claimed.me)).wait()

        *_, refusal = messages(hear(tmp_path, pretend, DeskSettings()))
        told.append(refusal["reason"].replace(claimed.me, "it"))
    assert told == [told[0]] * 3
    assert "it could not prove who it is" in told[0]


def test_the_page_lists_every_reason_that_a_stranger_is_told(tmp_path: Path) -> None:
    heard = [each for story, settings in STORIES for each in messages(hear(tmp_path, story, settings))]
    assert {each["reason"] for each in heard if each["kind"] == "Refusal"} == REASONS


def test_the_page_lists_all_that_is_announced_to_everybody() -> None:
    txt = Sighting(STUDIO.me, (), "desk", "f", 1).to_txt()
    assert set(re.findall(r"`(\w+)`", row("mDNS, unasked"))) == set(txt)


def test_without_the_secret_the_nodes_port_says_the_name_and_the_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKE_LIMIT", 1.5)
    heard = bytearray()

    async def test(start: Start) -> None:
        member = await start("a", CHARTER.cluster)
        stranger = await silent_connection(member.transport.addresses[0])
        words = f"{CHARTER.cluster.fingerprint} desk".encode()
        greeting = MAGIC + bytes([len(words)]) + words
        await stranger.send_all(greeting)
        while data := await stranger.receive_some():
            heard.extend(data)
        assert heard.startswith(greeting)
        for word in (b"multistream", b"noise", member.transport.me.encode(), b"desk"):
            assert word not in heard[len(greeting) :]
        assert len(heard) < len(greeting) + 100

    on_peers(tmp_path, test)
