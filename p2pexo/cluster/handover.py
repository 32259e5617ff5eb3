"""How a ring is handed to other machines while it serves: which stages go on meanwhile, and when one that leaves may go. Pure.

A leaving machine tells so; the leader forms its rings anew without it; whoever takes over loads; and only when all stages
of the new ring are loaded do those that stay join it, and do the others stop.
"""

from p2pexo.cluster.assignments import Assignment
from p2pexo.cluster.observed import Cluster
from p2pexo.cluster.reconciling import known_placements
from p2pexo.ring.stage import StagePhase


def still_serves(cluster: Cluster, assignment: Assignment) -> bool:
    """Whether a stage that the present ring has no place for goes on, since that ring is not loaded yet and the older one is whole.

    Not where this machine has a part in the present ring: memory is given back before more is taken.
    """
    placement = cluster.placements.find(assignment.placement.id)
    if placement is None or placement.epoch <= assignment.epoch or placement.ranks_of(cluster.me):
        return False
    if cluster.placements.is_withdrawn(assignment.placement) or cluster.is_loaded(placement):
        return False
    fact = cluster.stage(assignment.placement, assignment.rank)
    serves = fact is not None and fact.status.phase is StagePhase.READY and fact.status.epoch == assignment.epoch
    return serves and all(cluster.is_alive(stage.peer) for stage in assignment.placement.stages)


def placed_here(cluster: Cluster) -> frozenset[str]:
    """Ids of the placements that this machine has a part in."""
    return frozenset(each.id for each in known_placements(cluster) if each.ranks_of(cluster.me))


def has_heirs(cluster: Cluster) -> bool:
    """Whether anybody stays who could take over."""
    return any(peer != cluster.me and peer not in cluster.leaving for peer in cluster.members)


def to_hand_over(cluster: Cluster, ids: frozenset[str]) -> tuple[str, ...]:
    """Of these placements, what is not in other hands yet, in words; empty if this machine is not needed any more."""
    if not has_heirs(cluster):
        return ()
    waiting = (each for each in known_placements(cluster) if each.id in ids)
    troubles = cluster.placements.trouble_of
    return tuple(
        f"{each.model}: {trouble.reason if (trouble := troubles(each.id)) else 'its next ring is not ready'}"
        for each in waiting
        if each.ranks_of(cluster.me) or not cluster.is_ready(each)
    )
