"""Which nodes and clusters are on the local network, and whom of them a fresh node should ask to be let in (pure)."""

from collections.abc import Iterable

from attrs import define, field, frozen

from networking.discovery import Sighting
from networking.transport import PeerId

MAX_SIGHTED = 128
"""Raise it and somebody who makes up nodes takes more memory; lower it and real ones are pushed out sooner."""

SIGHTING_KEPT_S = 300.0
"""After the last sighting. Raise it and nodes that are gone are asked for longer; lower it to less than two repeats of the
discovery, and those that are there are forgotten."""


@frozen
class _Seen:
    sighting: Sighting
    at: float


@define
class Neighbourhood:
    """The newest sighting of each peer, and whom it is of no use to ask for a while."""

    _seen: dict[PeerId, _Seen] = field(factory=dict[PeerId, _Seen])
    _avoided: dict[str, float] = field(factory=dict[str, float])

    def add(self, now: float, sighting: Sighting) -> None:
        self._seen.pop(sighting.peer, None)
        self._seen[sighting.peer] = _Seen(sighting, now)
        while len(self._seen) > MAX_SIGHTED:
            del self._seen[next(iter(self._seen))]

    def avoid(self, until: float, peer_or_fingerprint: str) -> None:
        """Ask that peer, or anybody of the cluster with that fingerprint, no more before then."""
        self._avoided[peer_or_fingerprint] = until

    def sightings(self, now: float) -> tuple[Sighting, ...]:
        self._seen = {peer: each for peer, each in self._seen.items() if now < each.at + SIGHTING_KEPT_S}
        return tuple(each.sighting for each in self._seen.values())

    def sighting_of(self, peer: PeerId) -> Sighting | None:
        return self._seen[peer].sighting if peer in self._seen else None

    def askable(self, now: float) -> tuple[Sighting, ...]:
        """Those that newcomers can knock at, and that are not to be avoided at the moment."""
        self._avoided = {key: until for key, until in self._avoided.items() if now < until}
        return tuple(
            each
            for each in self.sightings(now)
            if each.pairing and each.addresses and self._avoided.keys().isdisjoint((each.peer, each.fingerprint))
        )

    def first_retry(self) -> float | None:
        """When the first of those avoided may be asked again."""
        return min(self._avoided.values(), default=None)


def whom_to_ask(me: PeerId, askable: Iterable[Sighting], named: str | None = None) -> Sighting | None:
    """The best member to ask; None if there is nobody but those who should ask us.

    A cluster that is more than a fresh node comes first, the one with most members before others; of two fresh nodes that
    are alone the higher peer id asks the lower, so that never both wait for each other. ``named``: no cluster but that.
    """
    candidates = [
        each
        for each in askable
        if (standing(each) > ALONE or each.peer < me) and (named is None or each.cluster == named)
    ]
    return min(candidates, key=lambda each: (*(-part for part in standing(each)), each.peer), default=None)


ALONE = (False, 1)


def standing(sighting: Sighting) -> tuple[bool, int]:
    """Of two clusters the one to join: an established one before a fresh node, and then the larger one."""
    return not sighting.fresh or sighting.members > 1, max(sighting.members, 1)
