"""The worker's decisions: which stages this node should run, keep or stop, and which neighbours they have. Pure."""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence

import orjson
from attrs import field, frozen

from networking.transport import Address, PeerId, Sign, Verify
from p2pexo.cluster.facts import Placements, StageFact
from p2pexo.cluster.observed import LOADED, Cluster
from p2pexo.ring.plan import Epoch, Placement
from p2pexo.ring.stage import Endpoint, Neighbours, StagePhase, StageStatus

AssignmentKey = tuple[str, int]
"""(placement id, rank)"""


@frozen
class Assignment:
    """One stage that this node is to run."""

    placement: Placement
    rank: int

    @property
    def key(self) -> AssignmentKey:
        return (self.placement.id, self.rank)

    @property
    def epoch(self) -> Epoch:
        return self.placement.epoch

    @property
    def _load(self) -> tuple[object, ...]:
        """What a stage process loads; while it is the same, the process can go on in a new epoch."""
        stage, placement = self.placement.stages[self.rank], self.placement
        is_last = self.rank == len(placement.stages) - 1
        return (placement.model, placement.revision, placement.precision, stage.first_layer, stage.end_layer, is_last)

    def can_become(self, newer: "Assignment") -> bool:
        """Whether the process of this stage can go on as the newer one."""
        return self.key == newer.key and self._load == newer._load


@frozen
class Ledger:
    """What this worker has ever been told, so that a leader with old news can't turn anything back."""

    newest: Mapping[str, Epoch] = field(factory=dict[str, Epoch])
    ended: frozenset[str] = frozenset()

    def told(self, placements: Placements) -> "Ledger":
        ended = self.ended | {each.placement_id for each in placements.deletions}
        withdrawn = {(each.placement_id, each.epoch) for each in placements.withdrawals}
        newest = {id: epoch for id, epoch in self.newest.items() if (id, epoch) not in withdrawn}
        for each in placements.placements:
            if each.id not in placements.undecided:
                newest[each.id] = max(each.epoch, newest.get(each.id, each.epoch))
        return Ledger({id: epoch for id, epoch in newest.items() if id not in ended}, ended)

    def accepts(self, placement: Placement) -> bool:
        return placement.id not in self.ended and self.newest.get(placement.id, placement.epoch) <= placement.epoch


@frozen
class Difference:
    stop: tuple[AssignmentKey, ...] = ()
    renew: tuple[Assignment, ...] = ()
    """A new epoch for the same layers: the process stays."""
    start: tuple[Assignment, ...] = ()


def difference(
    running: Mapping[AssignmentKey, Assignment], placements: Placements, ledger: Ledger, me: str
) -> Difference:
    """What to do so that the placements that name this node are run. The absence of a placement means nothing.

    Of one that two leaders have formed rings of, all is left as it is until it is decided which one goes on.
    """
    stop = [
        key
        for key, each in running.items()
        if key[0] in ledger.ended or (key[0] not in placements.undecided and placements.is_withdrawn(each.placement))
    ]
    renew: list[Assignment] = []
    start: list[Assignment] = []
    for placement in filter(ledger.accepts, placements.placements):
        if placement.id in placements.undecided:
            continue
        wanted = {(placement.id, rank): Assignment(placement, rank) for rank in placement.ranks_of(me)}
        older = {key: each for key, each in running.items() if key[0] == placement.id and each.epoch < placement.epoch}
        kept = [key for key, each in older.items() if key in wanted and each.can_become(wanted[key])]
        replaced = [key for key in older if key not in kept]
        stop += replaced
        renew += [wanted[key] for key in kept]
        start += [each for key, each in wanted.items() if key not in running or key in replaced]
    return Difference(tuple(stop), tuple(renew), tuple(start))


def neighbours(assignment: Assignment, cluster: Cluster, verify: Verify) -> Neighbours | None:
    """The stages beside this one, once both have told the certificates and ports of the same epoch; else None.

    A certificate counts only with the signature of the peer that the placement names. A ring of one has no links.
    """
    placement, count = assignment.placement, len(assignment.placement.stages)
    if count == 1:
        return Neighbours(placement.epoch, cache_tokens=placement.cache_tokens)
    previous = _introduced(placement, (assignment.rank - 1) % count, cluster, verify)
    following = _introduced(placement, (assignment.rank + 1) % count, cluster, verify)
    if previous is None or following is None:
        return None
    peer = placement.stages[following.rank].peer
    member = cluster.members.get(peer)
    proven = (*member.proven, *filter(None, (member.address,))) if member else ()
    return Neighbours(
        epoch=placement.epoch,
        previous_certificate=previous.status.certificate,
        next_certificate=following.status.certificate,
        next_endpoints=proven_first(following.status.endpoints, proven),
        cache_tokens=placement.cache_tokens,
    )


def may_join(status: StageStatus, epoch: Epoch) -> bool:
    """A loaded stage joins each epoch once. A stage that broke in this very epoch waits for the next one."""
    fresh = status.phase in (StagePhase.LISTENING, StagePhase.LINKING)
    return status.phase in LOADED and (fresh or status.epoch != epoch)


def proven_first(endpoints: Sequence[Endpoint], proven: Sequence[Address]) -> tuple[Endpoint, ...]:
    """Hosts at which the overlay is connected to the peer come first; otherwise the owner's order is kept."""
    hosts = [address.split("/")[2] for address in proven if address.count("/") >= 2]
    return tuple(sorted(endpoints, key=lambda each: hosts.index(each.host) if each.host in hosts else len(hosts)))


def sign_certificate(sign: Sign, certificate: str, placement_id: str, rank: int) -> str:
    """Base64. Empty while there is no certificate."""
    return b64encode(sign(_signed_bytes(certificate, placement_id, rank))).decode() if certificate else ""


def _introduced(placement: Placement, rank: int, cluster: Cluster, verify: Verify) -> StageFact | None:
    fact = cluster.stage(placement, rank)
    if fact is None or fact.status.phase not in LOADED:
        return None
    return fact if _is_signed(fact, PeerId(placement.stages[rank].peer), verify) else None


def _is_signed(fact: StageFact, peer: PeerId, verify: Verify) -> bool:
    try:
        signature = b64decode(fact.signature, validate=True)
    except ValueError:
        return False  # no base64
    return verify(peer, _signed_bytes(fact.status.certificate, fact.placement.id, fact.rank), signature)


def _signed_bytes(certificate: str, placement_id: str, rank: int) -> bytes:
    return orjson.dumps(["p2pexo stage certificate", certificate, placement_id, rank])
