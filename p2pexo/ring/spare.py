"""A stage process that has done its imports and waits to be told what to be, so that a lost stage is replaced sooner."""

import subprocess
import sys
from collections.abc import Callable, Mapping

import structlog
import trio

from p2pexo.ring.control import Prepare, pack_command

TAKEN_PAUSE_S = 3.0
"""After a spare one was taken, before the next is started. Raise it and the one that loads has the machine for itself longer;
lower it and the next loss is met sooner."""

_logger = structlog.get_logger(__name__)


async def open_stage_process(environment: Mapping[str, str]) -> trio.Process:
    """A process that waits for its first command. Raises OSError."""
    return await trio.lowlevel.open_process(
        # -P: no module is taken from the folder that the node happens to run in.
        [sys.executable, "-P", "-m", "p2pexo.ring.process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environment),
    )


class Spare:
    """Keeps one such process while it is wanted. Whoever takes it owns it."""

    def __init__(self, engine: str, environment: Callable[[], Mapping[str, str]]) -> None:
        """``engine`` names the EngineKit that is imported; ``environment`` is that of all stages, or raises OSError."""
        self._engine = engine
        self._environment = environment
        self._process: trio.Process | None = None
        self._is_wanted = False
        self._was_taken = False
        self._changed = trio.Event()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def want(self, wanted: bool) -> None:
        if wanted != self._is_wanted:
            self._is_wanted = wanted
            self._change()

    def take(self) -> trio.Process | None:
        """The process, for good; None if there is none, or it has ended."""
        process, self._process = self._process, None
        self._was_taken = True
        self._change()
        return process if process is not None and process.poll() is None else None

    async def run(self) -> None:
        """Until cancelled; then the process has ended."""
        try:
            while True:
                changed = self._changed
                if self._is_wanted and self._process is None:
                    await self._start()
                elif not self._is_wanted:
                    await self._end()
                await changed.wait()
        finally:
            with trio.CancelScope(shield=True):
                await self._end()

    async def _start(self) -> None:
        if self._was_taken:
            await trio.sleep(TAKEN_PAUSE_S)
        self._was_taken = False
        try:
            process = await open_stage_process(self._environment())
        except OSError as error:
            _logger.warning("no spare stage process could be started", reason=str(error))
            return
        assert process.stdin is not None
        try:
            await process.stdin.send_all(pack_command(Prepare(self._engine)))
        except trio.BrokenResourceError:
            _logger.warning("a spare stage process has ended", pid=process.pid)
        finally:
            self._process = process  # not before: whoever takes it writes to the same pipe

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                assert pipe is not None
                await pipe.aclose()

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
