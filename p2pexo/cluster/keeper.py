"""Keeps one stage running: fetches its model, starts its process, starts it again if it crashes, and tells how it does."""

from collections.abc import Callable
from math import floor
from pathlib import Path

import structlog
import trio
from attrs import evolve, frozen

from networking.overlay import Overlay
from networking.transport import Sign
from p2pexo.cluster.activities import is_worth_telling
from p2pexo.cluster.assignments import Assignment, may_join, sign_certificate
from p2pexo.cluster.facts import ActivityFact, StageFact, activity_key, stage_key
from p2pexo.cluster.fetching import Fetch
from p2pexo.cluster.observed import LOADED
from p2pexo.cluster.restarts import Restarts
from p2pexo.cluster.seams import Stage, StartStage
from p2pexo.generation.codec import encode
from p2pexo.ring.activity import StageActivity
from p2pexo.ring.stage import Neighbours, StagePhase, StageSpec, StageStatus

PROGRESS_STEP = 0.05
"""Share of a download or load worth telling. Smaller steps look smoother and cost more gossip."""

log = structlog.get_logger(__name__)


@frozen
class Surroundings:
    """What all stages of a node share."""

    overlay: Overlay
    fetch: Fetch
    start_stage: StartStage
    sign: Sign
    link_hosts: Callable[[], tuple[str, ...]]
    """Where stages can listen at the moment."""
    models_changed: Callable[[], None]


