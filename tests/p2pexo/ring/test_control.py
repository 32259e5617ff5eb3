from hypothesis import given
from hypothesis import strategies as st

from p2pexo.engine.speeds import ComputeSpeed
from p2pexo.generation.events import Delta, Failed, Finished, FinishReason, Usage
from p2pexo.generation.request import Message, Request, Role
from p2pexo.ring.control import (
    Cancel,
    Command,
    FrameBuffer,
    Happened,
    Join,
    Measure,
    Measured,
    Report,
    StatusChanged,
    Submit,
    pack_command,
    pack_report,
    unpack_command,
    unpack_report,
)
from p2pexo.ring.plan import Epoch
from p2pexo.ring.stage import Endpoint, Neighbours, StagePhase, StageStatus

COMMANDS: list[Command] = [
    Join(Neighbours(Epoch(1, 1, "x"))),
    Join(Neighbours(Epoch(1, 2, "x"), "previous", "next", (Endpoint("::1", 5),))),
    Submit(3, Request("r1", "owner/model", (Message(Role.USER, "grüße"),))),
    Cancel(3),
    Measure("some.module:kit", dense=True),
]
REPORTS: list[Report] = [
    StatusChanged(StageStatus(StagePhase.BROKEN, reason="gone", epoch=Epoch(1, 2, "x"))),
    Happened(3, Delta(0, (5,), "a")),
    Happened(3, Finished(FinishReason.STOP, Usage(1, 2))),
    Measured(ComputeSpeed(4e10, 2e12)),
]


@given(st.lists(st.integers(1, 50), min_size=1))
def test_frames_survive_any_cut_of_the_stream(sizes: list[int]):
    stream = b"".join(map(pack_command, COMMANDS))
    buffer, frames, position = FrameBuffer(), [], 0
    for size in [*sizes, len(stream)]:
        frames += buffer.feed(stream[position : position + size])
        position += size
    assert [unpack_command(frame) for frame in frames] == COMMANDS


def test_reports_come_out_as_they_went_in():
    frames = FrameBuffer().feed(b"".join(map(pack_report, REPORTS)))
    assert [unpack_report(frame) for frame in frames] == REPORTS


def test_a_failure_keeps_its_kind():
    from p2pexo.generation.errors import ContextLengthError, from_report

    event = Failed(ContextLengthError("too long").report())
    (frame,) = FrameBuffer().feed(pack_report(Happened(1, event)))
    report = unpack_report(frame)
    assert isinstance(report, Happened) and isinstance(report.event, Failed)
    assert isinstance(from_report(report.event.error), ContextLengthError)
