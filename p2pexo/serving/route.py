"""Where a request for a model can go, as far as this node's facts tell. Pure."""

from attrs import frozen

from p2pexo.cluster.describe import state_of
from p2pexo.cluster.observed import Cluster
from p2pexo.cluster.placements import was_formed_anew
from p2pexo.cluster.reconciling import known_placements
from p2pexo.ring.plan import Placement


@frozen
class Ready:
    """Each of these rings could take it."""

    placements: tuple[Placement, ...]


@frozen
class Pending:
    """Its ring will be ready, or is thought to be."""

    placement: Placement
    reason: str
    is_formed_anew: bool = False
    """True if the ring ran before and lost a stage; those who wait for it have less patience."""


@frozen
class Stuck:
    """Its ring can't be formed with the machines that are here."""

    placement: Placement
    reason: str


@frozen
class Absent:
    """The model is not placed."""


Route = Ready | Pending | Stuck | Absent


def find_route(cluster: Cluster, model: str) -> Route:
    """All rings of the model that are ready; if none is, one that may become so, first one whose stage 0 is here, then the newest."""
    placements = [each for each in known_placements(cluster) if each.model == model]
    if not placements:
        return Absent()
    if ready := tuple(each for each in placements if cluster.is_ready(each)):
        return Ready(ready)
    troubled = {each.placement_id for each in cluster.placements.troubles}
    best = max(placements, key=lambda each: (each.id not in troubled, each.first_peer == cluster.me, each.epoch))
    state, reason = state_of(cluster, best)
    if best.id in troubled:
        return Stuck(best, reason)
    return Pending(best, reason, is_formed_anew=state == "broken" or was_formed_anew(best))
