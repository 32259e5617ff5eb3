"""Asks a process of its own how fast this machine computes: the node itself never holds MLX."""

from collections.abc import Callable, Mapping

import structlog
import trio

from p2pexo.engine.speeds import ComputeSpeed
from p2pexo.generation.codec import DecodeError
from p2pexo.ring.control import FrameBuffer, Measure, Measured, StatusChanged, pack_command, unpack_report
from p2pexo.ring.ending import end_process
from p2pexo.ring.spare import open_stage_process

TIMEOUT_S = 60.0
"""With its imports, and on a machine that does much else, it may take a while. Lower it and such a machine stays unmeasured."""

_PIPE_BYTES = 65536

_logger = structlog.get_logger(__name__)


async def measure_compute(
    engine: str, environment: Callable[[], Mapping[str, str]], *, dense: bool
) -> ComputeSpeed | None:
    """How fast a stage of this engine would compute here; None, and a line in the log, if that can't be told.

    Cancelled, the process is gone at once. ``engine`` names an EngineKit; ``environment`` is that of stages, or raises
    OSError; ``dense``: with weights as plain floats.
    """
    try:
        process = await open_stage_process(environment())
    except OSError as error:
        _logger.warning("this machine's speed can't be measured: no process could be started", reason=str(error))
        return None
    try:
        with trio.move_on_after(TIMEOUT_S):
            return await _ask(process, Measure(engine, dense))
        _logger.warning("this machine's speed was not measured in time", limit_s=TIMEOUT_S)
        return None
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await end_process(process)


async def _ask(process: trio.Process, command: Measure) -> ComputeSpeed | None:
    assert process.stdin and process.stdout and process.stderr
    speed = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_drain, process.stderr)
        try:
            await process.stdin.send_all(pack_command(command))
            await process.stdin.aclose()
            speed = await _hear(process.stdout)
        except (trio.BrokenResourceError, DecodeError) as error:
            _logger.warning("this machine's speed could not be measured", reason=str(error))
        nursery.cancel_scope.cancel()
    return speed


async def _hear(stream: trio.abc.ReceiveStream) -> ComputeSpeed | None:
    frames = FrameBuffer()
    while data := await stream.receive_some(_PIPE_BYTES):
        for frame in frames.feed(data):
            report = unpack_report(frame)
            if isinstance(report, Measured):
                return report.speed
            if isinstance(report, StatusChanged):
                _logger.warning("this machine's speed could not be measured", reason=report.status.reason)
    return None


async def _drain(stream: trio.abc.ReceiveStream) -> None:
    """What it logs is for nobody; but a full pipe would stop it."""
    while await stream.receive_some(_PIPE_BYTES):
        pass
