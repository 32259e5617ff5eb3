"""Keeps this peer connected: one task per target of the address book dials its addresses until it is connected.

What a peer says of its addresses is seldom all true elsewhere: those of a VPN, of a bridge for containers, of a cable between
two others. So the next address is tried when one hasn't answered for a moment (as browsers do, RFC 8305); the first that
connects wins, and next time those that didn't answer come last.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from ipaddress import ip_address
from random import Random

import trio
from attrs import define, field, frozen

from networking.address_book import AddressBook, AddressBookSettings, Target
from networking.addresses import parse
from networking.transport import Address, Connection, DialError, OtherClusterError, PeerId, Transport

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
    """Dials at a time of peers known by a sighting alone. Raised, forged ones cost more; lowered, they hold up real ones."""
    stagger_s: float = 0.5
    """After so long without an answer the next address is tried, too. Raised, dead addresses hold up good ones; lowered, more packets."""
    look_every_s: float = 0.5
    """How soon it is noticed that a connection isn't heard any more. Raised, another address is tried later; lowered, an idle node works more."""


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
    address: Address | None = None
    """Where it answered."""
    failures: dict[Address, int] = field(factory=dict[Address, int])
    """How often an address didn't answer since it last did."""
    failing_since: float | None = None


@define
class _Race:
    """Of a target's addresses."""

    won: Connection | None = None
    problems: list[DialError] = field(factory=list[DialError])


class Dialler:
    def __init__(
        self,
        transport: Transport,
        is_connected: Callable[[PeerId], bool],
        changed: Signal,
        report: Report,
        settings: DialSettings,
        random: Random,
        hosts_of: Callable[[PeerId], Collection[str]] = lambda _peer: (),
    ) -> None:
        """``is_connected``: and heard of late; ``changed`` is notified whenever a connection came or went; ``hosts_of``: where
        a peer's connections lead, heard or not. Beside one that is silent, only other hosts are dialled: the same road
        would be as silent, and a crowd on a busy machine would only make it busier.
        """
        self._transport = transport
        self._is_connected = is_connected
        self._changed = changed
        self._report = report
        self._settings = settings
        self._random = random
        self._hosts_of = hosts_of
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
                    with trio.move_on_after(settings.look_every_s):  # it may just have fallen silent
                        await self._changed.wait()
                if trio.current_time() - met_at >= settings.stable_s:
                    backoff = 0.0
                await self._wait(pursuit, backoff)
                backoff = min(max(backoff * 2, settings.backoff_min_s), settings.backoff_max_s)
                if self._is_wanted(pursuit):
                    await self._dial_all(pursuit)
                if pursuit.found == self._transport.me:
                    # Either an address of our own, or a clone; the overlay tells which, and a clone is worth another look.
                    await trio.sleep(settings.look_again_s)
                    while pursuit.address is not None and self._is_own(pursuit.address):  # noqa: ASYNC110 no event tells
                        await trio.sleep(settings.look_again_s)  # until the network gives this machine another one
                    pursuit.found = None

    def _is_wanted(self, pursuit: _Pursuit) -> bool:
        peer = pursuit.target.peer or pursuit.found
        return bool(self._addresses(pursuit)) and not (peer is not None and self._is_connected(peer))

    def _addresses(self, pursuit: _Pursuit) -> list[Address]:
        peer = pursuit.target.peer or pursuit.found
        used = self._hosts_of(peer) if peer is not None else ()
        return [each for each in pursuit.target.addresses(trio.current_time()) if not used or _host(each) not in used]

    async def _wait(self, pursuit: _Pursuit, backoff: float) -> None:
        """The wait before a round, cut short by a new address."""
        peer = pursuit.target.peer
        is_higher = peer is not None and peer < self._transport.me
        first = self._random.uniform(0, 0.05) + (self._settings.yield_s if is_higher else 0.0)
        with trio.move_on_after(backoff * self._random.uniform(0.75, 1.25) if backoff else first):
            await pursuit.renewed.wait()

    async def _dial_all(self, pursuit: _Pursuit) -> None:
        race = _Race()
        async with trio.open_nursery() as nursery:
            for address in self._best_first(pursuit):
                given_up = trio.Event()
                nursery.start_soon(self._attempt, pursuit, address, race, given_up, nursery.cancel_scope)
                with trio.move_on_after(self._settings.stagger_s):
                    await given_up.wait()
        if race.won is None:
            self._failed(pursuit, race.problems)
        else:
            pursuit.found = race.won.peer
            self._reached(pursuit)

    def _best_first(self, pursuit: _Pursuit) -> list[Address]:
        known = pursuit.target.addresses(trio.current_time())
        pursuit.failures = {address: pursuit.failures.get(address, 0) for address in known}
        return sorted(
            self._addresses(pursuit), key=lambda address: (pursuit.failures[address], address != pursuit.address)
        )

    async def _attempt(
        self, pursuit: _Pursuit, address: Address, race: "_Race", given_up: trio.Event, race_over: trio.CancelScope
    ) -> None:
        try:
            async with nullcontext() if pursuit.target.is_known else self._sighted_turns:
                connection = await self._transport.dial(address, pursuit.target.peer)
        except DialError as error:
            logger.debug("dialling failed: %s", error)
            race.problems.append(error)
            pursuit.failures[address] = pursuit.failures.get(address, 0) + 1
            given_up.set()
        else:
            if connection.peer == self._transport.me:
                logger.debug("this node's own peer id answered at %s", address)
            else:
                logger.info("connected to %s at %s", connection.peer, address)
            race.won, pursuit.address = race.won or connection, address
            pursuit.failures[address] = 0
            race_over.cancel()

    def _is_own(self, address: Address) -> bool:
        """Whether this node listens there. A name never counts: it may lead elsewhere next time."""
        own = [parse(each) for each in self._transport.addresses]
        there = parse(address)
        if there.kind in ("ip4", "ip6") and ip_address(there.host).is_loopback:
            return any(each.port == there.port for each in own)
        return there in own

    def _failed(self, pursuit: _Pursuit, problems: list[DialError]) -> None:
        now = trio.current_time()
        if pursuit.failing_since is None:
            pursuit.failing_since = now
        is_final = any(isinstance(problem, OtherClusterError) for problem in problems)
        if pursuit.target.is_given and (is_final or now - pursuit.failing_since >= self._settings.patience_s):
            self._report(pursuit.target.name, "; ".join(map(str, problems)))

    def _reached(self, pursuit: _Pursuit) -> None:
        if pursuit.failing_since is not None:
            pursuit.failing_since = None
            self._report(pursuit.target.name, None)


def _host(address: Address) -> str:
    """Empty for what is no address, which the dial will say."""
    try:
        return parse(address).host
    except ValueError:
        return ""
