"""What a home keeps of its cluster: name and secret, who has been in it, and who was removed. All changes are pure.

Everything merges without a word from a leader: who was removed stays so, and of two secrets the one that was changed more
often counts, so members that hear of changes in any order, or much later, end up with the same charter.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from attrs import astuple, evolve, field, frozen

from networking.identity import read_privately, write_privately
from networking.pairing_messages import Admission
from networking.ticket import Cluster, TicketError, decode_bytes, encode_bytes
from networking.transport import Address, PeerId
from networking.wire import MAX_COUNTER

CLUSTER_FILE = "cluster.json"

MAX_PEERS = 256
"""Of the known and of the removed. Raise it and what members tell one another about themselves grows; lower it below the
number of machines that were ever in, and those that are away may have to be approved again."""

MAX_FORMER = 32
"""Secrets of the past whose fingerprints are kept. Lower it and an old ticket or passphrase is sooner taken for a new one."""


_KEPT = ("number", "fresh", "known", "removed", "former", "named")


class NotMemberError(LookupError):
    """Nobody of that peer id is or was in the cluster."""


class TooManyPeersError(ValueError):
    """More peers were removed than a home remembers."""


def _newest_peers(peers: Iterable[PeerId]) -> tuple[PeerId, ...]:
    return tuple(dict.fromkeys(peers))[-MAX_PEERS:]


@frozen
class Named:
    """What a member called itself when it was last here."""

    peer: PeerId
    name: str
    machine: str = ""


def _read_names(names: Iterable[Any]) -> tuple[Named, ...]:
    """Also of what a file holds: lists of peer id, name and machine."""
    return tuple(each if isinstance(each, Named) else _read_name(*each) for each in names)


def _read_name(peer: str, name: str, machine: str) -> Named:
    return Named(PeerId(peer), name, machine)


def _newest_fingerprints(fingerprints: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(fingerprints))[-MAX_FORMER:]


@frozen
class Charter:
    """What a home knows of its cluster. Its secret is in no ``repr``."""

    cluster: Cluster
    number: int = 0
    """How often the cluster's secret has been changed."""
    fresh: bool = False
    """Made by this machine for itself alone, and nobody else was ever in."""
    known: tuple[PeerId, ...] = field(default=(), converter=_newest_peers)
    """Who has been a member, this machine aside, the newest last; they need no approval to come back."""
    removed: frozenset[PeerId] = field(default=frozenset(), converter=frozenset[PeerId])
    """Who may never connect again."""
    former: tuple[str, ...] = field(default=(), converter=_newest_fingerprints)
    """The fingerprints of the cluster's earlier secrets."""
    named: tuple[Named, ...] = field(default=(), converter=_read_names)
    """What those of the known that were met here are called, for people."""

    @property
    def names(self) -> Mapping[PeerId, str]:
        """What those that have been members are called; by the end of its peer id who never said a name."""
        said = {each.peer: each.name for each in self.named}
        return {peer: said.get(peer) or peer[-8:] for peer in self.known}

    @property
    def rank(self) -> tuple[int, str]:
        """Of two charters of one cluster the higher one has the secret that counts; equal ones have the same."""
        return self.number, self.cluster.fingerprint

    def admits(self, peer: PeerId) -> bool:
        """Whether the peer has been a member and was not removed."""
        return peer in self.known and peer not in self.removed

    def met(self, peers: Iterable[PeerId]) -> "Charter":
        """Others were seen in the cluster."""
        news = [each for each in peers if each not in self.known and each not in self.removed]
        return evolve(self, fresh=False, known=(*self.known, *news)) if news else self

    def introduced(self, names: Iterable[Named]) -> "Charter":
        """Members said what they are called; of others nothing is kept."""
        said = {each.peer: each for each in (*self.named, *names)}
        named = tuple(said[peer] for peer in self.known if peer in said)
        return self if named == self.named else evolve(self, named=named)

    def without(self, peers: Iterable[PeerId]) -> "Charter":
        """Peers were removed. Raises TooManyPeersError."""
        removed = self.removed.union(peers)
        if len(removed) > MAX_PEERS:
            raise TooManyPeersError(f"{MAX_PEERS} machines were removed from {self.cluster.name}; make a new cluster")
        return evolve(
            self,
            removed=removed,
            known=[each for each in self.known if each not in removed],
            named=[each for each in self.named if each.peer not in removed],
        )

    def with_secret(self, secret: bytes) -> "Charter":
        """The cluster's secret is changed."""
        cluster = Cluster(self.cluster.name, secret)
        return evolve(
            self,
            cluster=cluster,
            number=min(self.number + 1, MAX_COUNTER),
            former=(*self.former, self.cluster.fingerprint),
        )

    def renewed(self, admission: Admission, me: PeerId) -> "Charter":
        """With what a member of the same cluster tells, where that is newer. Raises TooManyPeersError and TicketError."""
        merged = self.without(admission.removed)
        theirs = cluster_of(admission)
        if (admission.number, theirs.fingerprint) <= self.rank:
            return merged
        former = self.former if theirs == self.cluster else (*self.former, self.cluster.fingerprint)
        return evolve(merged, cluster=theirs, number=admission.number, former=former).met(
            each for each in admission.known if each != me
        )

    def to_admission(self, addresses: tuple[Address, ...] = ()) -> Admission:
        return Admission(
            cluster=self.cluster.name,
            secret=self.cluster.secret,
            number=self.number,
            addresses=addresses,
            known=self.known,
            removed=tuple(sorted(self.removed)),
        )


def joined(admission: Admission, by: PeerId, me: PeerId) -> Charter:
    """The charter of a newcomer that was let in ``by`` a member."""
    known = [by, *(each for each in admission.known if each != me)]
    return Charter(cluster_of(admission), admission.number, known=known, removed=admission.removed)


def cluster_of(admission: Admission) -> Cluster:
    """Raises TicketError if it can't be one."""
    return Cluster(admission.cluster, admission.secret)


def save_charter(home: Path, charter: Charter) -> None:
    """Keep it in the home, readable by its owner only. Raises OSError."""
    secret = charter.cluster.secret
    fields = {
        "name": charter.cluster.name,
        "secret": None if secret is None else encode_bytes(secret),
        "number": charter.number,
        "fresh": charter.fresh,
        "known": charter.known,
        "removed": sorted(charter.removed),
        "former": charter.former,
        "named": [astuple(each) for each in charter.named],
    }
    write_privately(home / CLUSTER_FILE, json.dumps(fields).encode())


def load_charter(home: Path) -> Charter | None:
    """What was saved, None if nothing was. Raises TicketError if the file is damaged."""
    path = home / CLUSTER_FILE
    if not path.exists():
        return None
    try:
        fields = cast(dict[str, Any], json.loads(read_privately(path)))
        secret = fields.pop("secret")
        cluster = Cluster(fields.pop("name"), None if secret is None else decode_bytes(secret))
        return Charter(cluster, **{key: value for key, value in fields.items() if key in _KEPT})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TicketError(f"{path} is damaged ({error}); restore it, or remove it and join again") from error