class StageKeeper:
    """``stage`` is the running process, None while there is none."""

    def __init__(self, assignment: Assignment, around: Surroundings) -> None:
        self.assignment = assignment
        self.stage: Stage | None = None
        self.done = trio.Event()
        self._around = around
        self._scope = trio.CancelScope()
        self._life = trio.CancelScope()
        self._status = StageStatus(StagePhase.STARTING)
        self._told: StageFact | None = None
        self._told_activity = StageActivity()
        self._joined: Neighbours | None = None
        self._loaded_at: float | None = None
        self._to_join: trio.MemorySendChannel[Neighbours] | None = None
        self._renewed = trio.Event()

    def stop(self) -> None:
        self._scope.cancel()

    def renew(self, assignment: Assignment) -> None:
        """The same layers under a newer epoch: a living process goes on, one that was given up is tried again.

        One that listens where this machine no longer is could not be linked, and gives way to another.
        """
        self.assignment = assignment
        self._renewed.set()
        hosts = self._around.link_hosts()
        if any(endpoint.host not in hosts for endpoint in self._status.endpoints):
            self._life.cancel()
            self._tell(StageStatus(StagePhase.STARTING, "this machine's addresses have changed"))
        else:
            self._tell(StageStatus(StagePhase.STARTING) if self._status.phase is StagePhase.FAILED else self._status)

    def meet(self, neighbours: Neighbours) -> None:
        """Join the ring with these neighbours, unless that was done or is not the time."""
        if neighbours == self._joined or self._to_join is None or not may_join(self._status, self.assignment.epoch):
            return
        try:
            self._to_join.send_nowait(neighbours)
        except trio.WouldBlock:
            return  # the one before is still being joined; the status that follows brings us here again
        self._joined = neighbours

    async def run(self) -> None:
        """Until stopped or cancelled; then the process is gone, and so is its fact."""
        try:
            with self._scope:
                while True:
                    reason = await self._keep_up()
                    self._renewed = trio.Event()
                    self._tell(StageStatus(StagePhase.FAILED, reason))
                    log.error("stage given up", **self._names(), reason=reason)
                    await self._renewed.wait()
        finally:
            self._around.overlay.delete_fact(stage_key(*self.assignment.key))
            self._around.overlay.delete_fact(activity_key(*self.assignment.key))
            self.done.set()

    async def _keep_up(self) -> str:
        """Run the process, again after crashes; why it was given up in the end.

        One that couldn't even load its layers isn't started again: what is wrong with them stays wrong.
        """
        try:
            directory = await self._fetch()
        except Exception as error:  # whatever the store, the network or the disk came up with
            log.exception("model could not be fetched", **self._names())
            return f"{self.assignment.placement.model} could not be fetched: {error}"
        restarts = Restarts()
        while True:
            worked_s, reason = await self._run_process(directory)
            pause = None if worked_s is None else restarts.pause_after(worked_s)
            if pause is None:
                return reason
            self._tell(StageStatus(StagePhase.STARTING, f"starts again in {pause:g} s, after: {reason}"))
            log.warning("stage starts again", **self._names(), reason=reason, pause_s=pause)
            await trio.sleep(pause)

    async def _fetch(self) -> Path:
        card = self.assignment.placement.card
        if card is None:
            raise ValueError("its placement, made by an older version, does not say what it is; place it again")

        def show(share: float) -> None:
            self._tell(StageStatus(StagePhase.STARTING, "fetching the model", share))

        show(0.0)
        directory = await self._around.fetch(card, show)
        self._around.models_changed()
        return directory

    async def _run_process(self, directory: Path) -> tuple[float | None, str]:
        """One life of the process: how long it worked once it had its layers loaded, None if it never had, and why it ended."""
        spec = StageSpec(self.assignment.placement, self.assignment.rank, directory, self._around.link_hosts())
        try:
            stage = self._around.start_stage(spec)
        except Exception as error:  # whatever the disk came up with, such as a folder that is somebody else's
            log.exception("stage could not be started", **self._names())
            return None, f"the stage could not be started: {error}"
        self._to_join, to_join = trio.open_memory_channel[Neighbours](1)
        self._joined = self._loaded_at = None
        self._tell(stage.status)
        self.stage = stage
        try:
            async with trio.open_nursery() as nursery:
                self._life = nursery.cancel_scope
                nursery.start_soon(self._relay_statuses, stage)
                nursery.start_soon(_join_rings, stage, to_join)
                await stage.run()
                nursery.cancel_scope.cancel()
        finally:
            self.stage = self._to_join = None
        worked_s = None if self._loaded_at is None else trio.current_time() - self._loaded_at
        return worked_s, stage.status.reason or "the stage process ended"

    async def _relay_statuses(self, stage: Stage) -> None:
        async for status in stage.statuses():
            if status.phase in LOADED and self._loaded_at is None:
                self._loaded_at = trio.current_time()
            if status.phase is not StagePhase.FAILED:  # whether that is final is decided when the process has ended
                self._tell(status)

    def _tell(self, status: StageStatus) -> None:
        self._status = status
        placement, rank = self.assignment.placement, self.assignment.rank
        signature = sign_certificate(self._around.sign, status.certificate, placement.id, rank)
        told = StageFact(placement, rank, evolve(status, progress=_rounded(status.progress), activity=None), signature)
        if told != self._told and not self._scope.cancel_called:
            only_progress = self._told is not None and _without_progress(told) == _without_progress(self._told)
            self._told = told
            self._around.overlay.set_fact(stage_key(*self.assignment.key), encode(told), volatile=only_progress)
        self._tell_activity(status.activity or StageActivity())

    def _tell_activity(self, activity: StageActivity) -> None:
        if is_worth_telling(self._told_activity, activity) and not self._scope.cancel_called:
            self._told_activity = activity
            fact = ActivityFact(*self.assignment.key, activity)
            self._around.overlay.set_fact(activity_key(*self.assignment.key), encode(fact), volatile=True)

    def _names(self) -> dict[str, object]:
        placement = self.assignment.placement
        return {"id": placement.id, "model": placement.model, "rank": self.assignment.rank}


async def _join_rings(stage: Stage, to_join: trio.MemoryReceiveChannel[Neighbours]) -> None:
    async for neighbours in to_join:
        await stage.join(neighbours)


def _rounded(progress: float) -> float:
    return 1.0 if progress >= 1 else floor(progress / PROGRESS_STEP) * PROGRESS_STEP


def _without_progress(fact: StageFact) -> StageFact:
    return evolve(fact, status=evolve(fact.status, progress=0.0, weight_bytes=0, resident_bytes=0))
