"""Requests between two peers of a simulated cluster: deadlines and cancellation reach the other side."""

from collections.abc import Awaitable, Callable
from types import NoneType
from typing import Any

import pytest
import trio

from networking.overlay import Overlay
from networking.requests import MAX_BODY_BYTES, RequestRefusedError
from networking.simulation import SimulatedCluster, open_cluster, simulate
from networking.transport import PeerId, TransportError
from networking.typed_requests import OtherVersionError, RequestKind

WORK = "/test/work"
A, B = PeerId("peer-1"), PeerId("peer-2")


class Worker:
    """A handler that works until it is cancelled, and says when that was."""

    def __init__(self) -> None:
        self.begun_at: float | None = None
        self.cancelled_at: float | None = None

    def serve(self, overlay: Overlay) -> None:
        overlay.serve_requests(WORK, self.work)

    async def work(self, _peer: PeerId, _body: bytes) -> bytes:
        self.begun_at = trio.current_time()
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled_at = trio.current_time()
        return b""

    @property
    def worked_s(self) -> float:
        assert self.begun_at is not None and self.cancelled_at is not None
        return self.cancelled_at - self.begun_at


Story = Callable[[SimulatedCluster], Awaitable[None]]


def run(story: Story, on_start: Callable[[Overlay], None]) -> None:
    async def main() -> None:
        async with open_cluster(2, seed=1, on_start=on_start) as cluster:
            await story(cluster)

    simulate(main, seed=1)


@pytest.mark.parametrize("target", [A, B])
def test_a_request_that_is_cancelled_is_cancelled_at_the_other_side(target: PeerId) -> None:
    worker = Worker()

    async def story(cluster: SimulatedCluster) -> None:
        with trio.move_on_after(1):
            await cluster.node(A).overlay.request(target, WORK, b"", timeout_s=60)
        await cluster.until(lambda: worker.cancelled_at is not None)
        assert worker.worked_s < 1.5

    run(story, worker.serve)


@pytest.mark.parametrize("target", [A, B])
def test_a_deadline_reaches_the_other_side(target: PeerId) -> None:
    worker = Worker()

    async def story(cluster: SimulatedCluster) -> None:
        with pytest.raises(TransportError, match="within 3 s"):
            await cluster.node(A).overlay.request(target, WORK, b"", timeout_s=3)
        await cluster.until(lambda: worker.cancelled_at is not None)
        assert 2.5 < worker.worked_s <= 3.0

    run(story, worker.serve)


def test_a_deadline_counts_also_if_the_asker_can_not_be_heard() -> None:
    worker = Worker()

    async def story(cluster: SimulatedCluster) -> None:
        asker = cluster.node(A)
        cluster.nursery.start_soon(patient, asker.overlay)
        await cluster.until(lambda: worker.begun_at is not None)
        cluster.nursery.start_soon(asker.pause, 4.5)
        await cluster.until(lambda: worker.cancelled_at is not None)
        assert worker.worked_s <= 2.0

    async def patient(overlay: Overlay) -> None:
        with pytest.raises(TransportError):
            await overlay.request(B, WORK, b"", timeout_s=2)

    run(story, worker.serve)


def test_a_request_of_a_peer_that_dies_is_given_up() -> None:
    worker = Worker()

    async def story(cluster: SimulatedCluster) -> None:
        asker = cluster.node(A)
        cluster.nursery.start_soon(until_dead, asker.overlay)
        await cluster.until(lambda: worker.begun_at is not None)
        asker.crash()
        await cluster.until(lambda: worker.cancelled_at is not None)

    async def until_dead(overlay: Overlay) -> None:
        with pytest.raises(TransportError):
            await overlay.request(B, WORK, b"", timeout_s=600)

    run(story, worker.serve)


def test_too_large_a_body_is_refused_before_it_is_sent() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        with pytest.raises(TransportError, match="at most"):
            await cluster.node(A).overlay.request(B, WORK, bytes(MAX_BODY_BYTES + 1), timeout_s=3)

    run(story, Worker().serve)


ADD = RequestKind("/test/add", list[int], int)


def serve_adding(overlay: Overlay) -> None:
    async def add(_peer: PeerId, numbers: list[int]) -> int:
        if not numbers:
            raise RequestRefusedError("nothing to add")
        return sum(numbers)

    ADD.serve(overlay, add)


def test_a_typed_request_carries_values() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        overlay = cluster.node(A).overlay
        assert await ADD.ask(overlay, B, [1, 2, 3], timeout_s=2) == 6
        with pytest.raises(RequestRefusedError, match="nothing to add"):
            await ADD.ask(overlay, B, [], timeout_s=2)

    run(story, serve_adding)


@pytest.mark.parametrize("body", [b"{", b'["one"]', b"\xff"])
def test_a_question_that_makes_no_sense_is_refused(body: bytes) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        with pytest.raises(RequestRefusedError, match="not a question of this version"):
            await cluster.node(A).overlay.request(B, ADD.protocol, body, timeout_s=2)

    run(story, serve_adding)


def test_an_answer_that_makes_no_sense_is_an_error_and_says_whose() -> None:
    async def nonsense(_peer: PeerId, _body: bytes) -> bytes:
        return b'"six"'

    def serve(overlay: Any) -> None:
        overlay.serve_requests(ADD.protocol, nonsense)

    async def story(cluster: SimulatedCluster) -> None:
        with pytest.raises(OtherVersionError, match="peer-2 gave no answer of this version"):
            await ADD.ask(cluster.node(A).overlay, B, [1], timeout_s=2)

    run(story, serve)


def test_a_request_without_question_and_answer_carries_nothing() -> None:
    wave = RequestKind("/test/wave", NoneType, NoneType)
    waved: list[PeerId] = []

    def serve(overlay: Overlay) -> None:
        async def note(peer: PeerId, _question: None) -> None:
            waved.append(peer)

        wave.serve(overlay, note)

    async def story(cluster: SimulatedCluster) -> None:
        await wave.ask(cluster.node(A).overlay, B, None, timeout_s=2)
        assert waved == [A]
        assert await cluster.node(A).overlay.request(B, wave.protocol, b"", timeout_s=2) == b""

    run(story, serve)


def test_a_kind_of_request_may_have_a_coding_of_its_own() -> None:
    def encode(text: str, _cls: type[str]) -> bytes:
        return text.encode("utf-16-le")

    def decode(body: bytes, _cls: type[str]) -> str:
        return body.decode("utf-16-le")

    shout = RequestKind("/test/shout", str, str, encode, decode)

    def serve(overlay: Overlay) -> None:
        async def answer(_peer: PeerId, text: str) -> str:
            return text.upper()

        shout.serve(overlay, answer)

    async def story(cluster: SimulatedCluster) -> None:
        overlay = cluster.node(A).overlay
        assert await shout.ask(overlay, B, "ho", timeout_s=2) == "HO"
        with pytest.raises(RequestRefusedError, match="not a question of this version"):
            await overlay.request(B, shout.protocol, b"odd", timeout_s=2)

    run(story, serve)
