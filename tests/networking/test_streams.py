from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest
import trio
import trio.testing
from libp2p.network.stream.exceptions import StreamEOF, StreamReset

from networking.streams import SMALL_FRAME, FramedStream, Room
from networking.transport import MAX_FRAME_BYTES, PeerId, StreamClosedError

PEER = PeerId("a peer")


class Pipe:
    """A byte stream whose other end the test holds: what comes in is scripted, what goes out is kept."""

    def __init__(self, *incoming: bytes) -> None:
        self.incoming = list(incoming)
        self.outgoing = bytearray()
        self.closed = False
        self.was_reset = False
        self.more = trio.Event()
        self.blocked = False

    async def read(self, n: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        if self.was_reset:
            raise StreamReset
        if not self.incoming:
            await self.more.wait()
            raise StreamEOF
        return self.incoming.pop(0)

    async def write(self, data: bytes) -> None:
        if self.was_reset:
            raise StreamReset
        for byte in data:
            await trio.lowlevel.checkpoint()
            self.outgoing.append(byte)
            if self.blocked:
                await trio.sleep_forever()

    async def close_write(self) -> None:
        await trio.lowlevel.checkpoint()
        self.closed = True

    async def reset(self) -> None:
        await trio.lowlevel.checkpoint()
        self.was_reset = True

    def end(self) -> None:
        self.more.set()


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


class Framed(Protocol):
    def __call__(self, pipe: Pipe, room: Room | None = None) -> FramedStream: ...


def run(test: Callable[[Framed], Awaitable[None]]) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            with trio.fail_after(5):
                await test(lambda pipe, room=None: FramedStream(PEER, pipe, nursery.start_soon, room))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_frames_arrive_whole_however_they_were_cut() -> None:
    async def test(framed: Framed) -> None:
        sent = frame(b"one") + frame(b"") + frame(b"three")
        stream = framed(Pipe(*(bytes([byte]) for byte in sent[:9]), sent[9:]))
        assert [await stream.receive() for _ in range(3)] == [b"one", b"", b"three"]

    run(test)


def test_a_frame_goes_out_with_its_length() -> None:
    async def test(framed: Framed) -> None:
        pipe = Pipe()
        await framed(pipe).send(b"hello")
        assert bytes(pipe.outgoing) == frame(b"hello")

    run(test)


def test_frames_of_several_senders_do_not_mix() -> None:
    async def test(framed: Framed) -> None:
        pipe = Pipe()
        stream = framed(pipe)
        async with trio.open_nursery() as nursery:
            for letter in (b"a", b"b", b"c"):
                nursery.start_soon(stream.send, letter * 50)
        reader = framed(Pipe(bytes(pipe.outgoing)))
        assert sorted([await reader.receive() for _ in range(3)]) == [b"a" * 50, b"b" * 50, b"c" * 50]

    run(test)


def test_a_frame_that_is_too_large_is_not_sent() -> None:
    async def test(framed: Framed) -> None:
        pipe = Pipe()
        with pytest.raises(ValueError, match="at most"):
            await framed(pipe).send(bytes(MAX_FRAME_BYTES + 1))
        assert not pipe.outgoing

    run(test)


def test_an_announced_frame_that_is_too_large_drops_the_stream() -> None:
    async def test(framed: Framed) -> None:
        pipe = Pipe((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))
        with pytest.raises(StreamClosedError, match="announced a frame"):
            await framed(pipe).receive()
        await trio.testing.wait_all_tasks_blocked()
        assert pipe.was_reset

    run(test)


def test_the_end_is_told_apart_from_an_end_within_a_frame() -> None:
    async def test(framed: Framed) -> None:
        whole, cut = Pipe(frame(b"last")), Pipe(frame(b"last")[:-1])
        whole.end()
        cut.end()
        stream = framed(whole)
        assert await stream.receive() == b"last"
        with pytest.raises(StreamClosedError) as ended:
            await stream.receive()
        assert "middle" not in str(ended.value)
        with pytest.raises(StreamClosedError, match="in the middle of a frame"):
            await framed(cut).receive()

    run(test)


def test_a_cancelled_receive_loses_nothing() -> None:
    async def test(framed: Framed) -> None:
        pipe = Pipe(frame(b"late")[:6])
        stream = framed(pipe)
        with trio.move_on_after(1):
            await stream.receive()
        pipe.incoming.append(frame(b"late")[6:])
        assert await stream.receive() == b"late"

    run(test)


def test_a_send_cancelled_within_its_frame_drops_the_stream() -> None:
    async def test(framed: Framed) -> None:
        pipe = Pipe()
        pipe.blocked = True
        stream = framed(pipe)
        with trio.move_on_after(1):
            await stream.send(b"never whole")
        with pytest.raises(StreamClosedError, match="dropped on this side"):
            await stream.send(b"next")
        await trio.testing.wait_all_tasks_blocked()
        assert pipe.was_reset

    run(test)


def test_a_send_cancelled_while_it_waits_its_turn_does_no_harm() -> None:
    async def test(framed: Framed) -> None:
        pipe = Pipe()
        stream = framed(pipe)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send, b"first")
            await trio.testing.wait_all_tasks_blocked(0.0)
            with trio.CancelScope() as scope:
                scope.cancel()
                await stream.send(b"second")
        await stream.send(b"third")
        assert bytes(pipe.outgoing) == frame(b"first") + frame(b"third")

    run(test)


