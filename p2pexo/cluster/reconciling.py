"""Which ring of a placement goes on when there are several, after a partition or a leader's return. Pure.

A newer epoch was formed because the ring before it was thought lost. Where that one turns out to be alive it was not, and it
may be in the middle of answers: so the oldest ring that is ready goes on, and the newer ones are withdrawn. If none is ready,
the newest goes on.
"""

from collections import defaultdict

from attrs import evolve

from p2pexo.cluster.facts import Placements, Withdrawal
from p2pexo.cluster.observed import Cluster
from p2pexo.ring.plan import Placement


def reconcile(cluster: Cluster) -> Placements:
    """What the leader says is placed, and what workers report as running that it doesn't know, one ring of each."""
    placements = cluster.placements
    versions = _versions(cluster)
    chosen = {id: _choose(cluster, several) for id, several in versions.items()}
    given_up = {Withdrawal(each.id, each.epoch) for several in versions.values() for each in several}
    withdrawals = {
        each
        for each in (*placements.withdrawals, *given_up)
        if each.placement_id in chosen and each.epoch > chosen[each.placement_id].epoch
    }
    return evolve(
        placements,
        placements=tuple(chosen.values()),
        rivals=(),
        withdrawals=sorted(withdrawals, key=lambda each: (each.placement_id, each.epoch)),
    )


def known_placements(cluster: Cluster) -> tuple[Placement, ...]:
    """One ring of each placement, also while nobody leads: rings are still there then."""
    return reconcile(cluster).placements


def _versions(cluster: Cluster) -> dict[str, list[Placement]]:
    """By id, what the leader holds first. An older epoch that a worker still reports has been replaced, and is none."""
    placements = cluster.placements
    found: defaultdict[str, list[Placement]] = defaultdict(list)
    for each in (*placements.placements, *placements.rivals):
        found[each.id].append(each)
    for fact in cluster.stages.values():
        each = fact.placement
        if placements.deletion_of(each.id) is not None or placements.is_withdrawn(each):
            continue
        if all(other.epoch < each.epoch for other in found[each.id]):
            found[each.id].append(each)
    return {id: several for id, several in found.items() if several}


def _choose(cluster: Cluster, several: list[Placement]) -> Placement:
    newest = max(several, key=lambda each: each.epoch)
    ready = (each for each in several if len(several) > 1 and cluster.is_ready(each))
    return min(ready, key=lambda each: each.epoch, default=newest)
