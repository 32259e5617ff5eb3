"""Makes room for a model: of the placements that requests brought about, those go that nobody uses, the one used longest ago first.

The leader chooses by what the nodes tell, and asks the node of each one's stage 0, which alone knows for sure that nobody
uses it. A placement in use never goes, nor one that a person made.
"""

from collections.abc import Callable, Sequence, Set

import structlog
import trio
from attrs import evolve

from networking.overlay import Overlay, RequestRefusedError
from networking.transport import PeerId, TransportError
from p2pexo.cluster import placements as edit
from p2pexo.cluster.facts import Deletion
from p2pexo.cluster.observed import Cluster, observe
from p2pexo.cluster.unloading import UNLOAD, UnloadQuestion
from p2pexo.ring.plan import Placement

ANSWER_TIMEOUT_S = 2.0
"""How long the node of stage 0 may take to answer. Raise it for slow links; lower it and whoever waits for the model hears sooner."""

SEEN_WITHIN_S = 3.0
"""How long it may take until a placement that was let go has ended."""

Fits = Callable[[Cluster], bool]
"""Whether the model finds room in such a cluster."""

log = structlog.get_logger(__name__)


def victims(cluster: Cluster, fits: Fits, spared: Set[str] = frozenset()) -> tuple[Placement, ...]:
    """Who has to go, so that the model fits; nobody if that would not be enough. ``spared``: ids of those that stay."""
    going: list[Placement] = []
    for each in _idle(cluster, spared):
        going.append(each)
        if fits(_without(cluster, going)):
            return tuple(_fewest(cluster, fits, going))
    return ()


def _idle(cluster: Cluster, spared: Set[str]) -> list[Placement]:
    """The one used longest ago comes first."""
    since = {
        each.id: stay.idle_since
        for each in cluster.placements.placements
        if not each.by_user and each.id not in spared and (stay := cluster.stay_of(each)) is not None
    }
    idle = [each for each in cluster.placements.placements if since.get(each.id) is not None]
    return sorted(idle, key=lambda each: (since[each.id] or 0.0, each.id))


def _fewest(cluster: Cluster, fits: Fits, going: Sequence[Placement]) -> list[Placement]:
    """Without those that stand where no room is needed; those used last are spared first."""
    needed = list(going)
    for each in reversed(going[:-1]):
        others = [other for other in needed if other is not each]
        if fits(_without(cluster, others)):
            needed = others
    return needed


def _without(cluster: Cluster, going: Sequence[Placement]) -> Cluster:
    placements = cluster.placements
    for each in going:
        placements = edit.delete(placements, Deletion(each.id, "", 0.0))
    return evolve(cluster, placements=placements)


async def make_room(overlay: Overlay, model: str, fits: Fits) -> bool:
    """Whether there is room for the model now. What is needed goes one after another; who turns out to be used is spared."""
    spared: set[str] = set()
    while going := victims(observe(overlay.view), fits, spared):
        if not await _let_go(overlay, going[0], model):
            spared.add(going[0].id)
        if fits(observe(overlay.view)):
            return True
    return False


async def _let_go(overlay: Overlay, placement: Placement, model: str) -> bool:
    """Whether it has ended."""
    log.info("an idle model is asked to make room", id=placement.id, model=placement.model, needed_by=model)
    question = UnloadQuestion(placement.id, makes_room_for=model)
    try:
        reply = await UNLOAD.ask(overlay, PeerId(placement.first_peer), question, timeout_s=ANSWER_TIMEOUT_S)
    except (TransportError, RequestRefusedError) as error:
        log.info("an idle model could not be asked to make room", id=placement.id, reason=str(error))
        return False
    if reply.leaves_now:
        with trio.move_on_after(SEEN_WITHIN_S):
            async for view in overlay.views():
                if observe(view).placements.find(placement.id) is None:
                    return True
    return False
