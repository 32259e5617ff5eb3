import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest
import trio

from p2pexo.ring.engines import SCRIPTED_ENGINE
from p2pexo.ring.plan import Epoch, Placement, StagePlan
from p2pexo.ring.scripted import Script
from p2pexo.ring.spare import Spare
from p2pexo.ring.stage import StagePhase, StageSpec
from p2pexo.ring.supervisor import StageProcess

SLOW = pytest.mark.timeout(120)


def with_spare(story: Callable[[Spare], Awaitable[None]]) -> None:
    async def main() -> None:
        spare = Spare(SCRIPTED_ENGINE, lambda: os.environ)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spare.run)
            spare.want(True)
            await until(lambda: spare.pid)
            await story(spare)
            nursery.cancel_scope.cancel()

    trio.run(main)


async def until(condition: Callable[[], object]) -> None:
    with trio.fail_after(60):
        while not condition():  # noqa: ASYNC110 what other processes do raises no event here
            await trio.sleep(0.02)


@SLOW
def test_a_spare_process_becomes_the_stage_that_starts_next(tmp_path: Path) -> None:
    Script().write(tmp_path)
    spec = StageSpec(Placement("p1", "a/b", "r", Epoch(1, 1, "x"), (StagePlan("peer", 0, 6),)), 0, tmp_path, ())

    async def story(spare: Spare) -> None:
        pid = spare.pid
        stage = StageProcess(spec, engine=SCRIPTED_ENGINE, spare=spare)
        async with trio.open_nursery() as nursery:
            await nursery.start(stage.run)
            assert stage.pid == pid
            async for status in stage.statuses():
                assert status.phase is not StagePhase.FAILED, status.reason
                if status.phase is StagePhase.LISTENING:
                    break
            nursery.cancel_scope.cancel()
        assert pid is not None
        assert not psutil.pid_exists(pid)

    with_spare(story)


@SLOW
def test_a_spare_process_that_has_died_is_not_handed_out() -> None:
    async def story(spare: Spare) -> None:
        pid = spare.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
        assert spare.take() is None

    with_spare(story)


@SLOW
def test_a_spare_process_that_is_not_wanted_any_more_ends() -> None:
    async def story(spare: Spare) -> None:
        pid = spare.pid
        assert pid is not None
        spare.want(False)
        await until(lambda: spare.pid is None)
        await until(lambda: not psutil.pid_exists(pid))

    with_spare(story)
