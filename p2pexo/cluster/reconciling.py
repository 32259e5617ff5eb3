"""Which ring of a placement goes on when there are several, after a partition or a leader's return. Pure.

Both were formed by who thought the other one lost, and both may be in the middle of answers. What the leader itself holds goes on
if it is ready, since the side with more members leads; else the newest that is ready, else the newest. A newer one that has to
give way is withdrawn, so that its workers, too, go back to the older one.
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
    if len(several) == 1 or cluster.is_ready(several[0]):
        return several[0]
    return max(several, key=lambda each: (cluster.is_ready(each), each.epoch))
