"""The wish to unload a model: asked of the nodes that know who uses its rings, so that nobody's answer ends."""

import structlog
import trio
from attrs import frozen

from networking.overlay import Overlay, RequestRefusedError
from networking.transport import PeerId, TransportError
from networking.typed_requests import RequestKind
from p2pexo.cluster.commands import DeleteCommand, send_command
from p2pexo.cluster.observed import Cluster, observe
from p2pexo.cluster.reconciling import known_placements
from p2pexo.generation.errors import ModelNotFoundError, UnavailableError
from p2pexo.ring.plan import Placement

ANSWER_TIMEOUT_S = 10.0
"""How long the node of stage 0 may take to answer. Raise it for slow links; lower it and clients hear sooner."""

SEEN_WITHIN_S = 5.0
"""How long to wait until a ring that nobody uses is seen to be gone."""

log = structlog.get_logger(__name__)


@frozen
class UnloadQuestion:
    """Asked of the node that runs stage 0: let this placement end with its last request."""

    placement_id: str
    makes_room_for: str = ""
    """The model that needs its memory. Then it ends only if nobody uses it."""


@frozen
class UnloadReply:
    leaves_now: bool
    """False if requests run on it, or may wait for it: then it leaves after them, or stays if it was to make room."""


UNLOAD = RequestKind("/p2pexo/unload/1", UnloadQuestion, UnloadReply)


async def unload(overlay: Overlay, model: str) -> None:
    """End the placements of a model that requests brought about, as soon as nobody uses them; those of a person stay.

    Returns when those that nobody uses are seen to be gone. Raises UnavailableError.
    """
    cluster = observe(overlay.view)
    automatic = [each for each in known_placements(cluster) if each.model == model and not each.by_user]
    leaving = {each.id for each in automatic if await _release(overlay, cluster, each)}
    with trio.move_on_after(SEEN_WITHIN_S):
        await _seen_gone(overlay, leaving)


async def _release(overlay: Overlay, cluster: Cluster, placement: Placement) -> bool:
    """Whether it leaves at once. A ring that can't be formed answers nobody, so that the leader may just end it."""
    if not cluster.is_live(placement.first_peer) or cluster.placements.trouble_of(placement.id) is not None:
        return await _delete(overlay, placement.id)
    peer = PeerId(placement.first_peer)
    try:
        reply = await UNLOAD.ask(overlay, peer, UnloadQuestion(placement.id), timeout_s=ANSWER_TIMEOUT_S)
        return reply.leaves_now
    except (TransportError, RequestRefusedError) as error:
        message = f"{placement.model} can't be unloaded: its first stage is on {cluster.name_of(peer)}, {error}"
        raise UnavailableError(message) from error


async def _delete(overlay: Overlay, placement_id: str) -> bool:
    try:
        await send_command(overlay, DeleteCommand(placement_id))
    except ModelNotFoundError:
        return False
    return True


async def _seen_gone(overlay: Overlay, ids: set[str]) -> None:
    if not ids:
        return
    async for view in overlay.views():
        if ids.isdisjoint(each.id for each in known_placements(observe(view))):
            return
