"""Streams an answer over HTTP, and decides when its status is known.

Headers are held until the first token or for one second: a failure known by then gets its true status. From then on it
is 200, with comments while nothing else can be said, and a failure becomes the dialect's own error event.
"""

from collections.abc import AsyncGenerator
from typing import Protocol

import trio
from quart import Response

from p2pexo.api import sse
from p2pexo.api.answers import Answer
from p2pexo.generation.errors import from_report
from p2pexo.generation.events import Event

HOLD_S = 1.0
"""Raise it and more failures get their true status, but the client waits longer for a sign of life."""

SILENCE_S = 10.0
"""A comment is sent after this long without a byte. Raise it and impatient proxies give up; lower it and idle streams cost more."""


class WireStream(Protocol):
    """A dialect's view of an answer: what each event is as bytes."""

    def encode(self, event: Event) -> bytes:
        """Empty when the event says nothing to the dialect's clients."""
        ...

    def keep_alive(self) -> bytes:
        """What is sent when there is nothing to tell, at once and after each SILENCE_S. Empty if the dialect has no word for it."""
        ...


async def writes(answer: Answer, wire: WireStream) -> AsyncGenerator[bytes]:
    """An answer's events as they come; those that are ready together share one write. The first write comes at once."""
    yield _encode(wire, answer.take_ready()) or wire.keep_alive()
    answer.wake_at = trio.current_time() + SILENCE_S
    while not answer.ended:
        write = _encode(wire, await answer.receive())
        if write or trio.current_time() >= answer.wake_at:
            yield write or wire.keep_alive()
            answer.wake_at = trio.current_time() + SILENCE_S


def _encode(wire: WireStream, events: list[Event]) -> bytes:
    return b"".join(wire.encode(event) for event in events)


async def held_back(answer: Answer) -> None:
    """Wait until the status of a stream is known, or for HOLD_S. Raises the GenerationError that ended it in time."""
    await answer.hold(HOLD_S)
    if answer.failure is not None:
        raise from_report(answer.failure)


async def stream(answer: Answer, wire: WireStream, media_type: str = sse.MEDIA_TYPE) -> Response:
    """The response to a request with ``stream: true``. Raises the GenerationError that ended the answer in time."""
    await held_back(answer)
    return Response(writes(answer, wire), headers=sse.STREAM_HEADERS, content_type=media_type)
