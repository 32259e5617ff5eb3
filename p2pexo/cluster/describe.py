"""The cluster as one picture for people and programs, made from the view."""

from networking.transport import PeerId
from networking.view import Member, View
from p2pexo.cluster.facts import PAIRING_KEY, Newcomer, NodeFacts, PairingFact, StageFact
from p2pexo.cluster.faults import link_troubles
from p2pexo.cluster.observed import Cluster, observe, read
from p2pexo.cluster.reconciling import known_placements
from p2pexo.cluster.snapshot import (
    AskingView,
    ClusterSnapshot,
    MemberView,
    NewcomerView,
    PlacementView,
    StageView,
)
from p2pexo.ring.plan import Placement
from p2pexo.ring.stage import StagePhase

_UNKNOWN = NodeFacts("", "", "", "", 0, 0, 0, "", ())


def describe(view: View, *, cluster_name: str, open_cluster: bool) -> ClusterSnapshot:
    cluster = observe(view)
    pairing = _pairing(view)
    asking = pairing[cluster.me].asking if cluster.me in pairing else None
    failed = [(each.failed, each.reason) for each in cluster.placements.deletions if each.failed is not None]
    return ClusterSnapshot(
        cluster=cluster_name,
        me=cluster.me,
        leader=cluster.leader,
        term=cluster.term,
        open=open_cluster,
        members=tuple(
            _member(cluster, each, _told_bytes(view, each.peer))
            for each in sorted(view.members, key=lambda each: each.seniority)
            if each.peer in cluster.members
        ),
        placements=(
            *(_placement(cluster, each) for each in known_placements(cluster)),
            *(_placement(cluster, placement, failed=reason) for placement, reason in failed),
        ),
        warnings=(*view.warnings, *_warnings(cluster), *_evictions(cluster)),
        newcomers=tuple(
            _newcomer(each, at=cluster.name_of(peer)) for peer, fact in sorted(pairing.items()) for each in fact.waiting
        ),
        asking=AskingView(asking.cluster, asking.code) if asking else None,
    )


def _pairing(view: View) -> dict[str, PairingFact]:
    """Who waits at whom, by the member that tells of it."""
    told = ((member.peer, view.facts.get(member.peer, {}).get(PAIRING_KEY)) for member in view.members)
    facts = ((str(peer), read(value, PairingFact)) for peer, value in told if value is not None)
    return {peer: fact for peer, fact in facts if fact is not None}


def _newcomer(told: Newcomer, *, at: str) -> NewcomerView:
    return NewcomerView(told.peer, told.name, told.machine, told.code, told.address, at, told.looks_like)


def _told_bytes(view: View, peer: PeerId) -> int:
    return sum(map(len, view.facts.get(peer, {}).values())) + len(view.payload if peer == view.leader else b"")


def _member(cluster: Cluster, member: Member, told_bytes: int) -> MemberView:
    peer = str(member.peer)
    node = cluster.nodes.get(peer, _UNKNOWN)
    models = cluster.models.get(peer)
    return MemberView(
        peer=peer,
        name=node.name or peer[-8:],
        state=str(member.state.value),
        is_leader=peer == cluster.leader,
        is_me=peer == cluster.me,
        machine=node.machine,
        version=node.version,
        device=node.device,
        memory_total=node.memory_total,
        memory_free=node.memory_free,
        memory_budget=node.memory_budget,
        memory_reserved=cluster.reserved_on(peer),
        api_url=node.api_url,
        addresses=tuple(str(each) for each in member.addresses),
        models=models.held if models else (),
        address=member.address or "",
        protocol=member.protocol,
        speeds=cluster.speeds.get(peer),
        told_bytes=told_bytes,
    )


