"""What hypercorn 0.18 and quart-trio get wrong between them, mended in one place.

- The application's last ``send`` delivers the disconnect to quart-trio, which cancels the task that is still closing or
  recycling the connection: the last send is shielded here.
- hypercorn shields its writes without a bound, so a client that stops reading holds its task, and the shutdown, for ever.
- hypercorn waits out the idle time of a connection that its client has left already, with an open socket for each.
- A body is buffered whole before its size is looked at (quart 0.23): here it is bounded while it arrives.
- What is no HTTP, or has no Host, hypercorn answers with a status and not a word: here it is an error like any other.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast
from uuid import uuid4

import h11
import trio
from attrs import define, field
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.tcp_server import TCPServer

from p2pexo.api.dialects import dialect_of
from p2pexo.api.errors import TOO_LARGE, ErrorAnswer, RefusedError, answer_to

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 64 << 20
"""Raise it and one client can make the node hold more memory; lower it and requests with many pictures are refused."""

SEND_TIMEOUT_S = 30.0
"""A client that takes no byte for this long is dropped. Lower it and clients on a bad network lose their streams."""

LINGER_S = 10.0
"""How long the rest of a body that is too large is swallowed, so that the client gets to read the refusal."""


class BoundedTCPServer(TCPServer):
    """A connection whose writes end, one way or the other, within SEND_TIMEOUT_S, and that ends with its client's."""

    _is_left = False
    """Whether the client sends nothing more."""

    async def _read_data(self) -> None:
        protocol = cast(Any, self.protocol).protocol
        if isinstance(protocol, H11Protocol):
            setattr(protocol, "_send_error_response", partial(_refuse, protocol))  # noqa: B010 pyright knows it is private
        await super()._read_data()
        self._is_left = True
        await self.idle_task.stop()

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, Updated) and self._is_left:
            return  # another request, which the idle time is for, won't come
        if not isinstance(event, RawData):
            await super().protocol_send(event)
            return
        async with self.send_lock:
            if not await self._send_in_time(event.data):
                await trio.aclose_forcefully(self.stream)
                await self.protocol.handle(Closed())

    async def _send_in_time(self, data: bytes) -> bool:
        try:
            with trio.move_on_after(SEND_TIMEOUT_S, shield=True) as timeout:
                await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        return not timeout.cancelled_caught


async def _refuse(protocol: Any, status: int) -> None:
    """In OpenAI's form: which dialect was meant is not known yet."""
    error = RefusedError(status, "no valid HTTP/1.1 request; it needs a Host header, and whole lines of ASCII")
    answer = answer_to(error)
    headers = [("content-type", "application/json"), ("content-length", str(len(answer.body))), ("connection", "close")]
    for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=answer.body), h11.EndOfMessage()):
        await protocol._send_h11_event(event)


def shield_last_send(application: Application) -> Application:
    async def shielded(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_shielded(message: Message) -> None:
            if message["type"] != "http.response.body" or message.get("more_body", False):
                await send(message)
                return
            with trio.CancelScope(shield=True):
                await send(message)

        await application(scope, receive, send_shielded)

    return shielded


def bound_body(application: Application, limit: int) -> Application:
    """Answers 413 as soon as a body has grown past ``limit`` bytes."""

    async def bounded(scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _BoundedExchange(receive, send, limit, scope.get("path", ""))
        await application(scope, exchange.receive, exchange.send)

    return bounded


@define
class _BoundedExchange:
    """One request and its response; once refused, the application hears a disconnect and its sends go nowhere."""

    _receive: Receive
    _send: Send
    _limit: int
    _path: str
    _received: int = field(default=0, init=False)
    _response_started: bool = field(default=False, init=False)
    _refused: bool = field(default=False, init=False)

    async def send(self, message: Message) -> None:
        if self._refused:
            return
        self._response_started = True
        await self._send(message)

    async def receive(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if self._received <= self._limit or self._response_started:
            return message
        self._refused = True
        await self._refuse(message)
        return {"type": "http.disconnect"}

    async def _refuse(self, message: Message) -> None:
        answer = _too_large(self._limit, self._path)
        with trio.move_on_after(LINGER_S, shield=True):
            await self._send(_start_of(answer))
            await self._send({"type": "http.response.body", "body": answer.body, "more_body": True})
            while message["type"] == "http.request" and message.get("more_body"):
                message = await self._receive()
        with trio.CancelScope(shield=True):
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _too_large(limit: int, path: str) -> ErrorAnswer:
    error = RefusedError(TOO_LARGE, f"the body is larger than {limit >> 20} MiB; send less at once")
    return answer_to(error, dialect_of(path), f"req_{uuid4().hex}")


def _start_of(answer: ErrorAnswer) -> Message:
    headers = {**answer.headers, "content-type": "application/json", "connection": "close"}
    headers["content-length"] = str(len(answer.body))
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http.response.start", "status": answer.status, "headers": pairs}
