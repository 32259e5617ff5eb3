"""A member's door for newcomers: a TLS listener of its own, since the overlay's is behind the key that they don't have yet.

Nobody who knocks costs much: knocks are rated, handshakes few and short, those who wait few and not for long.
"""

import logging
import secrets
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Protocol

import trio
from attrs import define, field

from networking.certificates import make_self_signed
from networking.handshakes import Handshakes
from networking.pairing import Asked, PairingError, Party
from networking.pairing_channel import CONNECTION_ERRORS, PairingChannel
from networking.pairing_desk import Applicant, Desk, Outcome, TurnedAwayError
from networking.pairing_messages import (
    NONCE_BYTES,
    Admission,
    Ask,
    MalformedPairingError,
    Refusal,
    Waiting,
)
from networking.pairing_rate import KnockRate
from networking.transport import PeerId

logger = logging.getLogger(__name__)

REASSURE_S = 10.0
"""Between two words to a newcomer that waits; well below what it waits in silence."""

LINGER_S = 2.0
"""How long a connection is kept for its last words to arrive."""

BACKLOG = 64

_REASONS = {
    Outcome.DENIED: "somebody there denied it",
    Outcome.EXPIRED: "nobody there approved it in time",
    Outcome.REPLACED: "you asked a second time",
    Outcome.MOVED: "that machine has moved to another cluster itself",
}


class Host(Protocol):
    """Whose door it is. Everything must return at once."""

    @property
    def cluster(self) -> str:
        """Its name; told to whoever asks."""
        ...

    def admits_at_once(self, ask: Ask) -> bool:
        """Whether a peer that has proven its id needs nobody's approval. Raises TurnedAwayError if it has no chance."""
        ...

    def admit(self, peer: PeerId) -> Admission:
        """The peer is in; what to tell it."""
        ...

    def waiting_changed(self) -> None: ...


@define(eq=False)
class _Waiter:
    decided: trio.Event = field(factory=trio.Event)
    outcome: Outcome = Outcome.EXPIRED
    left: bool = False

    def leave(self) -> None:
        if not self.decided.is_set():
            self.left = True
            self.decided.set()


