"""What a stage process and the node that owns it say to each other over the child's standard input and output.

A frame is a length (u32) and that much JSON. Everything about one request carries the number of its call, which the
supervisor gives out, so that two attempts at one request are never mistaken for each other.
"""

import signal
import struct
from collections.abc import Iterator
from typing import Any, cast

from attrs import define, field, frozen
from cattrs.strategies import configure_tagged_union

from p2pexo.engine.limits import Limits
from p2pexo.engine.speeds import ComputeSpeed
from p2pexo.generation.codec import converter, decode, encode
from p2pexo.generation.events import Event
from p2pexo.generation.request import Request
from p2pexo.ring.activity import StageActivity
from p2pexo.ring.stage import Neighbours, StageSpec, StageStatus
from p2pexo.ring.step_clock import Patience

_LENGTH = struct.Struct("<I")


@frozen
class Prepare:
    """Before ``Start``, if at all: what the process shall import meanwhile."""

    engine: str


@frozen
class Start:
    """The first command but for ``Prepare``: what to load, and by which engine (``module:attribute`` of an ``EngineKit``)."""

    spec: StageSpec
    engine: str
    limits: Limits = field(factory=Limits)
    """How much stage 0 takes on at a time."""
    patience: Patience = field(factory=Patience)
    """How long a step may take."""


@frozen
class Join:
    neighbours: Neighbours


@frozen
class Submit:
    call: int
    request: Request


@frozen
class Cancel:
    call: int


@frozen
class Measure:
    """The first and only command of a process that becomes no stage: how fast does this machine compute?"""

    engine: str
    dense: bool
    """With weights as plain floats, else quantised."""


Command = Prepare | Measure | Start | Join | Submit | Cancel


@frozen
class StatusChanged:
    status: StageStatus


@frozen
class Happened:
    """An event of the request of this call."""

    call: int
    event: Event


@frozen
class Pulse:
    """That it doesn't stand still, and what it is busy with. Comes each ``PULSE_S``, whatever is being computed."""

    overdue: str = ""
    """Why the step that is being computed must hang; empty while it need not."""
    activity: StageActivity | None = None
    """If it has changed since the last pulse."""


@frozen
class Measured:
    """The answer to ``Measure``."""

    speed: ComputeSpeed


PULSE_S = 1.0
"""Raise it and a stopped process is noticed later; lower it and idle ones cost more."""

DUMP_SIGNAL = signal.SIGUSR1
"""Makes a stage process write where all its threads are to its standard error."""

Report = StatusChanged | Happened | Pulse | Measured

configure_tagged_union(Command, converter, tag_name="command")
configure_tagged_union(Report, converter, tag_name="report")


def pack_command(command: Command) -> bytes:
    return _pack(encode(command, Command))


def pack_report(report: Report) -> bytes:
    return _pack(encode(report, Report))


def unpack_command(frame: bytes) -> Command:
    """Raises DecodeError."""
    return cast(Command, decode(frame, cast(Any, Command)))


def unpack_report(frame: bytes) -> Report:
    """Raises DecodeError."""
    return cast(Report, decode(frame, cast(Any, Report)))


def _pack(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


@define
class FrameBuffer:
    """Cuts a stream of bytes into the frames it is made of."""

    _buffer: bytearray = field(factory=bytearray, init=False)

    def feed(self, data: bytes | bytearray) -> Iterator[bytes]:
        """The frames that are complete now."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield frame
