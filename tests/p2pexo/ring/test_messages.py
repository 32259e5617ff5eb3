import struct

import pytest

from p2pexo.engine.batch import Batch, BatchResult, Drawing, Entry, Sampled, SequenceFailure
from p2pexo.engine.grammar import GrammarKind, GrammarSpec
from p2pexo.generation.request import Sampling
from p2pexo.ring.messages import (
    Frame,
    Heartbeat,
    Hello,
    Message,
    ProtocolError,
    Refusal,
    Step,
    Welcome,
    pack,
    read_frame,
)
from p2pexo.ring.plan import Epoch

HELLO = Hello("p1", Epoch(1, 2, "leader"), 0, 3, "float32")
DRAWING = Drawing(Sampling(seed=1), 2, GrammarSpec(GrammarKind.JSON_SCHEMA, '{"type": "object"}'), 5)
BATCH = Batch(7, (Entry(3, (5, 6), 0, None, DRAWING), Entry(4, (9,), 12, 3)), release=(1, 2))


def read(data: bytes) -> Frame:
    position = 0

    def take(size: int) -> memoryview:
        nonlocal position
        position += size
        return memoryview(data)[position - size : position]

    return read_frame(take)


@pytest.mark.parametrize(
    "message",
    [
        HELLO,
        Welcome(),
        Refusal("no"),
        Heartbeat(),
        Step(BATCH),
        Step(BATCH, (SequenceFailure(8, "bad"),)),
        BatchResult(7, (Sampled(3, 99), Sampled(4, 7, -0.5, ((8, -0.25), (7, -0.5)))), (SequenceFailure(4, "bad"),)),
    ],
)
def test_a_message_comes_out_as_it_went_in(message: Message):
    assert read(pack(message)).message == message


def test_the_payload_follows_untouched():
    payload = bytes(range(256))
    assert bytes(read(pack(Step(BATCH), len(payload)) + payload).payload) == payload


@pytest.mark.parametrize(
    ("prefix", "complaint"),
    [
        (struct.pack("<4sB3xIQ", b"HTTP", 1, 0, 0), "begins with b'HTTP'"),
        (struct.pack("<4sB3xIQ", b"p2px", 99, 0, 0), "unknown kind 99"),
        (struct.pack("<4sB3xIQ", b"p2px", 5, 0, 2**60), "more than is allowed"),
        (struct.pack("<4sB3xIQ", b"p2px", 5, 2, 0) + b"{}", "STEP frame is wrong"),
    ],
)
def test_bytes_that_are_no_message_are_refused_with_what_is_wrong(prefix: bytes, complaint: str):
    with pytest.raises(ProtocolError, match=complaint):
        read(prefix)


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (Hello("p2", Epoch(1, 2, "leader"), 0, 3, "float32"), "placement is p2 there but should be p1"),
        (Hello("p1", Epoch(1, 3, "leader"), 0, 3, "float32"), "epoch is 1.3.leader there but should be 1.2.leader"),
        (Hello("p1", Epoch(1, 2, "leader"), 1, 3, "float32"), "rank is 1 there but should be 0"),
        (Hello("p1", Epoch(1, 2, "leader"), 0, 4, "float32"), "stages is 4 there but should be 3"),
        (Hello("p1", Epoch(1, 2, "leader"), 0, 3, "bfloat16"), "dtype is bfloat16 there but should be float32"),
        (Hello("p1", Epoch(1, 2, "leader"), 0, 3, "float32", 9), "version is 9 there but should be 1"),
    ],
)
def test_a_hello_that_does_not_fit_names_the_field(other: Hello, line: str):
    assert other.mismatch(HELLO) == line
    assert HELLO.mismatch(HELLO) is None


def test_what_is_left_of_a_failed_batch_still_releases_and_tells():
    left = Step(BATCH, (SequenceFailure(8, "before"),)).without_entries("broke")
    assert left.batch == Batch(7, (), (1, 2))
    assert left.failures == (SequenceFailure(8, "before"), SequenceFailure(3, "broke"), SequenceFailure(4, "broke"))