def test_an_abort_wakes_a_waiting_receiver_and_may_come_twice() -> None:
    async def test(framed: Framed) -> None:
        pipe = Pipe()
        stream = framed(pipe)

        async def receive() -> None:
            with pytest.raises(StreamClosedError, match="dropped on this side"):
                await stream.receive()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            stream.abort()
            stream.abort()
        await trio.testing.wait_all_tasks_blocked()
        assert pipe.was_reset

    run(test)


def test_receiving_goes_on_after_finish() -> None:
    async def test(framed: Framed) -> None:
        pipe = Pipe(frame(b"answer"))
        stream = framed(pipe)
        await stream.finish()
        assert pipe.closed
        assert await stream.receive() == b"answer"
        with pytest.raises(StreamClosedError, match="finished on this side"):
            await stream.send(b"more")

    run(test)


def test_lingering_waits_for_the_peer_before_it_resets() -> None:
    async def test(framed: Framed) -> None:
        pipe = Pipe(frame(b"unread"))
        stream = framed(pipe)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.linger)
            await trio.testing.wait_all_tasks_blocked()
            assert pipe.closed
            assert not pipe.was_reset
            pipe.end()
        await trio.testing.wait_all_tasks_blocked()
        assert pipe.was_reset

    run(test)


def test_lingering_gives_up_on_a_peer_that_never_finishes() -> None:
    async def main() -> None:
        pipe = Pipe()
        async with trio.open_nursery() as nursery:
            await FramedStream(PEER, pipe, nursery.start_soon).linger()
        assert pipe.was_reset

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_large_frames_wait_for_room_and_small_ones_do_not() -> None:
    async def test(framed: Framed) -> None:
        room = Room(SMALL_FRAME * 2)
        large = frame(bytes(SMALL_FRAME + 1))
        first, second, third = (framed(Pipe(each), room) for each in (large[:100], large, frame(b"small")))
        with trio.move_on_after(1):
            await first.receive()  # given up in the middle, so it is still in the way
        async with trio.open_nursery() as nursery:
            arrived = trio.Event()
            nursery.start_soon(receive_and_tell, second, arrived)
            await trio.testing.wait_all_tasks_blocked()
            assert await third.receive() == b"small"
            assert not arrived.is_set()
            first.abort()
            await arrived.wait()

    run(test)


def test_a_stream_that_ends_in_the_middle_of_a_large_frame_gives_its_room_back() -> None:
    async def test(framed: Framed) -> None:
        room, pipe = Room(SMALL_FRAME * 2), Pipe(frame(bytes(SMALL_FRAME + 1))[:100])
        pipe.end()
        with pytest.raises(StreamClosedError, match="in the middle of a frame"):
            await framed(pipe, room).receive()
        assert len(await framed(Pipe(frame(bytes(SMALL_FRAME + 1))), room).receive()) == SMALL_FRAME + 1

    run(test)


def test_whoever_waits_for_room_is_woken_by_an_abort_and_takes_none() -> None:
    async def test(framed: Framed) -> None:
        room, large = Room(SMALL_FRAME * 2), frame(bytes(SMALL_FRAME + 1))
        holding, waiting = framed(Pipe(large[:100]), room), framed(Pipe(large), room)
        with trio.move_on_after(1):
            await holding.receive()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(abort_when_blocked, waiting)
            with pytest.raises(StreamClosedError, match="dropped on this side"):
                await waiting.receive()
        holding.abort()
        assert await framed(Pipe(large), room).receive()

    run(test)


async def receive_and_tell(stream: FramedStream, arrived: trio.Event) -> None:
    await stream.receive()
    arrived.set()


async def abort_when_blocked(stream: FramedStream) -> None:
    await trio.testing.wait_all_tasks_blocked()
    stream.abort()
