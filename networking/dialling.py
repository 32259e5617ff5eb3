"""Keeps this peer connected: an address book, and one task per target that dials its addresses in turn until it is connected."""

import logging
from collections.abc import Callable, Iterable, Mapping
from random import Random

import trio
from attrs import define, field, frozen

from networking.transport import Address, DialError, PeerId, Transport

logger = logging.getLogger(__name__)


@frozen
class DialSettings:
    attempt_s: float = 4.0
    """Per address. Raised, one dead address holds up the others longer; lowered, slow links are given up."""
    backoff_min_s: float = 0.5
    """The wait after the first round of failures; each further one doubles it. Lowered, more packets to peers that are down."""
    backoff_max_s: float = 10.0
    """Raised, a peer that comes back is found later; lowered, more packets to peers that are down."""
    stable_s: float = 5.0
    """A connection that lasted this long starts the waits anew. Lowered, a peer that turns us away is dialled often."""
    look_again_s: float = 30.0
    """At an address where our own peer id answered. Lowered, a cloned disk is noticed sooner after it was mended and broken again."""
    yield_s: float = 0.25
    """The higher peer id dials this much later, so that a pair rarely makes two connections. Raised, it is connected later."""


class Signal:
    """Wakes everyone who waits each time something changed."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def notify(self) -> None:
        self._event.set()
        self._event = trio.Event()

    async def wait(self) -> None:
        await self._event.wait()


@define
class _Target:
    """A peer, or an address of which it isn't known whose it is."""

    peer: PeerId | None
    fixed: list[Address] = field(factory=list[Address])
    """From discovery, tickets and the user: kept for good."""
    learned: tuple[Address, ...] = ()
    """From the peer's document."""
    found: PeerId | None = None
    """Who answered last."""
    renewed: Signal = field(factory=Signal)

    @property
    def addresses(self) -> list[Address]:
        return list(dict.fromkeys([*self.fixed, *self.learned]))


class Dialler:
    def __init__(
        self,
        transport: Transport,
        is_connected: Callable[[PeerId], bool],
        changed: Signal,
        settings: DialSettings,
        random: Random,
    ) -> None:
        """``changed`` is notified whenever a connection came or went."""
        self._transport = transport
        self._is_connected = is_connected
        self._changed = changed
        self._settings = settings
        self._random = random
        self._targets: dict[PeerId | Address, _Target] = {}
        self._nursery: trio.Nursery | None = None
        self._scope = trio.CancelScope()

    def add(self, address: Address, peer: PeerId | None) -> None:
        if peer == self._transport.me:
            if address in self._transport.addresses:
                return
            peer = None
        target = self._target(address if peer is None else peer, peer)
        if address not in target.fixed:
            target.fixed.append(address)
            self._renew(target)

    def learn(self, addresses: Mapping[PeerId, Iterable[Address]]) -> None:
        """What the documents say; peers that are no longer among them lose what was learned before."""
        for peer in addresses:
            self._target(peer, peer)
        for target in self._targets.values():
            theirs = tuple(addresses.get(target.peer, ())) if target.peer else ()
            if theirs != target.learned:
                target.learned = theirs
                self._renew(target)

    def stop(self) -> None:
        """Dial nobody any more."""
        self._scope.cancel()

    async def run(self) -> None:
        with self._scope:
            await self._run()

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for target in self._targets.values():
                nursery.start_soon(self._pursue, target)
            await trio.sleep_forever()

    def _renew(self, target: _Target) -> None:
        target.renewed.notify()
        self._changed.notify()

    def _target(self, key: PeerId | Address, peer: PeerId | None) -> _Target:
        if key not in self._targets:
            target = self._targets[key] = _Target(peer)
            if self._nursery is not None and not self._scope.cancel_called:
                self._nursery.start_soon(self._pursue, target)
        return self._targets[key]

    async def _pursue(self, target: _Target) -> None:
        settings = self._settings
        backoff = 0.0
        while True:
            met_at = trio.current_time()
            while not self._is_wanted(target):
                await self._changed.wait()
            if trio.current_time() - met_at >= settings.stable_s:
                backoff = 0.0
            await self._wait(target, backoff)
            backoff = min(max(backoff * 2, settings.backoff_min_s), settings.backoff_max_s)
            if self._is_wanted(target):
                await self._dial_all(target)
            if target.found == self._transport.me:
                # Either an address of our own, or a clone; the overlay tells which, and a clone is worth another look.
                await trio.sleep(settings.look_again_s)
                target.found = None

    def _is_wanted(self, target: _Target) -> bool:
        peer = target.peer or target.found
        return bool(target.addresses) and not (peer is not None and self._is_connected(peer))

    async def _wait(self, target: _Target, backoff: float) -> None:
        """The wait before a round, cut short by a new address."""
        is_higher = target.peer is not None and target.peer < self._transport.me
        first = self._random.uniform(0, 0.05) + (self._settings.yield_s if is_higher else 0.0)
        with trio.move_on_after(backoff * self._random.uniform(0.75, 1.25) if backoff else first):
            await target.renewed.wait()

    async def _dial_all(self, target: _Target) -> bool:
        for address in target.addresses:
            with trio.move_on_after(self._settings.attempt_s):
                try:
                    connection = await self._transport.dial(address, target.peer)
                except DialError as error:
                    logger.debug("dialling %s failed: %s", address, error)
                else:
                    target.found = connection.peer
                    return True
        return False
