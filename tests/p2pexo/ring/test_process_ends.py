"""How stage processes come to an end: never by a request, always with their owner."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import trio
from structlog.testing import capture_logs

from p2pexo.ring.scripted import Script
from p2pexo.ring.stage import StagePhase
from p2pexo.ring.step_clock import Patience

OWNER = """
import sys, trio
from pathlib import Path
from p2pexo.ring.plan import Epoch, Placement, StagePlan
from p2pexo.ring.stage import StagePhase, StageSpec
from p2pexo.ring.supervisor import StageProcess

async def main():
    plans = (StagePlan("peer", 0, 3), StagePlan("peer", 3, 6))
    placement = Placement("p1", "test/model", "r1", Epoch(1, 1, "leader"), plans)
    async with trio.open_nursery() as nursery:
        for rank in range(2):
            spec = StageSpec(placement, rank, Path(sys.argv[1]), ("127.0.0.1",))
            process = StageProcess(spec, engine="p2pexo.ring.scripted:kit")
            await nursery.start(process.run)
            async for status in process.statuses():
                if status.phase is StagePhase(sys.argv[2]):
                    break
            print("child", process.pid, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


@pytest.mark.parametrize("phase", [StagePhase.LOADING, StagePhase.LISTENING])
def test_stages_end_when_their_owner_is_killed(tmp_path: Path, phase: StagePhase):
    Script(load_s=5.0 if phase is StagePhase.LOADING else 0.0).write(tmp_path)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), phase],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert owner.stdout
    try:
        lines = (line for line in owner.stdout if line.startswith("child"))
        children = [psutil.Process(int(next(lines).split()[1])) for _ in range(2)]
        owner.kill()
        gone, alive = psutil.wait_procs(children, timeout=10)
        assert (len(gone), alive) == (2, [])
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()


def test_a_cancelled_stage_is_gone_when_run_returns(ring_of):
    async def main() -> list[int]:
        async with ring_of(2) as ring:
            return [process.pid for process in ring.processes]

    assert not any(psutil.pid_exists(pid) for pid in trio.run(main))


def test_a_stage_that_is_stopped_is_killed_in_the_end(ring_of, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("p2pexo.ring.ending.STOP_S", 0.2)

    async def main() -> int:
        async with ring_of(1) as ring:
            os.kill(ring.first.pid, signal.SIGSTOP)
            return ring.first.pid

    assert not psutil.pid_exists(trio.run(main))


def test_a_stage_that_can_not_load_says_why(ring_of):
    async def main():
        async with ring_of(1, Script(broken_layer=2), form=False) as ring:
            with trio.fail_after(20):
                statuses = [status async for status in ring.first.statuses()]
            assert statuses[-1].phase is StagePhase.FAILED
            assert "layer 2 can't be read from" in statuses[-1].reason

    trio.run(main)


def test_a_stage_that_never_came_up_says_what_it_printed(ring_of):
    async def main():
        async with ring_of(1, form=False) as ring:
            await ring.replace(0, engine="no_such_module:kit")
            with trio.fail_after(20):
                statuses = [status async for status in ring.first.statuses()]
            assert statuses[-1].phase is StagePhase.FAILED
            assert "no_such_module" in statuses[-1].reason

    trio.run(main)


def test_a_stopped_neighbour_breaks_the_ring_in_bounded_time(ring_of):
    async def main():
        async with ring_of(3) as ring:
            os.kill(ring.processes[1].pid, signal.SIGSTOP)
            try:
                for rank in (2, 0):
                    await ring.wait(rank, StagePhase.BROKEN)
                assert "no word from the previous stage" in ring.processes[2].status.reason
            finally:
                with suppress(ProcessLookupError):
                    os.kill(ring.processes[1].pid, signal.SIGCONT)

    trio.run(main)


def test_a_loaded_stage_that_stands_still_is_killed_in_bounded_time(ring_of):
    async def main():
        async with ring_of(1) as ring:
            os.kill(ring.first.pid, signal.SIGSTOP)
            with trio.fail_after(60):
                statuses = [status async for status in ring.first.statuses()]
            assert statuses[-1].phase is StagePhase.FAILED
            assert "no sign of life for 6 s" in statuses[-1].reason

    trio.run(main)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_step_that_hangs_is_written_to_the_log_with_its_stack_and_the_process_killed(ring_of, request_for, rank: int):
    async def main():
        script = Script(hangs=(("for ever", 3 * rank),))
        async with ring_of(2, script, patience=Patience(first_s=1.0, floor_s=1.0)) as ring:
            hanging = ring.processes[rank]
            (*_, failed) = await ring.ask(request_for("compute for ever"))
            assert failed.error.kind == "ring_broken"
            await ring.wait(rank, StagePhase.FAILED)
            assert "was computed for" in hanging.status.reason
            await ring.wait(1 - rank, StagePhase.BROKEN)

    with capture_logs() as lines:
        trio.run(main)
    assert any("_check_hang" in str(line) for line in lines)


def test_a_long_step_within_patience_is_left_alone(ring_of, request_for, tokens_in):
    async def main():
        async with ring_of(2, Script(batch_s=0.2), patience=Patience(floor_s=0.1)) as ring:
            assert len(tokens_in(await ring.ask(request_for("slowly", max_tokens=3)))) == 3

    trio.run(main)


@pytest.mark.parametrize("said", ["Insufficient Memory", "std::bad_alloc"])
def test_memory_that_runs_out_ends_the_request_in_words_and_no_process(ring_of, request_for, tokens_in, said: str):
    async def main():
        async with ring_of(2, Script(poisons=((said, 3),))) as ring:
            (*_, failed) = await ring.ask(request_for(f"raise {said}"))
            assert "memory ran out" in failed.error.message
            assert "place the model over more machines" in failed.error.message
            assert len(tokens_in(await ring.ask(request_for("hello", id="r2", max_tokens=3)))) == 3

    trio.run(main)