class Reception:
    """``run`` listens; the other methods are what people decide, and raise what ``Desk`` raises."""

    def __init__(self, party: Party, host: Host, desk: Desk | None = None, rate: KnockRate | None = None) -> None:
        self._party = party
        self._host = host
        self._desk = desk or Desk()
        self._rate = rate or KnockRate()
        self._handshakes = Handshakes()
        self._waiters: dict[int, _Waiter] = {}
        self._certificate = make_self_signed("pairing")

    @property
    def waiting(self) -> tuple[Applicant, ...]:
        return self._desk.waiting

    def approve(self, peer: PeerId, code: str | None = None) -> None:
        try:
            self._desk.approve(trio.current_time(), peer, code)
        finally:
            self._settle()

    def deny(self, peer: PeerId) -> None:
        try:
            self._desk.deny(trio.current_time(), peer)
        finally:
            self._settle()

    def move(self) -> None:
        """This machine is in another cluster now."""
        self._desk.move()
        self._settle()

    async def run(
        self, hosts: Iterable[str], port: int, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen until cancelled; ``started`` with the port, the same on all hosts. Raises OSError if there is none."""
        listeners = await _listen(hosts, port)
        async with trio.open_nursery() as nursery:
            serve = partial(trio.serve_listeners, self._serve, listeners, handler_nursery=nursery)
            await nursery.start(serve)
            task_status.started(listeners[0].socket.getsockname()[1])
            await trio.sleep_forever()

    async def _serve(self, wire: trio.SocketStream) -> None:
        try:
            address = str(wire.socket.getpeername()[0])
            if self._rate.allows(trio.current_time(), address):
                await self._welcome(wire, address)
            else:
                logger.debug("%s knocks too often", address)
        except (PairingError, MalformedPairingError, *CONNECTION_ERRORS) as error:
            logger.debug("a pairing ended: %s", error)
        except Exception:
            logger.exception("a pairing failed")
        finally:
            wire.socket.close()

    async def _welcome(self, wire: trio.SocketStream, address: str) -> None:
        with self._handshakes.one_more():
            channel = await PairingChannel.accept(wire, self._certificate)
            asked = Asked(
                self._party, self._host.cluster, channel=channel.binding, nonce=secrets.token_bytes(NONCE_BYTES)
            )
            await _prove(channel, asked)
        await self._decide(channel, asked, address)
        with trio.move_on_after(LINGER_S):
            await channel.drained()

    async def _decide(self, channel: PairingChannel, asked: Asked, address: str) -> None:
        ask = asked.proven
        try:
            if not self._host.admits_at_once(ask):
                await self._be_decided(channel, self._apply(asked, address))
        except TurnedAwayError as error:
            await channel.send(Refusal(str(error), error.denied))
        else:
            await channel.send(asked.admit(self._host.admit(ask.peer)))

    def _apply(self, asked: Asked, address: str) -> Applicant:
        ask, now = asked.proven, trio.current_time()
        assert asked.code is not None
        applicant = self._desk.apply(now, ask.peer, ask.name, ask.machine, asked.code, address)
        self._waiters[applicant.number] = _Waiter()
        self._settle()
        return applicant

    async def _be_decided(self, channel: PairingChannel, applicant: Applicant) -> None:
        """Return once it was approved. Raises TurnedAwayError otherwise, and PairingError if the newcomer has left."""
        waiter = self._waiters[applicant.number]
        try:
            await self._wait(channel, applicant, waiter)
        finally:
            del self._waiters[applicant.number]
            self._desk.withdraw(applicant.number)
            self._settle()
        if waiter.outcome is not Outcome.APPROVED:
            raise TurnedAwayError(_REASONS[waiter.outcome], denied=waiter.outcome is Outcome.DENIED)

    async def _wait(self, channel: PairingChannel, applicant: Applicant, waiter: _Waiter) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, channel, waiter)
            while not waiter.decided.is_set() and trio.current_time() < applicant.until:
                with trio.move_on_at(min(applicant.until, trio.current_time() + REASSURE_S)):
                    await waiter.decided.wait()
                    break
                await _reassure(channel, waiter)
            nursery.cancel_scope.cancel()
        if waiter.left:
            raise PairingError(f"{applicant.name} has left")

    def _settle(self) -> None:
        self._desk.expire(trio.current_time())
        for decision in self._desk.decisions():
            waiter = self._waiters.get(decision.number)
            if waiter is not None and not waiter.left:
                waiter.outcome = decision.outcome
                waiter.decided.set()
        self._host.waiting_changed()


async def _prove(channel: PairingChannel, asked: Asked) -> None:
    try:
        while asked.code is None:
            await channel.send(asked.received(await channel.receive()))
    except PairingError as error:
        await channel.send(Refusal(str(error)))
        raise


async def _watch(channel: PairingChannel, waiter: _Waiter) -> None:
    """A newcomer that waits has nothing to say, so whatever comes means that it is gone."""
    with suppress(PairingError, MalformedPairingError, *CONNECTION_ERRORS):
        await channel.receive()
    waiter.leave()


async def _reassure(channel: PairingChannel, waiter: _Waiter) -> None:
    try:
        await channel.send(Waiting())
    except CONNECTION_ERRORS:
        waiter.leave()


async def _listen(hosts: Iterable[str], port: int) -> list[trio.SocketListener]:
    listeners: list[trio.SocketListener] = []
    problems: list[str] = []
    for host in hosts:
        try:
            listeners += await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG)
        except OSError as error:
            problems.append(f"{host} port {port}: {error.strerror or error}")
            continue
        port = listeners[0].socket.getsockname()[1]
    if not listeners:
        raise OSError(f"can't listen for newcomers on any address ({'; '.join(problems)})")
    for problem in problems:
        logger.warning("newcomers can't knock at %s", problem)
    return listeners
