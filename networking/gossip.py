# pyright: reportPrivateUsage=false, reportUnknownMemberType=false
# (libp2p is typed in part, and has no public way to mend a lost gossip stream)
"""Best-effort broadcasts over GossipSub 1.1, with settings for a cluster of up to a hundred peers.

Its budget is small: about 20 messages a second for the whole cluster. Whatever must arrive needs another road besides.
"""

import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

import trio
from libp2p.abc import IHost, ISubscriptionAPI
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11, GossipSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.tools.anyio_service import background_trio_service

logger = logging.getLogger(__name__)

MAX_BROADCAST_BYTES = 900_000
"""GossipSub drops what is over 1 MiB with its envelope, without a word to the sender."""

ANNOUNCE_INTERVAL = 5.0
"""Seconds between repeats of what we listen to. After one of two connections to a peer ended, that peer may have
forgotten it, and nothing else would tell it again. Lower it for a faster cure, raise it for fewer messages."""

DEGREE = 6
"""Peers to which each message is passed on. Raise it and messages survive more churn, at a cost in CPU on each peer."""

Deliver = Callable[[str, bytes], None]
"""(topic, data); must return at once."""


class Gossip:
    """The broadcasts of one running host. Make it before the host listens, and run it before the host listens, too:
    a connection made earlier would hang."""

    def __init__(self, host: IHost, topics: Iterable[str], deliver: Deliver) -> None:
        self._host = host
        self._topics = tuple(topics)
        self._deliver = deliver
        self._router = _new_router()
        self._pubsub = Pubsub(host, self._router)
        # Peers take a number that they have seen of us in the last minutes for a repeat. Stock: the wall clock, of which one
        # second may come twice, after a quick restart or when it is set back.
        self._pubsub.counter = secrets.randbits(63)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve while the context is open. If a part fails, the context is cancelled and raises."""
        try:
            async with (
                background_trio_service(self._pubsub),
                background_trio_service(self._router),
                trio.open_nursery() as nursery,
            ):
                await self._pubsub.wait_until_ready()
                for topic in self._topics:
                    nursery.start_soon(self._listen, topic, await self._pubsub.subscribe(topic))
                nursery.start_soon(self._keep_announcing)
                yield
                nursery.cancel_scope.cancel()
        finally:
            self._pubsub.seen_messages.stop()  # its thread would outlive us

    async def publish(self, topic: str, data: bytes) -> None:
        """Hand a message to the peers. Raises ValueError if it is longer than MAX_BROADCAST_BYTES."""
        if len(data) > MAX_BROADCAST_BYTES:
            raise ValueError(f"a broadcast of {len(data)} bytes on {topic!r}; at most {MAX_BROADCAST_BYTES}")
        await self._pubsub.publish(topic, data)

    async def _listen(self, topic: str, subscription: ISubscriptionAPI) -> None:
        me = self._host.get_id().to_bytes()
        while True:
            message = await subscription.get()
            if message.from_id != me:
                self._hand_over(topic, message.data)

    def _hand_over(self, topic: str, data: bytes) -> None:
        try:
            self._deliver(topic, data)
        except Exception:
            logger.exception("a broadcast on %r could not be taken", topic)

    async def _keep_announcing(self) -> None:
        while True:
            await trio.sleep(ANNOUNCE_INTERVAL)
            await self._pubsub.message_all_peers(self._pubsub.get_hello_packet().SerializeToString())
            for peer in self._host.get_connected_peers():
                if peer not in self._pubsub.peers:
                    self._pubsub._schedule_peer_stream_retry(peer)


class _Sink(dict[str, Any]):
    """Takes everything and keeps nothing."""

    def __missing__(self, key: str) -> "_Sink":
        return self

    def append(self, item: object) -> None:
        pass


def _new_router() -> GossipSub:
    router = GossipSub(
        protocols=[PROTOCOL_ID_V11],  # later versions announce each message first, which doubles the CPU
        degree=DEGREE,
        degree_low=4,
        degree_high=1000,  # pruning would cut off peers that have no other link
        heartbeat_interval=1,  # seconds; the mesh is mended once per heartbeat, and the stock one is two minutes
        adaptive_gossip_enabled=False,  # takes a small mesh for a sick one and slows its heartbeat
        spam_protection_enabled=False,  # drops without a word what a peer sends beyond 10 messages a second
        eclipse_protection_enabled=False,
    )
    router.scorer = None  # with it, the mesh is regrafted and pruned in turn, for ever
    router.recent_message_deliveries = _Sink()  # pyright: ignore[reportAttributeAccessIssue]  # never trimmed
    return router
