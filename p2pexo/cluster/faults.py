"""What can be wrong with the ring of a placement. Pure."""

from attrs import frozen

from p2pexo.cluster.observed import Cluster
from p2pexo.ring.plan import Placement
from p2pexo.ring.stage import StagePhase

FAILED_STAGE_STRIKES, BROKEN_LINK_STRIKES = 4, 1
"""A stage that failed mostly fails again; links break for passing reasons, such as a node that was restarted."""


@frozen
class Fault:
    reason: str
    strikes: int
    """What it counts against the placement; for one without any, nothing is waited for either."""
    to_avoid: frozenset[str] = frozenset()
    """Peers on which the stage failed."""
    is_certain: bool = True
    """Whether the lost machines are; if not, they are awaited for a moment where nobody can take over."""


def find_fault(cluster: Cluster, placement: Placement) -> Fault | None:
    """What keeps the ring from running, or soon will: a dead machine, one that is leaving, a failed stage, or a broken link."""
    lost = [stage.peer for stage in placement.stages if not cluster.is_live(stage.peer)]
    if lost:
        return Fault(f"{' and '.join(peer[-8:] for peer in lost)} left the cluster", strikes=0)
    if not all(cluster.is_alive(stage.peer) for stage in placement.stages):
        return _find_vanished(cluster, placement)
    leaving = [stage.peer for stage in placement.stages if stage.peer in cluster.leaving]
    if leaving:
        return Fault(f"{' and '.join(map(cluster.name_of, dict.fromkeys(leaving)))} is leaving", strikes=0)
    return _find_failure(cluster, placement) or _find_broken_link(cluster, placement)


def _find_vanished(cluster: Cluster, placement: Placement) -> Fault | None:
    """Machines that are suspect and have dropped their links to stages that are alive, too: two signs that they are gone. A
    suspect whose links stand, or that had none, is left to the overlay, which knows in a moment."""
    ranks = range(len(placement.stages))
    suspects = [rank for rank in ranks if not cluster.is_alive(placement.stages[rank].peer)]
    if not all(_has_broken_neighbour(cluster, placement, rank) for rank in suspects):
        return None
    peers = dict.fromkeys(placement.stages[rank].peer for rank in suspects)
    return Fault(f"{' and '.join(map(cluster.name_of, peers))} vanished", strikes=0, is_certain=False)


def _has_broken_neighbour(cluster: Cluster, placement: Placement, rank: int) -> bool:
    beside = {(rank + step) % len(placement.stages) for step in (-1, 1)}
    return any(
        cluster.is_alive(placement.stages[each].peer) and _is_broken(cluster, placement, each) for each in beside
    )


def _is_broken(cluster: Cluster, placement: Placement, rank: int) -> bool:
    fact = cluster.stage(placement, rank)
    return fact is not None and fact.status.phase is StagePhase.BROKEN and fact.status.epoch == placement.epoch


def _find_failure(cluster: Cluster, placement: Placement) -> Fault | None:
    failed = {
        rank: fact.status.reason
        for rank, fact in enumerate(cluster.stages_of(placement))
        if fact is not None and fact.status.phase is StagePhase.FAILED
    }
    if not failed:
        return None
    reason = "; ".join(f"{_stage(cluster, placement, rank)}: {reason}" for rank, reason in failed.items())
    return Fault(reason, FAILED_STAGE_STRIKES, frozenset(placement.stages[rank].peer for rank in failed))


def _find_broken_link(cluster: Cluster, placement: Placement) -> Fault | None:
    """Only once all stages are loaded: until then the ring isn't closed anyway."""
    if not cluster.is_loaded(placement):
        return None
    for rank, fact in enumerate(cluster.stages_of(placement)):
        if fact and _is_broken(cluster, placement, rank):
            reason = f"{_stage(cluster, placement, rank)} lost a link: {fact.status.reason}"
            return Fault(reason, BROKEN_LINK_STRIKES)
    return None


def link_troubles(cluster: Cluster, placement: Placement) -> str:
    """What the stages that are not linked yet say of why; empty if nothing."""
    return "; ".join(
        f"{_stage(cluster, placement, rank)}: {fact.status.reason}"
        for rank, fact in enumerate(cluster.stages_of(placement))
        if fact is not None and fact.status.phase is StagePhase.LINKING and fact.status.reason
    )


def _stage(cluster: Cluster, placement: Placement, rank: int) -> str:
    return f"stage {rank} on {cluster.name_of(placement.stages[rank].peer)}"
