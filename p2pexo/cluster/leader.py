"""The leader's duty: answers commands and keeps placements alive. Runs on every node; acts only while its node leads."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from math import isinf
from time import time

import structlog
import trio

from networking.overlay import FactTooLargeError, Overlay
from networking.transport import PeerId
from p2pexo.cluster import placements as edit
from p2pexo.cluster.commands import (
    COMMAND,
    Accepted,
    Command,
    DeleteCommand,
    NotLeading,
    PlaceCommand,
    ReleaseCommand,
    Reply,
)
from p2pexo.cluster.eviction import make_room
from p2pexo.cluster.facts import Deletion, Placements
from p2pexo.cluster.observed import Cluster, observe
from p2pexo.cluster.placing import place
from p2pexo.cluster.repair import Memory, Moment, decide
from p2pexo.generation.codec import encode
from p2pexo.generation.errors import (
    GenerationError,
    InsufficientMemoryError,
    InvalidRequestError,
    ModelNotFoundError,
    UnavailableError,
)
from p2pexo.models.card import Card

log = structlog.get_logger(__name__)


class Leader:
    """``cards`` are the models this node knows by itself; those that other nodes hold are found in their facts."""

    def __init__(self, overlay: Overlay, cards: Callable[[], Mapping[str, Card]]) -> None:
        self._overlay = overlay
        self._cards = cards
        self._memory = Memory()
        COMMAND.serve(overlay, self._answer)

    async def run(self) -> None:
        """Look after the placements until cancelled, while this node leads."""
        views = self._overlay.views()
        wake_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            changed = trio.Event()

            async def watch() -> None:
                async for _ in views:
                    changed.set()

            nursery.start_soon(watch)
            while True:
                with trio.move_on_at(wake_at):
                    await changed.wait()
                changed = trio.Event()
                wake_at = self._tend()

    def _tend(self) -> float:
        """Decide once; when to decide again at the latest."""
        cluster = observe(self._overlay.view)
        if not cluster.i_lead:
            self._memory = Memory()
            return trio.current_time() + 3600
        decision = decide(cluster, self._memory, Moment(trio.current_time(), time()))
        self._memory = decision.memory
        try:
            self._publish(cluster.placements, decision.placements)
        except FactTooLargeError as error:
            log.error(
                "the placements can't be told; delete some", count=len(cluster.placements.placements), error=str(error)
            )
        return trio.current_time() + 3600 if isinf(decision.wake_at) else decision.wake_at

    def _publish(self, old: Placements, new: Placements) -> None:
        """Raises FactTooLargeError."""
        if new != old:
            self._overlay.set_payload(encode(new))
            _log_changes(old, new)

    async def _answer(self, peer: PeerId, command: Command) -> Reply:
        try:
            return await self._obey(command)
        except GenerationError as error:
            log.info("command refused", peer=peer, error=error.message)
            return error.report()

    async def _obey(self, command: Command) -> Reply:
        """Idle models make room for one that has none. Raises GenerationError."""
        try:
            return self._obey_at_once(command)
        except InsufficientMemoryError:
            if not isinstance(command, PlaceCommand):
                raise
            if not await make_room(self._overlay, command.model, partial(self._has_room, command)):
                raise
        return self._obey_at_once(command)

    def _has_room(self, command: PlaceCommand, cluster: Cluster) -> bool:
        with suppress(GenerationError):
            place(cluster, command, self._card(cluster, command))
            return True
        return False

    def _obey_at_once(self, command: Command) -> Reply:
        """Between reading the payload and setting it nothing is awaited, so commands can't overtake one another.

        Raises GenerationError.
        """
        cluster = observe(self._overlay.view)
        if not cluster.i_lead or cluster.term < command.seen_term:
            return NotLeading(cluster.leader)
        if isinstance(command, DeleteCommand):
            placements, id = delete(cluster, command), command.placement_id
        elif isinstance(command, ReleaseCommand):
            placements, id = release(cluster, command), command.placement_id
        else:
            placements, id = place(cluster, command, self._card(cluster, command))
        try:
            self._publish(cluster.placements, placements)
        except FactTooLargeError as error:
            count = len(cluster.placements.placements)
            raise UnavailableError(f"{count} placements are all that the leader can hold; delete one first") from error
        return Accepted(id)

    def _card(self, cluster: Cluster, command: PlaceCommand) -> Card:
        card = self._cards().get(command.model) or cluster.card_of(command.model) or command.card
        if card is None or card.id != command.model:
            raise ModelNotFoundError(f"no node of this cluster knows the model {command.model!r}", param="model")
        return card


def delete(cluster: Cluster, command: DeleteCommand) -> Placements:
    """Raises ModelNotFoundError if there is no such placement and was none lately."""
    placements = cluster.placements
    if placements.deletion_of(command.placement_id) is not None:
        return placements
    reported = {fact.placement.id for fact in cluster.stages.values()}
    if placements.find(command.placement_id) is None and command.placement_id not in reported:
        ids = ", ".join(each.id for each in placements.placements) or "none"
        raise ModelNotFoundError(f"there is no placement {command.placement_id!r}; there are: {ids}", param="id")
    return edit.delete(placements, Deletion(command.placement_id, "deleted on request", time()))


def release(cluster: Cluster, command: ReleaseCommand) -> Placements:
    """Raises InvalidRequestError for a placement that has become a person's own, or whose ring was formed anew."""
    placements = cluster.placements
    placement = placements.find(command.placement_id)
    if placement is None:
        return placements
    if placement.by_user or placement.epoch != command.epoch:
        reason = "somebody asked for it" if placement.by_user else f"its ring is now that of epoch {placement.epoch}"
        raise InvalidRequestError(f"placement {placement.id} stays: {reason}", param="id")
    deletion = Deletion(placement.id, command.reason, time(), idle=True, makes_room_for=command.makes_room_for)
    return edit.delete(placements, deletion)


def _log_changes(old: Placements, new: Placements) -> None:
    for placement in new.placements:
        before = old.find(placement.id)
        if before is None or before.epoch != placement.epoch:
            ring = [f"{stage.peer[-8:]}:{stage.first_layer}-{stage.end_layer}" for stage in placement.stages]
            log.info("placed", id=placement.id, model=placement.model, epoch=str(placement.epoch), ring=ring)
    for deletion in new.deletions:
        if old.deletion_of(deletion.placement_id) is None:
            log.info("placement ended", id=deletion.placement_id, reason=deletion.reason)
    for trouble in new.troubles:
        if old.trouble_of(trouble.placement_id) != trouble:
            log.warning("placement can't be formed anew yet", id=trouble.placement_id, reason=trouble.reason)
