"""What stages say to each other: a fixed prefix, a small JSON header, and the raw bytes of the hidden states.

::

    magic "p2px" | kind u8 | 3 spare | header length u32 | payload length u64 | header | payload

A step travels from stage to stage; what failed on the way travels with what is left of it, so that every stage still
sees each batch once and in order. The payload is never copied or looked into here.
"""

import struct
from collections.abc import Callable
from enum import IntEnum

from attrs import evolve, field, fields, frozen

from p2pexo.engine.batch import Batch, BatchResult, SequenceFailure
from p2pexo.generation.codec import DecodeError, decode, encode
from p2pexo.ring.plan import Epoch

PROTOCOL_VERSION = 1
MAX_HEADER_BYTES = 16 * 1024 * 1024
MAX_PAYLOAD_BYTES = 1024**3
"""Raise it and a neighbour that errs can make us hold more memory; it bounds rows × hidden size of one batch."""

_MAGIC = b"p2px"
_PREFIX = struct.Struct("<4sB3xIQ")


class ProtocolError(ValueError):
    """The bytes are no message of this protocol."""


class _Kind(IntEnum):
    HELLO = 1
    WELCOME = 2
    REFUSAL = 3
    HEARTBEAT = 4
    STEP = 5
    RESULT = 6


@frozen
class Hello:
    """The first message on a link, from the stage that dialled. The other side expects exactly one such hello."""

    placement: str
    epoch: Epoch
    rank: int
    stages: int
    dtype: str
    """Of the hidden states on the wire."""
    version: int = PROTOCOL_VERSION

    def mismatch(self, expected: "Hello") -> str | None:
        """A line that names the first field that is not as expected, or None."""
        for attribute in fields(Hello):
            ours, theirs = getattr(expected, attribute.name), getattr(self, attribute.name)
            if ours != theirs:
                return f"{attribute.name} is {theirs} there but should be {ours}"
        return None


@frozen
class Welcome:
    """The answer to a hello that fits."""


@frozen
class Refusal:
    """The answer to a hello that doesn't."""

    reason: str


@frozen
class Heartbeat:
    """Nothing to say, but still here."""


@frozen
class Step:
    """A batch on its way from stage to stage, with the hidden states of its entries as payload."""

    batch: Batch
    failures: tuple[SequenceFailure, ...] = ()
    """Sequences that were taken out of the batch on the way."""
    stage_s: tuple[float, ...] = ()
    """Seconds that it took on each stage so far."""

    def without_entries(self, reason: str) -> "Step":
        """What goes on round the ring when a stage could not compute the entries: the releases, and the bad news."""
        failures = tuple(SequenceFailure(each.sequence, reason) for each in self.batch.entries)
        return evolve(self, batch=evolve(self.batch, entries=()), failures=self.failures + failures)


Message = Hello | Welcome | Refusal | Heartbeat | Step | BatchResult

_KINDS: dict[type[Message], _Kind] = {
    Hello: _Kind.HELLO,
    Welcome: _Kind.WELCOME,
    Refusal: _Kind.REFUSAL,
    Heartbeat: _Kind.HEARTBEAT,
    Step: _Kind.STEP,
    BatchResult: _Kind.RESULT,
}
_CLASSES: dict[int, type[Message]] = {kind: cls for cls, kind in _KINDS.items()}


@frozen
class Frame:
    message: Message
    payload: memoryview = field(default=memoryview(b""), repr=False)


def pack(message: Message, payload_bytes: int = 0) -> bytes:
    """Prefix and header of a message; the payload follows them on the wire as it is. About 3 µs for one sequence."""
    header = encode(message)
    return _PREFIX.pack(_MAGIC, _KINDS[type(message)], len(header), payload_bytes) + header


def read_frame(read: Callable[[int], memoryview]) -> Frame:
    """The next frame from ``read``, which returns exactly as many bytes as asked. Raises ProtocolError."""
    magic, kind, header_bytes, payload_bytes = _PREFIX.unpack(read(_PREFIX.size))
    if magic != _MAGIC:
        raise ProtocolError(f"a frame begins with {magic!r} and not with {_MAGIC!r}")
    if header_bytes > MAX_HEADER_BYTES or payload_bytes > MAX_PAYLOAD_BYTES:
        raise ProtocolError(f"a frame claims {header_bytes} + {payload_bytes} bytes, more than is allowed")
    if kind not in _CLASSES:
        raise ProtocolError(f"a frame is of the unknown kind {kind}")
    try:
        message = decode(bytes(read(header_bytes)), _CLASSES[kind])
    except DecodeError as error:
        raise ProtocolError(f"the header of a {_Kind(kind).name} frame is wrong: {error}") from error
    return Frame(message, read(payload_bytes))
