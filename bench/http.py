"""What our HTTP path costs: CPU per streamed token, from a generator's event to the socket, against a bare Quart-Trio stream.

The bare application yields the very bytes that ours has made of the events, one write for each token, on the server as it
comes. Both pace their tokens alike and are asked in turns. The clients run in threads, whose time isn't counted.
"""

# The types of hypercorn's applications are partly unknown.
# pyright: reportUnknownVariableType=false

import socket
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from statistics import median
from typing import Any, cast

import trio
from attrs import frozen
from harness import keep_quiet, print_figures
from hypercorn.config import Config
from hypercorn.trio import serve as serve_bare
from quart import Response
from quart_trio import QuartTrio

from p2pexo.api.app import create_app
from p2pexo.api.backend import Cluster
from p2pexo.api.chat_wire import ChatStream, Envelope
from p2pexo.api.server import serve
from p2pexo.generation.events import Delta, Event, Finished, FinishReason, Started, Usage
from p2pexo.generation.request import Request
from p2pexo.models.card import Card

ROUNDS = 9
"""Raise it for steadier figures; each takes some five seconds."""
STREAMS = 8
"""Streams at a time. Raise it and more tokens wait for one another."""
TOKENS = 200
"""Of an answer."""
PACE_S = 0.01
"""From one token to the next: far enough apart that each has a write of its own."""

CARD = Card("bench/Parrot", "1", "llama", 1, 1, 8192, 1, 1, 1, 1)
EVENTS: list[Event] = [
    Started(9),
    *(Delta(index, (index,), f" word{index}") for index in range(TOKENS)),
    Finished(FinishReason.STOP, Usage(9, TOKENS)),
]
ASK = b'{"model":"bench/Parrot","stream":true,"messages":[{"role":"user","content":"hi"}]}'
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
    + f"content-length: {len(ASK)}\r\n\r\n".encode()
    + ASK
)


@frozen
class Paced:
    """Implements ``Generator``."""

    pace_s: float

    @asynccontextmanager
    async def generate(self, request: Request) -> AsyncGenerator[AsyncIterator[Event]]:
        yield self._events()

    async def _events(self) -> AsyncIterator[Event]:
        for event in EVENTS:
            await trio.sleep(self.pace_s)
            yield event


class OneModel:
    """As much of a ``Cluster`` as a chat needs."""

    def resolve_model(self, name: str) -> Card:
        return CARD


def bare_app(pace_s: float) -> QuartTrio:
    app = QuartTrio("bare")
    app.config["RESPONSE_TIMEOUT"] = None
    wire = ChatStream(Envelope(f"chatcmpl-{'0' * 32}", 1_700_000_000, CARD.id))
    writes = [wire.encode(event) for event in EVENTS]

    async def stream() -> AsyncIterator[bytes]:
        for write in writes:
            await trio.sleep(pace_s)
            if write:
                yield write

    @app.post("/v1/chat/completions")
    async def chat() -> Response:  # pyright: ignore[reportUnusedFunction]
        return Response(stream(), content_type="text/event-stream")

    return app


def read_stream(port: int) -> int:
    """The bytes of one answer."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(REQUEST)
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            piece = connection.recv(1 << 16)
            if not piece:
                raise SystemExit(f"the stream broke off after {received!r}")
            received += piece
    if received.count(b"data: ") != TOKENS + 3:
        raise SystemExit(f"not the answer that was expected: {received[:400]!r}")
    return len(received)


async def cpu_per_token(port: int) -> float:
    """Seconds of this thread, which runs the servers, for each token of STREAMS answers at a time."""
    begun = time.thread_time()
    async with trio.open_nursery() as nursery:
        for _ in range(STREAMS):
            nursery.start_soon(trio.to_thread.run_sync, read_stream, port)
    return (time.thread_time() - begun) / (STREAMS * TOKENS)


async def compare(rounds: int, pace_s: float) -> tuple[float, float, float]:
    """The median ratio of ours to the bare one, and the median seconds per token of each."""
    app = create_app(Paced(pace_s), cast(Cluster, OneModel()))
    ours_s: list[float] = []
    bare_s: list[float] = []
    async with trio.open_nursery() as nursery:
        ours = port_of(await nursery.start(partial(serve, app, host="127.0.0.1", port=0)))
        config = Config()
        config.bind, config.errorlog, config.accesslog = ["127.0.0.1:0"], None, None
        start_bare = cast(Callable[..., Awaitable[Any]], partial(serve_bare, cast(Any, bare_app(pace_s)), config))
        bare = port_of((await nursery.start(start_bare))[0])
        for port in (ours, bare):
            await cpu_per_token(port)
        for number in range(rounds):
            # Who goes first alternates, or a machine that warms up would favour one of them.
            for port, seconds in [(ours, ours_s), (bare, bare_s)][:: 1 if number % 2 else -1]:
                seconds.append(await cpu_per_token(port))
            print(f"round {number + 1}: ours {ours_s[-1] * 1e6:.0f} µs a token, bare {bare_s[-1] * 1e6:.0f} µs")
        nursery.cancel_scope.cancel()
    return median(ours / bare for ours, bare in zip(ours_s, bare_s, strict=True)), median(ours_s), median(bare_s)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


async def main(rounds: int) -> None:
    keep_quiet()
    print(f"{STREAMS} streams of {TOKENS} tokens at a time, one every {PACE_S * 1e3:.0f} ms, {rounds} rounds")
    ratio, ours_s, bare_s = await compare(rounds, PACE_S)
    print("the same as fast as it goes: tokens that are ready together share a write")
    burst_ratio, burst_ours_s, burst_bare_s = await compare(rounds, 0.0)
    print_figures(
        cpu_ratio=ratio,
        cpu_us=ours_s * 1e6,
        bare_cpu_us=bare_s * 1e6,
        burst_cpu_ratio=burst_ratio,
        burst_cpu_us=burst_ours_s * 1e6,
        burst_bare_cpu_us=burst_bare_s * 1e6,
        streams=STREAMS,
        tokens=TOKENS,
        rounds=rounds,
    )


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
