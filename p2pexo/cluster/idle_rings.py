"""Lets rings go that requests brought about and nobody uses any more. Runs on every node, for the rings whose stage 0 it runs.

A ring about to leave turns requests away, and the router places the model anew for them: none is lost between the decision
and the deletion. A placement that a person made never leaves.
"""

import time
from collections.abc import Generator
from contextlib import contextmanager
from math import inf

import structlog
import trio

from networking.overlay import Overlay
from networking.transport import PeerId
from p2pexo.cluster.commands import ReleaseCommand, send_command
from p2pexo.cluster.facts import STAYS_KEY, StayFact, StaysFact
from p2pexo.cluster.idleness import Stay
from p2pexo.cluster.observed import Cluster, observe
from p2pexo.cluster.reconciling import known_placements
from p2pexo.cluster.unloading import UNLOAD, UnloadQuestion, UnloadReply
from p2pexo.generation.codec import encode
from p2pexo.generation.errors import GenerationError, RingBrokenError
from p2pexo.ring.plan import Placement

KEEP_ALIVE_S = 300.0
"""For rings of which no request has said how long they shall stay; Ollama's own."""

TRY_AGAIN_S = 10.0
"""After the leader could not be asked. Raise it and a cluster without a leader is left in peace; lower it and memory is free sooner."""

SEEN_WITHIN_S = 10.0
"""How long a deletion that was accepted may take to show here; it may be lost with the leader that accepted it."""

log = structlog.get_logger(__name__)


class IdleRings:
    """Answers questions to unload as soon as it is made."""

    def __init__(self, overlay: Overlay, keep_alive_s: float = KEEP_ALIVE_S) -> None:
        self._overlay = overlay
        self._keep_alive_s = keep_alive_s
        self._stays: dict[str, Stay] = {}
        self._mine: dict[str, Placement] = {}
        self._leaving: set[str] = set()
        """Ids of placements, also of those that have left: none comes back."""
        self._needed_by: dict[str, str] = {}
        """By id of a placement that makes room: the model that gets it."""
        self._told = StaysFact()
        self._changed = trio.Event()
        UNLOAD.serve(overlay, self._unload)

    @contextmanager
    def use(self, placement_id: str, keep_alive_s: float | None) -> Generator[None]:
        """The ring of this placement is used while in the block. Raises RingBrokenError if it is about to leave."""
        if placement_id in self._leaving:
            raise RingBrokenError(f"placement {placement_id} is leaving, as nobody used it")
        self._set(placement_id, self._stay(placement_id).begun(keep_alive_s))
        try:
            yield
        finally:
            self._set(placement_id, self._stay(placement_id).ended(trio.current_time()))

    async def run(self) -> None:
        """Until cancelled."""
        views = self._overlay.views()

        async def watch() -> None:
            async for _ in views:
                self._changed.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            while True:
                with trio.move_on_at(self._tend(nursery)):
                    await self._changed.wait()
                self._changed = trio.Event()

    def _tend(self, nursery: trio.Nursery) -> float:
        """Let go what is due, and tell how long the others stay; when to look again at the latest."""
        cluster, now = observe(self._overlay.view), trio.current_time()
        self._look_at(cluster, now)
        ends = {id: self._stays[id].ends_at for id, each in self._mine.items() if not each.by_user}
        staying = {id: end for id, end in ends.items() if id not in self._leaving}
        for id in [id for id, end in staying.items() if end <= now]:
            del staying[id]
            self._leaving.add(id)
            nursery.start_soon(self._let_go, self._mine[id], self._stays[id])
        self._tell(now)
        return min(staying.values(), default=inf)

    def _look_at(self, cluster: Cluster, now: float) -> None:
        mine = [each for each in known_placements(cluster) if each.first_peer == cluster.me]
        self._mine = {each.id: each for each in mine}
        seen = {
            each.id: self._stay(each.id).formed(each.epoch if cluster.is_ready(each) else None, now) for each in mine
        }
        self._stays = {id: stay for id, stay in self._stays.items() if stay.running} | seen

    async def _let_go(self, placement: Placement, stay: Stay) -> None:
        command = self._release(placement, stay)
        try:
            await send_command(self._overlay, command)
            with trio.fail_after(SEEN_WITHIN_S):
                async for view in self._overlay.views():
                    if observe(view).placements.deletion_of(placement.id) is not None:
                        return
        except (GenerationError, trio.TooSlowError) as error:
            reason = str(error) or "the deletion was not seen"
            log.info("an idle placement could not be ended yet", id=placement.id, reason=reason)
        self._leaving.discard(placement.id)
        self._set(placement.id, self._stay(placement.id).refused(trio.current_time() + TRY_AGAIN_S))

    def _release(self, placement: Placement, stay: Stay) -> ReleaseCommand:
        needed_by = self._needed_by.pop(placement.id, "")
        reason = f"not used for {stay.keep_alive_s:g} s"
        if needed_by:
            reason = f"{placement.model} was idle, and {needed_by} needed its memory"
        return ReleaseCommand(placement.id, placement.epoch, reason, needed_by)

    async def _unload(self, peer: PeerId, question: UnloadQuestion) -> UnloadReply:
        id = question.placement_id
        if id not in self._mine:
            return UnloadReply(leaves_now=False)
        if question.makes_room_for:
            if self._mine[id].by_user or not self._stay(id).is_idle(trio.current_time()):
                return UnloadReply(leaves_now=False)
            self._needed_by[id] = question.makes_room_for
        log.info("placement is to be unloaded when nobody uses it", id=id, peer=peer)
        stay = self._stay(id).released()
        self._set(id, stay)
        return UnloadReply(leaves_now=stay.ends_at <= trio.current_time())

    def _stay(self, placement_id: str) -> Stay:
        return self._stays.get(placement_id) or Stay(self._keep_alive_s)

    def _set(self, placement_id: str, stay: Stay) -> None:
        self._stays[placement_id] = stay
        self._changed.set()

    def _tell(self, now: float) -> None:
        fact = StaysFact(
            [_fact(id, self._stays[id], now) for id, placement in self._mine.items() if not placement.by_user]
        )
        if fact != self._told:
            self._told = fact
            self._overlay.set_fact(STAYS_KEY, encode(fact), volatile=True)


def _fact(placement_id: str, stay: Stay, now: float) -> StayFact:
    idle = stay.epoch is not None and not stay.running
    return StayFact(placement_id, stay.keep_alive_s, round(time.time() - (now - stay.idle_since)) if idle else None)
