"""Keeps this peer connected: one task per target of the address book dials its addresses in turn until it is connected."""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from random import Random

import trio
from attrs import define, field, frozen

from networking.address_book import AddressBook, AddressBookSettings, Target
from networking.transport import Address, DialError, PeerId, Transport

logger = logging.getLogger(__name__)

Report = Callable[[str, str | None], None]
"""(a peer or address that a person gave, why it can't be reached; None once it is)."""


@frozen
class DialSettings:
    book: AddressBookSettings = field(factory=AddressBookSettings)
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
    patience_s: float = 4.0
    """How long a target that a person gave may fail before that is reported. Lowered, those that start later are complained of."""
    sighted_at_once: int = 16
    """Peers known by a sighting alone that are dialled at a time. Raised, forged ones cost more; lowered, they hold up real ones."""


class Signal:
    """Wakes everyone who waits each time something changed."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def notify(self) -> None:
        self._event.set()
        self._event = trio.Event()

    async def wait(self) -> None:
        await self._event.wait()


@define(eq=False)
class _Pursuit:
    target: Target
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    renewed: Signal = field(factory=Signal)
    found: PeerId | None = None
    """Who answered last."""
    failing_since: float | None = None


class Dialler:
    def __init__(
        self,
        transport: Transport,
        is_connected: Callable[[PeerId], bool],
        changed: Signal,
        report: Report,
        settings: DialSettings,
        random: Random,
    ) -> None:
        """``changed`` is notified whenever a connection came or went."""
        self._transport = transport
        self._is_connected = is_connected
        self._changed = changed
        self._report = report
        self._settings = settings
        self._random = random
        self._book = AddressBook(settings.book)
        self._sighted_turns = trio.CapacityLimiter(settings.sighted_at_once)
        self._pursuits: dict[Target, _Pursuit] = {}
        self._nursery: trio.Nursery | None = None
        self._scope = trio.CancelScope()

    def give(self, address: Address, peer: PeerId | None) -> None:
        """A person wants a connection to that address, and to no other peer if one is named."""
        if peer == self._transport.me:
            if address in self._transport.addresses:
                return
            peer = None
        self._follow(self._book.give(address, peer))

    def sight(self, peer: PeerId, addresses: Iterable[Address]) -> None:
        """A peer was seen on the local network, perhaps."""
        if peer != self._transport.me:
            self._follow(self._book.sight(trio.current_time(), peer, addresses))

    def learn(self, addresses: Mapping[PeerId, Iterable[Address]]) -> None:
        """What all documents held say."""
        self._follow(self._book.learn(addresses))

    def stop(self) -> None:
        """Dial nobody any more."""
        self._scope.cancel()

    async def run(self) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as self._nursery:
                    self._follow([])
                    await trio.sleep_forever()
        finally:
            self._nursery = None

    def _follow(self, renewed: list[Target]) -> None:
        """Have one pursuit for each target of the book, and let those go on at once whose addresses changed."""
        if self._nursery is None or self._scope.cancel_called:
            return
        targets = list(self._book)
        for gone in [each for each in self._pursuits if each not in set(targets)]:
            self._pursuits.pop(gone).scope.cancel()
        for target in targets:
            if target not in self._pursuits:
                self._pursuits[target] = _Pursuit(target)
                self._nursery.start_soon(self._pursue, self._pursuits[target])
        for target in renewed:
            if target in self._pursuits:
                self._pursuits[target].renewed.notify()
        if renewed:
            self._changed.notify()

    async def _pursue(self, pursuit: _Pursuit) -> None:
        settings = self._settings
        backoff = 0.0
        with pursuit.scope:
            while True:
                met_at = trio.current_time()
                while not self._is_wanted(pursuit):
                    self._reached(pursuit)
                    await self._changed.wait()
                if trio.current_time() - met_at >= settings.stable_s:
                    backoff = 0.0
                await self._wait(pursuit, backoff)
                backoff = min(max(backoff * 2, settings.backoff_min_s), settings.backoff_max_s)
                if self._is_wanted(pursuit):
                    await self._dial_in_turn(pursuit)
                if pursuit.found == self._transport.me:
                    # Either an address of our own, or a clone; the overlay tells which, and a clone is worth another look.
                    await trio.sleep(settings.look_again_s)
                    pursuit.found = None

    def _is_wanted(self, pursuit: _Pursuit) -> bool:
        peer = pursuit.target.peer or pursuit.found
        has_addresses = bool(pursuit.target.addresses(trio.current_time()))
        return has_addresses and not (peer is not None and self._is_connected(peer))

    async def _wait(self, pursuit: _Pursuit, backoff: float) -> None:
        """The wait before a round, cut short by a new address."""
        peer = pursuit.target.peer
        is_higher = peer is not None and peer < self._transport.me
        first = self._random.uniform(0, 0.05) + (self._settings.yield_s if is_higher else 0.0)
        with trio.move_on_after(backoff * self._random.uniform(0.75, 1.25) if backoff else first):
            await pursuit.renewed.wait()

    async def _dial_in_turn(self, pursuit: _Pursuit) -> None:
        async with nullcontext() if pursuit.target.is_known else self._sighted_turns:
            await self._dial_all(pursuit)

    async def _dial_all(self, pursuit: _Pursuit) -> None:
        problems: list[str] = []
        for address in pursuit.target.addresses(trio.current_time()):
            try:
                connection = await self._transport.dial(address, pursuit.target.peer)
            except DialError as error:
                logger.debug("dialling failed: %s", error)
                problems.append(str(error))
            else:
                pursuit.found = connection.peer
                self._reached(pursuit)
                return
        self._failed(pursuit, problems)

    def _failed(self, pursuit: _Pursuit, problems: list[str]) -> None:
        now = trio.current_time()
        if pursuit.failing_since is None:
            pursuit.failing_since = now
        elif pursuit.target.is_given and now - pursuit.failing_since >= self._settings.patience_s:
            self._report(pursuit.target.name, "; ".join(problems))

    def _reached(self, pursuit: _Pursuit) -> None:
        if pursuit.failing_since is not None:
            pursuit.failing_since = None
            self._report(pursuit.target.name, None)
