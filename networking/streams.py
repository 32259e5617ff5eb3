"""Frames over the byte streams of libp2p: a length of four bytes, then the frame.

Whoever reads no more lets its peer wait: libp2p takes ``repairs.MAX_WINDOW`` bytes per stream ahead of the reader, and the rest
of a large frame is only taken while somebody reads, as many at a time on one connection as ``ROOM_FOR_FRAMES`` holds.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio
from libp2p.exceptions import BaseLibp2pError

from networking.transport import MAX_FRAME_BYTES, PeerId, StreamClosedError

logger = logging.getLogger(__name__)

LENGTH_BYTES = 4

READ_BYTES = 1 << 20
"""The most that is taken from the muxer at once. Lower it and bulk data costs more turns of the scheduler."""

ROOM_FOR_FRAMES = 64 << 20
"""Bytes of large frames that one connection may be receiving at a time. Lower it and large frames wait for one another; raise it
and a peer that sends many can make us hold more memory."""

SMALL_FRAME = 64 << 10
"""Frames up to this size never wait for room. Raise it and many streams of one peer take more memory."""

LINGER = 5.0
"""Seconds that a served stream waits for the peer to finish, too. Lower it and a slow peer may lose the last frames."""

RESET_LIMIT = 5.0


class ByteStream(Protocol):
    """What is needed of a libp2p stream."""

    async def read(self, n: int | None = None) -> bytes: ...
    async def write(self, data: bytes) -> None: ...
    async def close_write(self) -> None: ...
    async def reset(self) -> None: ...


Spawn = Callable[[Callable[[], Awaitable[None]]], None]
"""Run something in a task that outlives the caller; used for saying goodbye to the peer."""


class Room:
    """The bytes that a connection may use for large frames. Who needs more than is left waits."""

    def __init__(self, size: int = ROOM_FOR_FRAMES) -> None:
        self._left = size
        self._waiting = trio.lowlevel.ParkingLot()

    async def take(self, size: int) -> None:
        while self._left < size:
            await self._waiting.park()
        self._left -= size

    def give_back(self, size: int) -> None:
        self._left += size
        self._waiting.unpark_all()


class FramedStream:
    """A ``networking.transport.Stream``. One task may send while another receives; several senders take turns.

    A cancelled ``receive`` loses nothing. A ``send`` cancelled within its frame drops the stream, never the connection:
    half a frame can't be taken back.
    """

    def __init__(self, peer: PeerId, stream: ByteStream, spawn: Spawn, room: Room | None = None) -> None:
        """``room``: that of the stream's connection; without, of its own."""
        self._peer = peer
        self._stream = stream
        self._spawn = spawn
        self._room = room or Room()
        self._room_taken = 0
        self._received = bytearray()
        self._reading = trio.CancelScope()
        self._sending = trio.Lock()
        self._finished = False
        self._aborted = False

    @property
    def peer(self) -> PeerId:
        return self._peer

    async def send(self, frame: bytes) -> None:
        if len(frame) > MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {len(frame)} bytes; at most {MAX_FRAME_BYTES} go to {self._peer}")
        async with self._sending:
            self._refuse_if_over()
            try:
                await self._stream.write(len(frame).to_bytes(LENGTH_BYTES, "big") + frame)
            except trio.Cancelled:
                self.abort()
                raise
            except BaseLibp2pError as error:
                raise self._closed("took no more", error) from error

    async def receive(self) -> bytes:
        await self._buffer(LENGTH_BYTES)
        length = LENGTH_BYTES + int.from_bytes(self._received[:LENGTH_BYTES], "big")
        if length > LENGTH_BYTES + MAX_FRAME_BYTES:
            self.abort()
            raise StreamClosedError(f"{self._peer} announced a frame of {length} bytes; at most {MAX_FRAME_BYTES}")
        await self._take_room(length)
        await self._buffer(length)
        with memoryview(self._received) as view:
            frame = bytes(view[LENGTH_BYTES:length])
        del self._received[:length]
        self._give_back_room()
        return frame

    async def finish(self) -> None:
        async with self._sending:
            if self._finished or self._aborted:
                return
            self._finished = True
            try:
                await self._stream.close_write()
            except BaseLibp2pError as error:
                logger.debug("finishing a stream to %s: %r", self._peer, error)

    def abort(self) -> None:
        if not self._aborted:
            self._aborted = True
            self._received.clear()
            self._give_back_room()
            self._reading.cancel()  # a reset alone doesn't wake our own reader
            self._spawn(self._reset)

    async def linger(self) -> None:
        """Finish, and let the peer finish; what it still sends is dropped. At most LINGER seconds, then abort.

        A reset at once would take from the peer what is on its way.
        """
        with trio.move_on_after(LINGER):
            await self.finish()
            while not self._aborted:
                self._received.clear()
                try:
                    await self._fill()
                except StreamClosedError:
                    break
        self.abort()

    async def _take_room(self, length: int) -> None:
        """Kept until the frame is whole, also if the receiver is cancelled in between."""
        if self._room_taken or length <= SMALL_FRAME:
            return
        with trio.CancelScope() as self._reading:
            await self._room.take(length)
            self._room_taken = length
        if self._aborted:
            self._give_back_room()
            raise StreamClosedError(f"the stream to {self._peer} was dropped on this side")

    def _give_back_room(self) -> None:
        self._room.give_back(self._room_taken)
        self._room_taken = 0

    async def _buffer(self, size: int) -> None:
        while len(self._received) < size:
            await self._fill()

    async def _fill(self) -> None:
        data = b""
        with trio.CancelScope() as self._reading:
            if not self._aborted:
                data = await self._read()
        if self._aborted:
            raise StreamClosedError(f"the stream to {self._peer} was dropped on this side")
        self._received += data

    async def _read(self) -> bytes:
        try:
            data = await self._stream.read(READ_BYTES)
        except BaseLibp2pError as error:
            if self._finished:
                self.abort()  # both sides are done: frees what libp2p still holds for the stream
            self._give_back_room()
            raise self._closed("sends no more", error) from error
        if not data:
            self._give_back_room()
            raise self._closed("sends no more", None)
        return data

    async def _reset(self) -> None:
        with trio.move_on_after(RESET_LIMIT):
            try:
                await self._stream.reset()
            except BaseLibp2pError as error:
                logger.debug("dropping a stream to %s: %r", self._peer, error)

    def _refuse_if_over(self) -> None:
        if self._aborted:
            raise StreamClosedError(f"the stream to {self._peer} was dropped on this side")
        if self._finished:
            raise StreamClosedError(f"the stream to {self._peer} was finished on this side")

    def _closed(self, what: str, cause: Exception | None) -> StreamClosedError:
        middle = ", in the middle of a frame" if self._received and what == "sends no more" else ""
        reason = f" ({type(cause).__name__})" if cause is not None else ""
        return StreamClosedError(f"{self._peer} {what}{middle}{reason}")
