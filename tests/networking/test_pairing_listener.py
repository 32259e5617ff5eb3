"""The door over real TLS on loopback: what newcomers and strangers get."""

import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from attrs import define, field
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from networking import handshakes, pairing_listener
from networking.certificates import make_self_signed
from networking.identity import Identity, verify
from networking.pairing import PairingError, Party
from networking.pairing_channel import PairingChannel
from networking.pairing_client import Door, Question, UnreachableError, ask
from networking.pairing_desk import Desk, DeskSettings, TurnedAwayError, WrongCodeError
from networking.pairing_listener import Reception
from networking.pairing_messages import (
    Admission,
    Ask,
    Challenge,
    PairingMessage,
    Purpose,
    Refusal,
    Reveal,
    Waiting,
    encode,
)
from networking.pairing_rate import KnockRate, RateSettings
from networking.transport import PeerId

LOOPBACK = "127.0.0.1"
SECRET = b"the secret that nobody may see.."
JOIN = Question(Purpose.JOIN, "anna", "Apple M3")
UNLIMITED = RateSettings(burst=10_000, burst_of_all=10_000)


def party(number: int) -> Party:
    identity = Identity(Path(), Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))
    return Party(identity.peer_id, identity.sign, verify)


STUDIO, ANNA, BEN, MALLORY = (party(number) for number in range(1, 5))


