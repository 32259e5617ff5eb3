"""Where peers may be reached, by whoever said so (pure). The newest word comes first.

What a person gave is kept for good, what documents say as long as they are held. A sighting on the local network proves
nothing and costs its sender nothing, so sightings are few and short-lived, and each replaces the one before.
"""

from collections.abc import Iterable, Iterator, Mapping

from attrs import define, field, frozen

from networking.transport import Address, PeerId

_DOCUMENT = "document"
_SIGHTING = "sighting"


@frozen
class AddressBookSettings:
    sighted_peers: int = 64
    """How many peers are dialled because they were sighted. Raised, forged sightings cost more; lowered, they push out real ones sooner."""
    sighted_addresses: int = 8
    """Of one peer. Raised, a forged sighting is dialled longer; lowered, a peer with many interfaces may be missed."""
    sighting_lasts_s: float = 300.0
    """Raised, machines that were switched off are dialled longer; lowered below how often discovery repeats itself, real ones are given up."""


@define(eq=False)
class Target:
    """A peer, or an address of which it isn't known whose it is."""

    peer: PeerId | None
    sighted_until: float = float("-inf")
    _said: dict[str, tuple[Address, ...]] = field(factory=dict[str, tuple[Address, ...]])
    """By source, the newest last. What a person gave is its own source."""

    @property
    def name(self) -> str:
        return self.peer or next(iter(self._said))

    @property
    def is_given(self) -> bool:
        """Whether a person wants this connection."""
        return bool(self._said.keys() - {_DOCUMENT, _SIGHTING})

    @property
    def is_known(self) -> bool:
        """Whether more than a sighting speaks for it."""
        return bool(self._said.keys() - {_SIGHTING})

    @property
    def is_sighted(self) -> bool:
        return _SIGHTING in self._said

    def addresses(self, now: float) -> list[Address]:
        """All to be dialled, the newest first."""
        newest = reversed(self._said.items())
        lasting = [said for source, said in newest if source != _SIGHTING or now < self.sighted_until]
        return list(dict.fromkeys(address for said in lasting for address in said))

    def put(self, source: str, addresses: tuple[Address, ...]) -> bool:
        """Replace what a source said; whether that is something new."""
        before = self._said.get(source, ())
        if addresses != before:
            self._said.pop(source, None)
            if addresses:
                self._said[source] = addresses
        return addresses != before


class AddressBook:
    def __init__(self, settings: AddressBookSettings) -> None:
        self._settings = settings
        self._targets: dict[PeerId | Address, Target] = {}

    def __iter__(self) -> Iterator[Target]:
        return iter(list(self._targets.values()))

    def give(self, address: Address, peer: PeerId | None) -> list[Target]:
        """What a person said. Returns the targets that changed, as all of these do."""
        target = self._target(peer or address, peer)
        return [target] if target.put(address, (address,)) else []

    def sight(self, now: float, peer: PeerId, addresses: Iterable[Address]) -> list[Target]:
        """What somebody on the local network said of himself."""
        target = self._target(peer, peer)
        was_over = now >= target.sighted_until
        target.sighted_until = now + self._settings.sighting_lasts_s
        is_new = target.put(_SIGHTING, tuple(addresses)[: self._settings.sighted_addresses])
        sighted = sorted((each for each in self if each.is_sighted), key=lambda each: each.sighted_until)
        for oldest in sighted[: -self._settings.sighted_peers]:
            oldest.put(_SIGHTING, ())
        self._strike_out()
        return [target] if is_new or was_over else []

    def learn(self, documents: Mapping[PeerId, Iterable[Address]]) -> list[Target]:
        """What the documents held now say; what others said before is struck out."""
        for peer in documents:
            self._target(peer, peer)
        changed = [
            each for each in self if each.put(_DOCUMENT, tuple(documents.get(each.peer, ())) if each.peer else ())
        ]
        self._strike_out()
        return changed

    def _target(self, key: PeerId | Address, peer: PeerId | None) -> Target:
        return self._targets.setdefault(key, Target(peer))

    def _strike_out(self) -> None:
        """Forget targets of which nobody says anything any more."""
        self._targets = {key: each for key, each in self._targets.items() if each.is_known or each.is_sighted}
