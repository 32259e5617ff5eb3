"""How fast the way to another node is, measured on a stream of the overlay; and the other end of that.

A probe is a frame that comes back as its first byte: a small one tells the round trip, a large one what goes through.
"""

from collections.abc import Callable

import trio

from networking.transport import Stream, StreamClosedError

PROBE_PROTOCOL = "/p2pexo/probe/1"

PINGS = 5
"""The fastest counts. Raise it and a busy moment disturbs less."""

BULK_BYTES = 1 << 20
"""Raise it and fast links are measured more exactly; lower it and it disturbs others less."""

_PING, _MAY_I, _BULK = b"p", b"?", b"b"
_YES, _NO = b"y", b"n"


async def measure_round_trip(stream: Stream) -> float:
    """Seconds."""
    times: list[float] = []
    for _ in range(PINGS):
        began = trio.current_time()
        await _exchange(stream, _PING)
        times.append(trio.current_time() - began)
    return min(times)


async def measure_throughput(stream: Stream, round_trip_s: float) -> float | None:
    """Bytes per second in this direction; None if the other node has better things to do now."""
    if await _exchange(stream, _MAY_I) != _YES:
        return None
    began = trio.current_time()
    await _exchange(stream, _BULK * BULK_BYTES)
    took_s = trio.current_time() - began
    return BULK_BYTES / max(took_s - round_trip_s, took_s / 10)  # the pings may have been unlucky, all of them


async def answer_probes(stream: Stream, may_take_bulk: Callable[[], bool]) -> None:
    """Until the asker has no more."""
    while True:
        try:
            frame = await stream.receive()
            await stream.send((_YES if may_take_bulk() else _NO) if frame == _MAY_I else frame[:1])
        except StreamClosedError:
            return


async def _exchange(stream: Stream, frame: bytes) -> bytes:
    await stream.send(frame)
    return await stream.receive()
