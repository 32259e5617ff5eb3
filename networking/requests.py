"""One question, one answer, over a stream; and streams to oneself, in memory.

The question carries how long its asker waits: whatever scope of trio's is around the call. The handler at the other side is
cancelled when that time is over, and at once when the asker gives up or its node goes away, so nobody works for nobody.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable

import trio

from networking.transport import MAX_FRAME_BYTES, PeerId, Stream, StreamClosedError, TransportError

logger = logging.getLogger(__name__)

RequestHandler = Callable[[PeerId, bytes], Awaitable[bytes]]

_ANSWERED, _REFUSED, _FAILED = b"a", b"r", b"f"
_PATIENCE_BYTES = 4
"""Milliseconds, so up to 49 days."""
MAX_BODY_BYTES = MAX_FRAME_BYTES - _PATIENCE_BYTES


class RequestRefusedError(Exception):
    """The handler at the other peer said no; the message is its own."""


async def ask(stream: Stream, body: bytes) -> bytes:
    """Send a request's body and wait for the answer. Raises TransportError and RequestRefusedError.

    The caller aborts the stream afterwards, also when it is cancelled: that is how the other side hears of it.
    """
    _check_size(body, "a request")
    patience_s = trio.current_effective_deadline() - trio.current_time()
    await stream.send(_pack(patience_s) + body)
    reply = await stream.receive()
    status, rest = reply[:1], reply[1:]
    if status == _ANSWERED:
        return rest
    if status == _REFUSED:
        raise RequestRefusedError(rest.decode(errors="replace"))
    raise TransportError(f"peer {stream.peer} failed on the request: {rest.decode(errors='replace')}")


async def answer(stream: Stream, handler: RequestHandler) -> None:
    """Serve one request. What the handler raises is told to the other side; all but a refusal is logged, too."""
    patience_s, body = _unpack(await stream.receive())
    failure: TransportError | None = None
    with trio.move_on_after(patience_s) as waited_for:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when_given_up, stream, waited_for)
            try:
                await _answer(stream, handler, body)
            except TransportError as error:  # raised below: from here it would come out as a group
                failure = error
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if waited_for.cancelled_caught:
        logger.debug("peer %s has given up its request", stream.peer)
        stream.abort()
    else:
        await stream.finish()


async def _answer(stream: Stream, handler: RequestHandler, body: bytes) -> None:
    try:
        reply = await handler(stream.peer, body)
        _check_size(reply, "an answer")
    except RequestRefusedError as error:
        await stream.send(_REFUSED + str(error).encode())
    except Exception as error:
        logger.exception("a request of peer %s could not be answered", stream.peer)
        await stream.send(_FAILED + f"{type(error).__name__}: {error}".encode())
    else:
        await stream.send(_ANSWERED + reply)


async def _cancel_when_given_up(stream: Stream, scope: trio.CancelScope) -> None:
    """Whoever asks says nothing more until it has the answer, so whatever comes is the end."""
    with contextlib.suppress(StreamClosedError):
        await stream.receive()
    scope.cancel()


def _pack(patience_s: float) -> bytes:
    milliseconds = min(max(patience_s, 0) * 1000, 256**_PATIENCE_BYTES - 1)
    return int(milliseconds).to_bytes(_PATIENCE_BYTES, "big")


def _unpack(frame: bytes) -> tuple[float, bytes]:
    if len(frame) < _PATIENCE_BYTES:
        raise TransportError(
            f"a request of {len(frame)} bytes; it begins with {_PATIENCE_BYTES} that say how long it waits"
        )
    return int.from_bytes(frame[:_PATIENCE_BYTES], "big") / 1000, frame[_PATIENCE_BYTES:]


def _check_size(body: bytes, what: str) -> None:
    if len(body) > MAX_BODY_BYTES:
        raise TransportError(f"{what} has {len(body)} bytes, at most {MAX_BODY_BYTES} are carried")


class LocalStream:
    """One end of a stream from a peer to itself."""

    def __init__(
        self, me: PeerId, outgoing: trio.MemorySendChannel[bytes], incoming: trio.MemoryReceiveChannel[bytes]
    ) -> None:
        self._me = me
        self._outgoing = outgoing
        self._incoming = incoming

    @classmethod
    def pair(cls, me: PeerId) -> tuple["LocalStream", "LocalStream"]:
        there_in, here_out = _channel()
        here_in, there_out = _channel()
        return cls(me, here_out, here_in), cls(me, there_out, there_in)

    @property
    def peer(self) -> PeerId:
        return self._me

    async def send(self, frame: bytes) -> None:
        try:
            await self._outgoing.send(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise StreamClosedError("the stream to this node itself was closed") from error

    async def receive(self) -> bytes:
        try:
            return await self._incoming.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError) as error:
            raise StreamClosedError("the stream to this node itself was closed") from error

    async def finish(self) -> None:
        self._outgoing.close()
        await trio.lowlevel.checkpoint()

    def abort(self) -> None:
        self._outgoing.close()
        self._incoming.close()


def _channel() -> tuple[trio.MemoryReceiveChannel[bytes], trio.MemorySendChannel[bytes]]:
    # A few frames of room: the flow control that a connection would have.
    send, receive = trio.open_memory_channel[bytes](16)
    return receive, send
