"""The node's side of a stage process: starts it, hears it, sends requests to it, and sees to its end."""

import contextlib
import math
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager

import structlog
import trio
from attrs import evolve

from p2pexo.engine.limits import Limits
from p2pexo.generation.codec import DecodeError
from p2pexo.generation.errors import RingBrokenError
from p2pexo.generation.events import Event, Failed, Finished
from p2pexo.generation.request import Request
from p2pexo.ring.child_log import parse_line
from p2pexo.ring.control import (
    Cancel,
    Command,
    FrameBuffer,
    Happened,
    Join,
    Pulse,
    Start,
    StatusChanged,
    Submit,
    pack_command,
    unpack_report,
)
from p2pexo.ring.ending import cause_of_death, end_process
from p2pexo.ring.engines import MLX_ENGINE
from p2pexo.ring.spare import Spare, open_stage_process
from p2pexo.ring.stage import Neighbours, StagePhase, StageSpec, StageStatus
from p2pexo.ring.step_clock import Patience
from p2pexo.ring.watchdog import Watchdog

_LAST_LINES = 5
"""Lines of standard error that go into the reason of a failure."""
_PIPE_BYTES = 65536

_logger = structlog.get_logger(__name__)


class StageProcess:
    """One stage of one placement. ``run`` is its life; everything else works while ``run`` does."""

    def __init__(
        self,
        spec: StageSpec,
        *,
        environment: Mapping[str, str] | None = None,
        name: str = "",
        engine: str = MLX_ENGINE,
        limits: Limits | None = None,
        patience: Patience | None = None,
        spare: Spare | None = None,
    ) -> None:
        """``environment`` is all that the process finds in its own, None for what this one has; ``name`` is for the log;
        ``engine`` names an EngineKit; ``limits`` are for stage 0, how much it takes on at a time; ``patience``: how
        long a step may take; ``spare``, of the same engine and environment, gives the process if it has one."""
        self.spec = spec
        self._environment = dict(os.environ if environment is None else environment)
        self._spare = spare
        self._status = StageStatus(StagePhase.STARTING)
        self._status_changed = trio.Event()
        self._process: trio.Process | None = None
        self._has_ended = False
        self._watchdog = Watchdog()
        self._commands, self._outbox = trio.open_memory_channel[Command](math.inf)
        self._commands.send_nowait(Start(spec, engine, limits or Limits(), patience or Patience()))
        self._calls: dict[int, trio.MemorySendChannel[Event]] = {}
        self._next_call = 1
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._log = _logger.bind(
            stage=name or f"{spec.placement.id}/{spec.rank}", placement=spec.placement.id, model=spec.placement.model
        )

    @property
    def status(self) -> StageStatus:
        return self._status

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def statuses(self) -> AsyncIterator[StageStatus]:
        """The status now, then the newest after each change; ends with the process. Slow readers skip some."""
        shown: StageStatus | None = None
        while True:
            changed = self._status_changed
            if self._status is not shown:
                shown = self._status
                yield shown
            elif self._has_ended:
                return
            else:
                await changed.wait()

    async def join(self, neighbours: Neighbours) -> None:
        """Tell the stage its place in the ring of an epoch; ``status`` shows when it is linked."""
        self._commands.send_nowait(Join(neighbours))
        await trio.lowlevel.checkpoint()

    @asynccontextmanager
    async def generate(self, request: Request) -> AsyncGenerator[trio.MemoryReceiveChannel[Event]]:
        """The events of a request, on stage 0. Leaving early cancels it. Whatever goes wrong arrives as ``Failed``."""
        call, self._next_call = self._next_call, self._next_call + 1
        sender, events = trio.open_memory_channel[Event](math.inf)
        self._calls[call] = sender
        if self._has_ended:
            self._deliver(call, self._death())
        else:
            self._commands.send_nowait(Submit(call, request))
        try:
            yield events
        finally:
            events.close()
            if self._calls.pop(call, None) is not None:
                self._commands.send_nowait(Cancel(call))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the child process: until it ends, which leaves the status FAILED, or until cancelled, which stops it."""
        try:
            self._process = process = await self._open()
        except OSError as error:
            self._end(f"the stage process could not be started: {error}")
            task_status.started()
            return
        task_status.started()
        self._log.info("stage process started", pid=process.pid)
        reason = "it was stopped"
        try:
            await self._attend(process)
            reason = ""
        finally:
            with trio.CancelScope(shield=True):
                await end_process(process)
            self._end(reason or self._reason_of_death(process))

    async def _open(self) -> trio.Process:
        process = self._spare.take() if self._spare else None
        return process or await open_stage_process(self._environment)

    async def _attend(self, process: trio.Process) -> None:
        """Serve the child until it has no more to say."""
        assert process.stdin and process.stdout and process.stderr
        logged = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_commands, process.stdin)
            nursery.start_soon(self._log_lines, process.stderr, logged)
            nursery.start_soon(self._watchdog.watch, process, lambda: self._status.phase)
            await self._hear(process.stdout)
            # A compiler that the child started may hold its standard error open for longer than it lives.
            with trio.move_on_after(1.0):
                await logged.wait()
            nursery.cancel_scope.cancel()

    async def _send_commands(self, stream: trio.abc.SendStream) -> None:
        async for command in self._outbox:
            try:
                await stream.send_all(pack_command(command))
            except trio.BrokenResourceError:
                return  # it has died, which is noticed where it is heard

    async def _hear(self, stream: trio.abc.ReceiveStream) -> None:
        frames = FrameBuffer()
        while data := await stream.receive_some(_PIPE_BYTES):
            self._watchdog.hear()
            for frame in frames.feed(data):
                try:
                    report = unpack_report(frame)
                except DecodeError as error:
                    self._log.error(
                        "a stage process sent what can't be understood; it will be stopped", error=str(error)
                    )
                    return
                if isinstance(report, StatusChanged):
                    self._set_status(evolve(report.status, activity=self._status.activity))
                elif isinstance(report, Happened):
                    self._deliver(report.call, report.event)
                elif isinstance(report, Pulse):
                    self._feel(report)

    def _feel(self, pulse: Pulse) -> None:
        if pulse.overdue:
            self._watchdog.condemn(pulse.overdue)
        if pulse.activity is not None:
            self._set_status(evolve(self._status, activity=pulse.activity))

    async def _log_lines(self, stream: trio.abc.ReceiveStream, logged: trio.Event) -> None:
        rest = b""
        while data := await stream.receive_some(_PIPE_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._log_line(line)
            if len(rest) > _PIPE_BYTES:
                self._log_line(rest)
                rest = b""
        self._log_line(rest)
        logged.set()

    def _log_line(self, line: bytes) -> None:
        if text := line.decode(errors="replace").rstrip():
            record = parse_line(text)
            self._last_lines.append(record.event)
            self._log.log(record.level, record.event, **record.fields)

    def _set_status(self, status: StageStatus) -> None:
        if (status.phase, status.reason) != (self._status.phase, self._status.reason):
            self._log.info("stage status", phase=str(status.phase), reason=status.reason)
        self._status = status
        self._status_changed.set()
        self._status_changed = trio.Event()

    def _deliver(self, call: int, event: Event) -> None:
        if (events := self._calls.get(call)) is None:
            return  # cancelled meanwhile
        with contextlib.suppress(trio.BrokenResourceError):  # closed by its reader
            events.send_nowait(event)
        if isinstance(event, Finished | Failed):
            del self._calls[call]
            events.close()

    def _end(self, reason: str) -> None:
        """The child is gone: say so in the status, and to everyone who waits for its events."""
        self._has_ended = True
        self._set_status(evolve(self._status, phase=StagePhase.FAILED, reason=reason))
        for call in list(self._calls):
            self._deliver(call, self._death())

    def _death(self) -> Failed:
        return Failed(RingBrokenError(f"a stage process of the ring has ended: {self._status.reason}").report())

    def _reason_of_death(self, process: trio.Process) -> str:
        """The watchdog's or the child's own word for it if there is one, else how it ended and what it said last."""
        if self._watchdog.verdict or self._status.phase is StagePhase.FAILED:
            return self._watchdog.verdict or self._status.reason
        return cause_of_death(process.returncode or 0, tuple(self._last_lines))
