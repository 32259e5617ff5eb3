"""What changed between two pictures of the cluster, as lines for people. Pure."""

from collections.abc import Iterator

from p2pexo.cli.tables import layers
from p2pexo.client import ClusterState, Member, Placement, Stage
from p2pexo.node.values import format_size


def member_news(before: ClusterState | None, after: ClusterState) -> Iterator[str]:
    """Who came, went or went silent, and who leads now."""
    earlier, now = introduced(before), introduced(after)
    for peer, member in now.items():
        if peer not in earlier:
            yield f"{member.name} is here ({member.machine}, {format_size(member.memory_budget)} for models)"
        elif member.state != earlier[peer].state:
            yield f"{member.name} is {member.state}"
    yield from (f"{member.name} is gone" for peer, member in earlier.items() if peer not in now)
    if after.leader in now and (after.leader not in earlier or _claim(before) != _claim(after)):
        yield f"{now[after.leader].name} leads (term {after.term})"


def introduced(snapshot: ClusterState | None) -> dict[str, Member]:
    """Members by peer id, without those of whom only the connection is known yet."""
    return {member.peer: member for member in snapshot.members if member.machine} if snapshot else {}


def _claim(snapshot: ClusterState | None) -> tuple[str | None, int] | None:
    return (snapshot.leader, snapshot.term) if snapshot else None


def stage_news(before: Placement | None, after: Placement) -> Iterator[str]:
    """Stages that entered another phase."""
    phases = {(stage.rank, stage.peer): stage.phase for stage in before.stages} if before else {}
    for stage in after.stages:
        if phases.get((stage.rank, stage.peer)) != stage.phase:
            yield f"{stage_label(stage)}: {stage_state(stage)}"


def stage_label(stage: Stage) -> str:
    return f"stage {stage.rank} on {stage.node}, layers {layers(stage)}"


def stage_state(stage: Stage) -> str:
    """The phase and what is known of the memory, such as ``ready, 41 MB of weights, process 160 MB``."""
    parts = [stage.phase]
    if stage.weight_bytes:
        parts.append(f"{format_size(stage.weight_bytes)} of weights")
    if stage.resident_bytes:
        parts.append(f"process {format_size(stage.resident_bytes)}")
    if stage.reason:
        parts.append(stage.reason)
    return ", ".join(parts)