def _placement(cluster: Cluster, placement: Placement, *, failed: str | None = None) -> PlacementView:
    stay = None if placement.by_user else cluster.stay_of(placement)
    leaves = stay is not None and stay.keep_alive_s >= 0
    stages = tuple(_stage(cluster, placement, rank) for rank in range(len(placement.stages)))
    state, reason = ("failed", failed) if failed is not None else state_of(cluster, placement)
    return PlacementView(
        id=placement.id,
        model=placement.model,
        revision=placement.revision,
        epoch=str(placement.epoch),
        state=state,
        reason=reason,
        by_user=placement.by_user,
        stages=stages,
        keep_alive_s=stay.keep_alive_s if stay and leaves else None,
        idle_since=stay.idle_since if stay and leaves else None,
    )


def state_of(cluster: Cluster, placement: Placement) -> tuple[str, str]:
    """``failed``, ``broken``, ``loading`` or ``ready``, and why or how far."""
    if cluster.is_ready(placement):
        return "ready", ""
    trouble = cluster.placements.trouble_of(placement.id)
    if trouble is not None:
        return "broken", trouble.reason
    ranks = range(len(placement.stages))
    for rank in ranks:
        if not cluster.is_live(placement.stages[rank].peer):
            return "broken", f"stage {rank} is lost: {placement.stages[rank].peer} left the cluster"
    facts = cluster.stages_of(placement)
    for phase, state in ((StagePhase.FAILED, "failed"), (StagePhase.BROKEN, "broken")):
        for rank, fact in enumerate(facts):
            if fact is not None and fact.status.phase is phase and _is_current(fact, phase):
                return state, f"stage {rank} on {cluster.name_of(placement.stages[rank].peer)}: {fact.status.reason}"
    return "loading", _progress(cluster, placement, facts)


def _is_current(fact: StageFact, phase: StagePhase) -> bool:
    return phase is StagePhase.FAILED or fact.status.epoch == fact.placement.epoch


def _progress(cluster: Cluster, placement: Placement, facts: list[StageFact | None]) -> str:
    """What the stage that is furthest behind is doing, such as ``loading layers 42 %``."""
    order = list(StagePhase)
    rank, slowest = min(
        enumerate(facts),
        key=lambda pair: (order.index(pair[1].status.phase), pair[1].status.progress) if pair[1] else (-1, 0.0),
    )
    name = cluster.name_of(placement.stages[rank].peer)
    if slowest is None:
        return f"waiting for {name} to start stage {rank}"
    status = slowest.status
    if status.phase is StagePhase.LOADING:
        return f"loading layers {status.progress:.0%} on {name}"
    if status.phase is StagePhase.STARTING:
        progress = f" {status.progress:.0%}" if status.progress else ""
        return f"{status.reason or 'starting stage ' + str(rank)}{progress} on {name}"
    return ": ".join(filter(None, ("linking the stages", link_troubles(cluster, placement))))


def _stage(cluster: Cluster, placement: Placement, rank: int) -> StageView:
    plan = placement.stages[rank]
    fact = cluster.stage(placement, rank)
    status = fact.status if fact else None
    return StageView(
        rank=rank,
        peer=plan.peer,
        node=cluster.name_of(plan.peer),
        first_layer=plan.first_layer,
        end_layer=plan.end_layer,
        phase=str(status.phase) if status else "waiting" if cluster.is_live(plan.peer) else "lost",
        progress=status.progress if status else 0.0,
        reason=status.reason if status else "",
        weight_bytes=status.weight_bytes if status else 0,
        resident_bytes=status.resident_bytes if status else 0,
        endpoint=str(status.endpoints[0]) if status and status.endpoints else "",
        link=status.link if status else "",
        compute=status.compute if status else "",
        activity=cluster.activities.get((plan.peer, placement.id, rank)),
    )


def _evictions(cluster: Cluster) -> list[str]:
    """What had to go for a model that is here still."""
    placed = {each.model for each in cluster.placements.placements}
    return [each.reason for each in cluster.placements.deletions if each.makes_room_for in placed]


def _warnings(cluster: Cluster) -> list[str]:
    versions = {node.version for node in cluster.nodes.values()}
    if len(versions) < 2:
        return []
    told = ", ".join(f"{cluster.name_of(peer)} {node.version}" for peer, node in sorted(cluster.nodes.items()))
    return [f"the nodes run different versions of p2pexo ({told}); install the same one everywhere"]
