"""Writes into the log who came, who went, and who leads, as this node sees it."""

from collections.abc import Iterator

import structlog

from networking.membership import MemberState
from networking.overlay import Overlay
from p2pexo.cluster.observed import Cluster, observe

log = structlog.get_logger(__name__)


async def keep_chronicle(overlay: Overlay) -> None:
    """One line for each change, until cancelled."""
    before: Cluster | None = None
    async for view in overlay.views():
        cluster = observe(view)
        for line in news(before, cluster) if before else ():
            log.info(line, members=len(cluster.members))
        before = cluster


def news(before: Cluster, now: Cluster) -> Iterator[str]:
    """What a person would tell another about the difference. A member counts as come once it has said its name."""
    for peer in now.nodes.keys() - before.nodes.keys():
        if peer != now.me:
            yield f"{now.name_of(peer)} joined"
    for peer in before.nodes.keys() - now.nodes.keys():
        yield f"{before.name_of(peer)} left"
    for peer in now.nodes.keys() & before.nodes.keys():
        if before.is_alive(peer) and now.members[peer].state is MemberState.SUSPECT:
            yield f"{now.name_of(peer)} does not answer"
        elif now.is_alive(peer) and before.members[peer].state is MemberState.SUSPECT:
            yield f"{now.name_of(peer)} answers again"
    if now.leader != before.leader:
        yield f"{now.name_of(now.leader)} leads, term {now.term}" if now.leader else "nobody leads"
