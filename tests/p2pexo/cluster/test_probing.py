"""Probes over a wire that takes its time, in virtual time."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock

from networking.requests import LocalStream
from networking.transport import PeerId, Stream
from p2pexo.cluster.probing import BULK_BYTES, answer_probes, measure_round_trip, measure_throughput

DELAY_S = 0.01
BYTES_PER_S = BULK_BYTES / 2


@frozen
class Wire:
    """One end of a stream. What is sent takes its size and a delay to arrive."""

    _stream: Stream

    @property
    def peer(self) -> PeerId:
        return self._stream.peer

    async def send(self, frame: bytes) -> None:
        await trio.sleep(DELAY_S + len(frame) / BYTES_PER_S)
        await self._stream.send(frame)

    async def receive(self) -> bytes:
        return await self._stream.receive()

    async def finish(self) -> None:
        await self._stream.finish()

    def abort(self) -> None:
        self._stream.abort()


def over_a_wire(story: Callable[[Stream], Awaitable[None]], *, is_free: bool = True) -> None:
    async def main() -> None:
        here, there = (Wire(end) for end in LocalStream.pair(PeerId("other")))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_probes, there, lambda: is_free)
            await story(here)
            here.abort()  # and the other end is done

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_a_round_trip_is_there_and_back() -> None:
    async def story(stream: Stream) -> None:
        assert await measure_round_trip(stream) == pytest.approx(2 * DELAY_S, rel=1e-3)

    over_a_wire(story)


def test_throughput_is_told_without_the_round_trip() -> None:
    async def story(stream: Stream) -> None:
        assert await measure_throughput(stream, 2 * DELAY_S) == pytest.approx(BYTES_PER_S, rel=1e-3)

    over_a_wire(story)


def test_an_unlucky_round_trip_makes_no_endless_throughput() -> None:
    async def story(stream: Stream) -> None:
        measured = await measure_throughput(stream, 1000.0)
        assert measured == pytest.approx(BULK_BYTES / 0.202, rel=1e-3), "a tenth of the 2.02 s that it took"

    over_a_wire(story)


def test_nothing_large_is_sent_to_a_node_that_serves() -> None:
    async def story(stream: Stream) -> None:
        began = trio.current_time()
        assert await measure_throughput(stream, 2 * DELAY_S) is None
        assert trio.current_time() - began == pytest.approx(2 * DELAY_S, rel=1e-3)

    over_a_wire(story, is_free=False)
