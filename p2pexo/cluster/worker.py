"""The worker's duty: run the stages that placements give this node, and let them meet their neighbours.

Driven by changes of the view alone. Stages stop when a placement is deleted or has moved on to other machines, and never
because a leader, or what it said, is gone. A ring is closed when all its stages are loaded, and not bit by bit: until then
the ring before it goes on serving, if it is whole.
"""

from collections.abc import Sequence

import structlog
import trio

from networking.transport import Verify
from networking.view import View
from p2pexo.cluster.assignments import Assignment, AssignmentKey, Ledger, difference, neighbours
from p2pexo.cluster.handover import still_serves
from p2pexo.cluster.keeper import StageKeeper, Surroundings
from p2pexo.cluster.observed import observe
from p2pexo.cluster.seams import Stage

log = structlog.get_logger(__name__)


class Worker:
    def __init__(self, around: Surroundings, verify: Verify) -> None:
        self._around = around
        self._verify = verify
        self._keepers: dict[AssignmentKey, StageKeeper] = {}
        self._stopping: list[StageKeeper] = []
        self._ledger = Ledger()

    def first_stage(self, placement_id: str) -> Stage | None:
        """Stage 0 of a placement, if this node runs it."""
        keeper = self._keepers.get((placement_id, 0))
        return keeper.stage if keeper else None

    async def run(self) -> None:
        """Until cancelled; then all stage processes have ended."""
        async with trio.open_nursery() as nursery:
            async for view in self._around.overlay.views():
                self._reconcile(view, nursery)
                self._introduce(view)

    def _reconcile(self, view: View, nursery: trio.Nursery) -> None:
        cluster = observe(view)
        self._ledger = self._ledger.told(cluster.placements)
        running = {key: keeper.assignment for key, keeper in self._keepers.items()}
        todo = difference(running, cluster.placements, self._ledger, cluster.me)
        for key in todo.stop:
            if not still_serves(cluster, running[key]):
                self._stop(self._keepers.pop(key))
        for assignment in todo.renew:
            self._keepers[assignment.key].renew(assignment)
        for assignment in todo.start:
            self._start(assignment, nursery)

    def _stop(self, keeper: StageKeeper) -> None:
        log.info("stage stops", id=keeper.assignment.placement.id, rank=keeper.assignment.rank)
        keeper.stop()
        self._stopping = [each for each in self._stopping if not each.done.is_set()] + [keeper]

    def _start(self, assignment: Assignment, nursery: trio.Nursery) -> None:
        keeper = StageKeeper(assignment, self._around)
        self._keepers[assignment.key] = keeper
        log.info("stage starts", id=assignment.placement.id, rank=assignment.rank, epoch=str(assignment.epoch))
        nursery.start_soon(_run_after, tuple(self._stopping), keeper)

    def _introduce(self, view: View) -> None:
        cluster = observe(view)
        for keeper in self._keepers.values():
            if not cluster.is_loaded(keeper.assignment.placement):
                continue
            beside = neighbours(keeper.assignment, cluster, self._verify)
            if beside is not None:
                keeper.meet(beside)


async def _run_after(stopping: Sequence[StageKeeper], keeper: StageKeeper) -> None:
    """Memory is given back before more is taken."""
    for each in stopping:
        await each.done.wait()
    await keeper.run()