@define
class Desktop:
    """The member: lets in who is known, and counts how often the list of those who wait changed."""

    cluster: str = "desk"
    known: set[PeerId] = field(factory=set)
    removed: set[PeerId] = field(factory=set)
    admitted: list[PeerId] = field(factory=list)
    changed: trio.Event = field(factory=trio.Event)

    def admits_at_once(self, ask: Ask) -> bool:
        if ask.peer in self.removed:
            raise TurnedAwayError("that machine was removed", denied=True)
        return ask.peer in self.known

    def admit(self, peer: PeerId) -> Admission:
        self.admitted.append(peer)
        return Admission(self.cluster, SECRET, 0)

    def waiting_changed(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


@define
class Scene:
    nursery: trio.Nursery
    host: Desktop
    reception: Reception
    port: int

    @property
    def door(self) -> Door:
        return Door(STUDIO.me, LOOPBACK, self.port)

    async def until_waiting(self, count: int = 1) -> None:
        while len(self.reception.waiting) != count:
            await self.host.changed.wait()

    def knock(self, who: Party = ANNA, question: Question = JOIN) -> "Guest":
        guest = Guest()
        self.nursery.start_soon(guest.run, who, self.door, question)
        return guest


@define
class Guest:
    shown: list[tuple[str, str]] = field(factory=list)
    admission: Admission | None = None
    refusal: PairingError | None = None
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    ended: trio.Event = field(factory=trio.Event)

    async def run(self, who: Party, door: Door, question: Question) -> None:
        with self.scope:
            try:
                self.admission = await ask(who, door, question, lambda *shown: self.shown.append(shown))
            except PairingError as error:
                self.refusal = error
        self.ended.set()


def play(
    story: Callable[[Scene], Awaitable[None]], desk: DeskSettings | None = None, rate: RateSettings = UNLIMITED
) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            with trio.fail_after(30):
                host = Desktop()
                reception = Reception(STUDIO, host, Desk(desk or DeskSettings()), KnockRate(rate))
                port: int = await nursery.start(reception.run, [LOOPBACK], 0)
                await story(Scene(nursery, host, reception, port))
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_newcomer_that_is_approved_gets_the_secret_and_nobody_before() -> None:
    async def story(scene: Scene) -> None:
        guest = scene.knock()
        await scene.until_waiting()
        (applicant,) = scene.reception.waiting
        assert (applicant.peer, applicant.name, applicant.machine) == (ANNA.me, "anna", "Apple M3")
        assert guest.shown == [("desk", applicant.code)]
        assert scene.host.admitted == []
        scene.reception.approve(ANNA.me, applicant.code)
        await guest.ended.wait()
        assert guest.admission == Admission("desk", SECRET, 0)
        assert scene.host.admitted == [ANNA.me]
        assert scene.reception.waiting == ()

    play(story)


def test_a_newcomer_that_is_denied_is_told_so() -> None:
    async def story(scene: Scene) -> None:
        guest = scene.knock()
        await scene.until_waiting()
        scene.reception.deny(ANNA.me)
        await guest.ended.wait()
        assert guest.admission is None
        assert guest.refusal is not None
        assert guest.refusal.denied
        assert "somebody there denied it" in str(guest.refusal)
        again = scene.knock()
        await again.ended.wait()
        assert again.refusal is not None
        assert "denied here a while ago" in str(again.refusal)

    play(story)


def test_wrong_codes_let_nobody_in() -> None:
    async def story(scene: Scene) -> None:
        guest = scene.knock()
        await scene.until_waiting()
        for _ in range(3):
            with pytest.raises(WrongCodeError):
                scene.reception.approve(ANNA.me, "no code")
        await guest.ended.wait()
        assert (guest.admission, scene.host.admitted) == (None, [])

    play(story)


def test_nobody_waits_for_ever() -> None:
    async def story(scene: Scene) -> None:
        guest = scene.knock()
        await guest.ended.wait()
        assert guest.refusal is not None
        assert "in time" in str(guest.refusal)
        assert not guest.refusal.denied
        assert scene.reception.waiting == ()

    play(story, DeskSettings(lasts_s=0.5))


def test_a_newcomer_that_leaves_waits_no_more() -> None:
    async def story(scene: Scene) -> None:
        guest = scene.knock()
        await scene.until_waiting()
        guest.scope.cancel()
        await scene.until_waiting(0)
        assert scene.host.admitted == []

    play(story)


def test_a_newcomer_hears_again_and_again_that_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing_listener, "REASSURE_S", 0.01)
    told, hears = trio.open_memory_channel[object](100)
    receive = PairingChannel.receive

    async def listen(channel: PairingChannel) -> object:
        message = await receive(channel)
        told.send_nowait(message)
        return message

    monkeypatch.setattr(PairingChannel, "receive", listen)

    async def story(scene: Scene) -> None:
        guest = scene.knock()
        await scene.until_waiting()
        for _ in range(3):
            while await hears.receive() != Waiting():
                pass
        scene.reception.approve(ANNA.me)
        await guest.ended.wait()
        assert guest.admission is not None

    play(story)


def test_who_is_known_comes_back_without_approval_and_who_was_removed_does_not() -> None:
    async def story(scene: Scene) -> None:
        scene.host.known = {BEN.me}
        scene.host.removed = {MALLORY.me}
        ben, mallory = scene.knock(BEN, Question(Purpose.RENEW, "ben", "")), scene.knock(MALLORY)
        await ben.ended.wait()
        await mallory.ended.wait()
        assert ben.admission is not None
        assert mallory.refusal is not None
        assert mallory.refusal.denied
        assert scene.host.admitted == [BEN.me]

    play(story)


def test_a_machine_that_moved_tells_those_who_wait_to_ask_anew() -> None:
    async def story(scene: Scene) -> None:
        guest = scene.knock()
        await scene.until_waiting()
        scene.host.cluster = "attic"
        scene.reception.move()
        await guest.ended.wait()
        assert guest.refusal is not None
        assert "moved to another cluster" in str(guest.refusal)
        assert not guest.refusal.denied

    play(story)


def test_several_wait_at_once_and_each_gets_its_own_answer() -> None:
    async def story(scene: Scene) -> None:
        anna, ben = scene.knock(ANNA), scene.knock(BEN)
        await scene.until_waiting(2)
        scene.reception.approve(BEN.me)
        scene.reception.deny(ANNA.me)
        await anna.ended.wait()
        await ben.ended.wait()
        assert (anna.admission is None, ben.admission is None) == (True, False)

    play(story)


