"""Each repair of libp2p's gossip, shown by what fails without it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
import trio.testing
from libp2p import new_host
from libp2p.custom_types import TProtocol
from libp2p.io.exceptions import MessageTooLarge
from libp2p.network.stream.exceptions import StreamEOF
from libp2p.pubsub import gossipsub, pubsub
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub
from libp2p.tools.anyio_service import background_trio_service

from networking import repairs

repairs.apply()


def run(main: Any) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


class Blocks:
    def __init__(self, *blocks: bytes) -> None:
        self.blocks = list(blocks)
        self.reads = 0

    async def read(self, n: int | None = None) -> bytes:
        self.reads += 1
        return self.blocks.pop(0) if self.blocks else b""


def test_gossip_is_read_in_blocks() -> None:
    async def main() -> None:
        stream: Any = Blocks(b"\x03one\x03two\x85\x01" + b"x" * 100, b"x" * 33)
        read = cast(Any, pubsub).read_varint_prefixed_bytes_limited
        assert [await read(stream, 1000) for _ in range(3)] == [b"one", b"two", b"x" * 133]
        assert stream.reads == 2
        with pytest.raises(StreamEOF):
            await read(stream, 1000)

    run(main)


@pytest.mark.parametrize("garbage", [b"\xff" * 10, b"\xff\x7f"])
def test_gossip_with_a_nonsense_length_is_refused(garbage: bytes) -> None:
    async def main() -> None:
        stream: Any = Blocks(garbage)
        with pytest.raises(MessageTooLarge):
            await cast(Any, pubsub).read_varint_prefixed_bytes_limited(stream, 1000)

    run(main)


@asynccontextmanager
async def gossiping() -> AsyncGenerator[Pubsub]:
    router = GossipSub([TProtocol("/meshsub/1.1.0")], degree=6, degree_low=4, degree_high=1000)
    service = Pubsub(new_host(), router)
    try:
        async with background_trio_service(service):
            yield service
    finally:
        service.seen_messages.stop()


def message(service: Pubsub, number: int, **changes: Any) -> rpc_pb2.Message:
    fields: dict[str, Any] = {"data": b"x" * 100, "topicIDs": ["t"], "from_id": service.my_id.to_bytes()}
    fields |= {"seqno": number.to_bytes(8, "big")} | changes
    return rpc_pb2.Message(**fields)


def test_a_malformed_gossip_message_does_no_harm_but_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with gossiping() as service:
            broken = message(service, 1, from_id=b"\x12\x20" + bytes(32), key=b"no key", signature=b"none")
            await service.push_msg(service.my_id, broken)
            assert service.manager.is_running

    trio.run(main)
    assert "gossip message" in caplog.text


@pytest.mark.parametrize("module", [pubsub, gossipsub])
def test_gossip_carries_no_record_of_addresses(module: Any) -> None:
    async def main() -> None:
        async with gossiping() as service:
            assert module.env_to_send_in_RPC(service.host) == (b"", False)
            assert not service.get_hello_packet().senderRecord
            stale = rpc_pb2.RPC(senderRecord=b"dated before the last one")
            assert module.maybe_consume_signed_record(stale, service.host, service.my_id)

    trio.run(main)


def test_gossip_messages_are_not_kept() -> None:
    async def main() -> None:
        async with gossiping() as service:
            router = cast(GossipSub, service.router)
            for number in range(10):
                assert router._check_equivocation(message(service, number))
            assert not router.equivocation_detection

    trio.run(main)


def test_a_burst_of_gossip_fits_into_the_queues() -> None:
    queue = cast(Any, pubsub).RpcQueue()
    assert all(queue.push(rpc_pb2.RPC()) for _ in range(repairs.OUTBOUND_QUEUE_SIZE))
    assert not queue.push(rpc_pb2.RPC())
    assert pubsub.SUBSCRIPTION_CHANNEL_SIZE == repairs.SUBSCRIPTION_QUEUE_SIZE
