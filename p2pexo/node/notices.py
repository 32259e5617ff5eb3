"""What a person should know about this node, beyond what the overlay itself warns of."""

from collections.abc import Callable

import trio
from attrs import frozen

from networking.addresses import parse
from networking.discovery import Sighting
from networking.seldom_said import SAID_AGAIN_S
from networking.ticket import Cluster
from networking.transport import Address, PeerId
from networking.view import other_version
from networking.wire import PROTOCOL_VERSION
from p2pexo.engine.blas import Blas

MAX_STRANGERS = 8
"""Peers of other clusters to remember. Raise it on a network with many; each of their clusters is a line in every status."""


STRANGER_KEPT_S = 300.0
"""How long another cluster is spoken of after it was last seen. Raise it and those that are gone are spoken of for longer; lower
it to less than two repeats of the discovery, and those that are there are forgotten."""

TURNED_AWAY_KEPT_S = 2 * SAID_AGAIN_S
"""How long somebody who dialled in vain is spoken of. Raise it and those that gave up are spoken of for longer."""


@frozen
class _Stranger:
    sighting: Sighting
    seen_at: float


@frozen
class _TurnedAway:
    why: str
    at: float


class Notices:
    def __init__(
        self,
        cluster: Callable[[], Cluster],
        shut_out: Callable[[], str] = str,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        """``cluster``: the one that this node belongs to at the moment. ``shut_out``: why the others don't let this very node
        in any more; empty while they do."""
        self._cluster = cluster
        self._shut_out = shut_out
        self._clock = clock
        self._strangers: dict[PeerId, _Stranger] = {}
        self._other_versions: dict[PeerId, _Stranger] = {}
        self._turned_away: dict[str, _TurnedAway] = {}
        self._blas: Blas | None = None

    def add_version(self, sighting: Sighting) -> None:
        """Of any peer on the local network: one that speaks another version may never get as far as saying so itself."""
        self._forget_the_unseen()
        if sighting.version == PROTOCOL_VERSION:
            self._other_versions.pop(sighting.peer, None)
        elif sighting.peer in self._other_versions or len(self._other_versions) < MAX_STRANGERS:
            self._other_versions[sighting.peer] = _Stranger(sighting, self._clock())

    def add_stranger(self, sighting: Sighting) -> None:
        """A peer on the local network whose cluster isn't ours. One that is fresh is no cluster to join: it asks to join one."""
        self._forget_the_unseen()
        if sighting.fresh:
            self._strangers.pop(sighting.peer, None)
        elif sighting.peer in self._strangers or len(self._strangers) < MAX_STRANGERS:
            self._strangers[sighting.peer] = _Stranger(sighting, self._clock())

    def forget_stranger(self, peer: PeerId) -> None:
        """It is in our cluster now."""
        self._strangers.pop(peer, None)

    def add_turned_away(self, address: Address, why: str) -> None:
        """Somebody of another cluster dialled this node."""
        self._forget_the_unseen()
        host = parse(address).host
        if host in self._turned_away or len(self._turned_away) < MAX_STRANGERS:
            self._turned_away[host] = _TurnedAway(why, self._clock())

    def add_blas(self, blas: Blas) -> None:
        self._blas = blas

    def lines(self) -> tuple[str, ...]:
        self._forget_the_unseen()
        cluster = self._cluster()
        seen = {each.sighting.fingerprint: each.sighting for each in self._strangers.values()}
        seen.pop(cluster.fingerprint, None)
        strangers = (_stranger_line(each, cluster.name) for each in seen.values())
        open_line = ("this cluster has no secret: everyone who reaches it can join and read along",)
        shut_out = self._shut_out()
        shut_out_line = (f"this node is no longer let into {cluster.name!r}: {shut_out}",)
        return (
            *(shut_out_line if shut_out else ()),
            *(open_line if cluster.open else ()),
            *((self._blas.cost,) if self._blas and self._blas.is_slow else ()),
            *strangers,
            *(other_version(peer, each.sighting.version) for peer, each in self._other_versions.items()),
            *(f"{host} dialled this node and was turned away: {each.why}" for host, each in self._turned_away.items()),
        )

    def _forget_the_unseen(self) -> None:
        now = self._clock()
        since = now - STRANGER_KEPT_S
        self._turned_away = {
            host: each for host, each in self._turned_away.items() if now - each.at < TURNED_AWAY_KEPT_S
        }
        self._strangers = _seen_since(since, self._strangers)
        self._other_versions = _seen_since(since, self._other_versions)


def _seen_since(since: float, strangers: dict[PeerId, _Stranger]) -> dict[PeerId, _Stranger]:
    return {peer: each for peer, each in strangers.items() if each.seen_at > since}


def _stranger_line(sighting: Sighting, own: str) -> str:
    if sighting.cluster == own:
        return f"{sighting.peer[-8:]} on this network is in a cluster of our name, {own!r}, but has another secret"
    how = "run `p2pexo ticket` there and `p2pexo node --join TICKET` here"
    return f"another cluster is on this network: {sighting.cluster!r}; to join it, {how}"