def test_one_who_relays_between_two_tls_connections_gets_nothing() -> None:
    """He passes every message on untouched, from a TLS connection of his own to the other one."""

    async def story(scene: Scene) -> None:
        certificate = make_self_signed("mallory")  # he doesn't have the key of the member's

        async def relay(newcomer: trio.SocketStream) -> None:
            member = await trio.open_tcp_stream(LOOPBACK, scene.port)
            inside, outside = await PairingChannel.accept(newcomer, certificate), await PairingChannel.dial(member)
            with suppress(PairingError):
                while True:
                    await outside.send(await inside.receive())
                    await inside.send(await outside.receive())
            member.socket.close()
            newcomer.socket.close()

        listeners = await trio.open_tcp_listeners(0, host=LOOPBACK)
        scene.nursery.start_soon(trio.serve_listeners, relay, listeners)
        port = listeners[0].socket.getsockname()[1]
        with pytest.raises(PairingError, match="may stand between"):
            await ask(ANNA, Door(STUDIO.me, LOOPBACK, port), JOIN, lambda *_: None)
        assert (scene.reception.waiting, scene.host.admitted) == ((), [])

    play(story)


def test_what_was_recorded_of_one_conversation_lets_nobody_in_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has heard every word of it plays the newcomer's part again, on a TLS connection of his own."""
    said: list[PairingMessage] = []
    send = PairingChannel.send

    async def record(channel: PairingChannel, message: PairingMessage) -> None:
        said.append(message)
        await send(channel, message)

    monkeypatch.setattr(PairingChannel, "send", record)

    async def story(scene: Scene) -> None:
        guest = scene.knock()
        await scene.until_waiting()
        scene.reception.approve(ANNA.me)
        await guest.ended.wait()
        words = [message for message in said if isinstance(message, Ask | Reveal)]
        scene.host.known, scene.host.admitted = {ANNA.me}, []  # it would need no approval any more
        wire = await trio.open_tcp_stream(LOOPBACK, scene.port)
        channel = await PairingChannel.dial(wire)
        answers: list[PairingMessage] = []
        for message in words:
            await channel.send(message)
            answers.append(await channel.receive())
        assert [type(each) for each in (*words, *answers)] == [Ask, Reveal, Challenge, Refusal]
        assert "could not prove who it is" in str(answers[-1])
        assert (scene.reception.waiting, scene.host.admitted) == ((), [])
        wire.socket.close()

    play(story)


