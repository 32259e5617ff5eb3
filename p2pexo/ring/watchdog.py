"""Ends a stage process that stands still or computes for ever. First it writes to its log where it is, if it still can."""

from collections.abc import Callable

import structlog
import trio
from attrs import define, field

from p2pexo.ring.control import DUMP_SIGNAL, PULSE_S
from p2pexo.ring.stage import StagePhase

SILENCE_S = 6.0
"""How long a loaded process may give no sign of life before it is killed. Raise it for machines that are overloaded for long;
lower it and one that was stopped is replaced sooner."""

DUMP_S = 1.0
"""What a condemned process gets to write where it is. Raise it for slow machines; lower it and the ring is formed anew sooner."""

_STIRRING = (StagePhase.LISTENING, StagePhase.LINKING, StagePhase.READY, StagePhase.BROKEN)
"""While it loads, a single call may take long and let nothing else run."""

_logger = structlog.get_logger(__name__)


@define
class Watchdog:
    verdict: str = field(default="", init=False)
    """Why the process was killed; empty if it was not."""
    _heard_at: float = field(default=0.0, init=False)
    _condemned: trio.Event = field(factory=trio.Event, init=False)

    def hear(self) -> None:
        """The process has given a sign of life."""
        self._heard_at = trio.current_time()

    def condemn(self, reason: str) -> None:
        self.verdict = self.verdict or f"{reason}, so it was killed"
        self._condemned.set()

    async def watch(self, process: trio.Process, phase: Callable[[], StagePhase]) -> None:
        """Until there is a reason to kill the process, and it is killed; that ends everything else about it."""
        while not self._condemned.is_set():
            looked_at = trio.current_time()
            with trio.move_on_after(PULSE_S):
                await self._condemned.wait()
            self._look(looked_at, phase())
        _logger.error(
            "a stage process is killed; where it is follows if it can say so", pid=process.pid, reason=self.verdict
        )
        process.send_signal(DUMP_SIGNAL)
        await trio.sleep(DUMP_S)
        process.kill()

    def _look(self, looked_at: float, phase: StagePhase) -> None:
        """Whether this process stood still itself is seen first."""
        now = trio.current_time()
        if now - looked_at > 2 * PULSE_S:
            self._heard_at = now
        if phase in _STIRRING and now - self._heard_at > SILENCE_S:
            self.condemn(f"it gave no sign of life for {SILENCE_S:g} s")
