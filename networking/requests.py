"""One question, one answer, over a stream; and streams to oneself, in memory."""

from collections.abc import Awaitable, Callable

import trio

from networking.transport import MAX_FRAME_BYTES, PeerId, Stream, StreamClosedError, TransportError

RequestHandler = Callable[[PeerId, bytes], Awaitable[bytes]]

_ANSWERED, _REFUSED, _FAILED = b"a", b"r", b"f"
MAX_BODY_BYTES = MAX_FRAME_BYTES - 1


class RequestRefusedError(Exception):
    """The handler at the other peer said no; the message is its own."""


async def ask(stream: Stream, body: bytes) -> bytes:
    """Send a request's body and wait for the answer. Raises TransportError and RequestRefusedError."""
    _check_size(body, "a request")
    await stream.send(body)
    await stream.finish()
    reply = await stream.receive()
    status, rest = reply[:1], reply[1:]
    if status == _ANSWERED:
        return rest
    if status == _REFUSED:
        raise RequestRefusedError(rest.decode(errors="replace"))
    raise TransportError(f"peer {stream.peer} failed on the request: {rest.decode(errors='replace')}")


async def answer(stream: Stream, handler: RequestHandler) -> None:
    """Serve one request. What the handler raises is told to the other side; all but a refusal is raised on."""
    body = await stream.receive()
    try:
        reply = await handler(stream.peer, body)
        _check_size(reply, "an answer")
    except RequestRefusedError as error:
        await stream.send(_REFUSED + str(error).encode())
    except Exception as error:
        await stream.send(_FAILED + f"{type(error).__name__}: {error}".encode())
        raise
    else:
        await stream.send(_ANSWERED + reply)
    await stream.finish()


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
