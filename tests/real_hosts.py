"""Libp2p transports on loopback for tests, and what they tell their user."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio
from attrs import define, field

from networking import addresses
from networking.identity import Identity
from networking.libp2p_host import Libp2pTransport
from networking.ticket import Cluster
from networking.transport import Address, Connection, Stream

ECHO, HOLD, ANSWER, BUG = "/test/echo/1", "/test/hold/1", "/test/answer/1", "/test/bug/1"
TOPIC = "test"
LOOPBACK = Address("/ip4/127.0.0.1/tcp/0")
CLUSTER = Cluster("desk", bytes(32))


@define
class Listener:
    """Keeps what it is told in channels, so that tests wait for news and not for time."""

    sent_news: trio.MemorySendChannel[tuple[str, Connection]] = field(init=False)
    news: trio.MemoryReceiveChannel[tuple[str, Connection]] = field(init=False)
    sent_broadcasts: trio.MemorySendChannel[bytes] = field(init=False)
    broadcasts: trio.MemoryReceiveChannel[bytes] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.sent_news, self.news = trio.open_memory_channel[tuple[str, Connection]](1000)
        self.sent_broadcasts, self.broadcasts = trio.open_memory_channel[bytes](1000)

    def connected(self, connection: Connection) -> None:
        self.sent_news.send_nowait(("connected", connection))

    def disconnected(self, connection: Connection) -> None:
        self.sent_news.send_nowait(("disconnected", connection))

    def broadcast_received(self, topic: str, data: bytes) -> None:
        self.sent_broadcasts.send_nowait(data)

    async def stream_opened(self, protocol: str, stream: Stream, connection: Connection) -> None:
        if protocol == ANSWER:
            await stream.send(b"the answer")
        elif protocol == HOLD:
            await trio.sleep_forever()
        elif protocol == BUG:
            raise ValueError("a bug in a handler")
        else:
            while True:
                await stream.send(await stream.receive())

    async def hears(self, news: str) -> Connection:
        heard, connection = await self.news.receive()
        assert heard == news
        return connection


@define
class Peer:
    transport: Libp2pTransport
    listener: Listener
    stop: Callable[[], None]


Start = Callable[..., Awaitable[Peer]]


@asynccontextmanager
async def peers(home: Path) -> AsyncGenerator[Start]:
    """Start transports that end with the context."""
    async with trio.open_nursery() as nursery:

        async def start(
            name: str, cluster: Cluster = CLUSTER, listen: Sequence[Address] = (LOOPBACK,), **settings: Any
        ) -> Peer:
            transport = Libp2pTransport(Identity.load(home / name), cluster, listen, **settings)
            for protocol in (ECHO, HOLD, ANSWER, BUG):
                transport.register(protocol)
            transport.subscribe(TOPIC)
            listener, scope = Listener(), trio.CancelScope()

            async def run(*, task_status: trio.TaskStatus[None]) -> None:
                with scope:
                    await transport.run(listener, task_status=task_status)

            await nursery.start(run)
            return Peer(transport, listener, scope.cancel)

        with trio.fail_after(30):
            yield start
        nursery.cancel_scope.cancel()


def on_peers(home: Path, test: Callable[[Start], Awaitable[None]]) -> None:
    async def main() -> None:
        async with peers(home) as start:
            await test(start)

    trio.run(main)


async def connect(a: Peer, b: Peer) -> Connection:
    connection = await a.transport.dial(b.transport.addresses[0], b.transport.me)
    await b.listener.hears("connected")
    return connection


async def silent_connection(address: Address) -> trio.SocketStream:
    endpoint = addresses.parse(address)
    return await trio.open_tcp_stream(endpoint.host, endpoint.port)


async def ended(stream: trio.SocketStream) -> None:
    with suppress(trio.BrokenResourceError):
        while await stream.receive_some():
            pass