@pytest.mark.parametrize("opening", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + b"\xff" * 600])
def test_whoever_talks_something_else_is_hung_up_on(opening: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKE_LIMIT", 0.2)

    async def story(scene: Scene) -> None:
        stream = await trio.open_tcp_stream(LOOPBACK, scene.port)
        if opening:
            await stream.send_all(opening)
        with suppress(trio.BrokenResourceError):
            while await stream.receive_some(1000):
                pass
        guest = scene.knock()
        await scene.until_waiting()
        assert guest.shown

    play(story)


async def spoken_to(scene: Scene, *frames: bytes) -> bytes:
    """All that somebody who speaks TLS hears in answer to these bytes."""
    wire = await trio.open_tcp_stream(LOOPBACK, scene.port)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    stream = trio.SSLStream(wire, context)
    heard = b""
    with suppress(trio.BrokenResourceError):
        for frame in frames:
            await stream.send_all(frame)
        while data := await stream.receive_some(65536):
            heard += data
    wire.socket.close()
    return heard


def test_a_stranger_hears_of_nothing_but_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKE_LIMIT", 0.3)

    async def story(scene: Scene) -> None:
        words = encode(Ask(1, Purpose.JOIN, ANNA.me, "x", "y", b"c" * 32))
        heard = await spoken_to(scene, len(words).to_bytes(4, "big") + words)
        assert b"desk" in heard
        assert STUDIO.me.encode() in heard
        assert SECRET not in heard
        assert heard.count(b'":') == 5  # kind, version, peer, cluster, nonce
        assert scene.reception.waiting == ()

    play(story)


@pytest.mark.parametrize("frames", [(b"\xff\xff\xff\xff",), (b"\x00\x00\x00\x02{}",), (b"\x00\x00\x00\x01x",)])
def test_frames_that_are_none_end_the_conversation(frames: tuple[bytes, ...]) -> None:
    async def story(scene: Scene) -> None:
        await spoken_to(scene, *frames)
        assert scene.reception.waiting == ()
        scene.knock()
        await scene.until_waiting()

    play(story)


def test_a_flood_of_silent_connections_keeps_nobody_out() -> None:
    async def story(scene: Scene) -> None:
        silent = [await trio.open_tcp_stream(LOOPBACK, scene.port) for _ in range(100)]
        guest = scene.knock()
        await scene.until_waiting()
        assert guest.shown
        for each in silent:
            await each.aclose()

    play(story)


def test_a_flood_of_machines_that_all_prove_their_keys_fills_a_short_list_and_keeps_others_from_nothing() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            with trio.fail_after(60):
                host, settings = Desktop(), DeskSettings(waiting=4, waiting_per_address=3)
                reception = Reception(STUDIO, host, Desk(settings), KnockRate(UNLIMITED))
                port: int = await nursery.start(reception.run, [LOOPBACK, "::1"], 0)
                scene = Scene(nursery, host, reception, port)
                flood = {who.me: scene.knock(who) for who in map(party, range(10, 22))}
                await scene.until_waiting(3)
                refused = [flood[peer] for peer in flood.keys() - {each.peer for each in reception.waiting}]
                for each in refused:
                    await each.ended.wait()
                real = Guest()
                nursery.start_soon(real.run, ANNA, Door(STUDIO.me, "::1", port), JOIN)
                await scene.until_waiting(4)
                reception.approve(ANNA.me)
                await real.ended.wait()
                assert real.admission is not None
                assert len(refused) == 9
                assert all("too many machines wait" in str(each.refusal) for each in refused)
                assert host.admitted == [ANNA.me]
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_who_knocks_too_often_is_not_answered_for_a_while() -> None:
    async def story(scene: Scene) -> None:
        for _ in range(3):
            guest = scene.knock()
            await scene.until_waiting()
            guest.scope.cancel()
            await scene.until_waiting(0)
        late = scene.knock()
        await late.ended.wait()
        assert late.refusal is not None
        assert late.shown == []

    play(story, rate=RateSettings(burst=3, refill_s=60))


def test_a_door_where_nobody_is_is_named() -> None:
    async def main() -> None:
        with socket.create_server((LOOPBACK, 0)) as unused:
            port = unused.getsockname()[1]
        with pytest.raises(UnreachableError, match=f"nobody can be asked at 127.0.0.1 port {port}"):
            await ask(ANNA, Door(STUDIO.me, LOOPBACK, port), JOIN, lambda *_: None)

    trio.run(main)


def test_all_hosts_get_the_same_port() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            reception = Reception(STUDIO, Desktop())
            port: int = await nursery.start(reception.run, [LOOPBACK, "::1", "192.0.2.250"], 0)
            for host in (LOOPBACK, "::1"):
                await (await trio.open_tcp_stream(host, port)).aclose()
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_reception_that_can_listen_nowhere_says_where() -> None:
    async def main() -> None:
        with pytest.RaisesGroup(pytest.RaisesExc(OSError, match=r"192\.0\.2\.250"), flatten_subgroups=True):
            async with trio.open_nursery() as nursery:
                await nursery.start(Reception(STUDIO, Desktop()).run, ["192.0.2.250"], 0)

    trio.run(main)
