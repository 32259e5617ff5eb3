"""A stage as a process of its own: ``python -m p2pexo.ring.process``, started by ``supervisor.StageProcess`` alone.

Commands come in by standard input, reports go out by what was standard output. It ends when its owner's pipe ends,
however the owner ended; what its neighbours see then is a closed link.
"""

import faulthandler
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator

# Before the imports that take time: a Ctrl-C in the terminal reaches every process of the group, but what becomes of
# this one is its owner's decision.
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)

import structlog

from p2pexo.ring.activity import ActivityMeter, StageActivity
from p2pexo.ring.child_log import configure_child_log
from p2pexo.ring.control import (
    DUMP_SIGNAL,
    PULSE_S,
    Command,
    FrameBuffer,
    Measure,
    Measured,
    Prepare,
    Pulse,
    Report,
    Start,
    StatusChanged,
    pack_report,
    unpack_command,
)
from p2pexo.ring.engine_errors import explain
from p2pexo.ring.engines import find_kit
from p2pexo.ring.stage import StagePhase, StageStatus
from p2pexo.ring.stage_loop import StageLoop
from p2pexo.ring.step_clock import StepClock

_logger = structlog.get_logger(__name__)


def main() -> None:
    commands, reports = os.dup(0), os.dup(1)
    # Whatever a library prints goes to the log, and never between two frames.
    os.dup2(2, 1)
    configure_child_log()
    faulthandler.register(DUMP_SIGNAL)  # also where the engine hangs without giving the interpreter back
    report = _reporter(reports)
    try:
        _run(_read_commands(commands), report)
    except Exception as error:
        _logger.exception("the stage failed")
        reason = explain(f"{type(error).__name__}: {error}")
        report(StatusChanged(StageStatus(StagePhase.FAILED, reason=reason)))
        # Not sys.exit: threads may be inside the engine, and there is nothing left to tidy up.
        os._exit(1)


def _run(commands: Iterator[Command], report: Callable[[Report], None]) -> None:
    """Be the stage that ``Start`` describes."""
    inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
    start = next(commands, None)
    if isinstance(start, Measure):
        _measure(start, report)
        start = next(commands, None)
    if isinstance(start, Prepare):
        find_kit(start.engine)
        start = next(commands, None)
    if start is None:
        os._exit(0)  # its owner is gone, or has no need of it any more
    if not isinstance(start, Start):
        raise TypeError(f"the first command must be Start and not {type(start).__name__}")
    threading.Thread(target=_forward, args=(commands, inbox), name="commands", daemon=True).start()
    clock, meter = StepClock(start.patience), ActivityMeter()
    threading.Thread(target=_beat, args=(report, clock, meter), name="pulse", daemon=True).start()
    StageLoop(start, inbox, report, clock, meter).run()


def _measure(command: Measure, report: Callable[[Report], None]) -> None:
    kit = find_kit(command.engine)
    if kit.measure is not None:
        report(Measured(kit.measure(dense=command.dense)))


def _forward(commands: Iterator[Command], inbox: queue.SimpleQueue[Command]) -> None:
    """Hand the owner's commands on, and end this process with them."""
    try:
        for command in commands:
            inbox.put(command)
    finally:
        os._exit(0)


def _beat(report: Callable[[Report], None], clock: StepClock, meter: ActivityMeter) -> None:
    told = StageActivity()
    while True:
        now = time.monotonic()
        activity = meter.read(now)
        report(Pulse(clock.overdue(now), activity if activity != told else None))
        told = activity
        time.sleep(PULSE_S)


def _read_commands(descriptor: int) -> Iterator[Command]:
    frames = FrameBuffer()
    while data := os.read(descriptor, 65536):
        for frame in frames.feed(data):
            yield unpack_command(frame)


def _reporter(descriptor: int) -> Callable[[Report], None]:
    """For any thread. If nobody listens any more, the end is near and comes by the other pipe."""
    lock = threading.Lock()
    stream = os.fdopen(descriptor, "wb")

    def report(what: Report) -> None:
        with lock:
            try:
                stream.write(pack_report(what))
                stream.flush()
            except BrokenPipeError:
                os._exit(0)

    return report


if __name__ == "__main__":
    main()
