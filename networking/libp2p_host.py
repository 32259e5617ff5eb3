"""The transport on py-libp2p: TCP, noise, yamux, and the cluster's private network key.

Nothing else of what libp2p offers is used: QUIC lets strangers past the key, and its own dialling, discovery and health
checks don't fit a cluster.
"""

import functools
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import trio
from libp2p.abc import IHost, INetStream
from libp2p.custom_types import TProtocol
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.swarm import Swarm
from multiaddr import Multiaddr

from networking.addresses import check_free, parse, reachable, source
from networking.gossip import Gossip
from networking.greetings import Greeting, NoPeerError, StrangerError
from networking.identity import Identity
from networking.libp2p_connection import Libp2pConnection
from networking.libp2p_swarm import ConnectionNotifee, PeerRefusedError, make_host, swarm_of, upgrade, wire_of
from networking.seldom_said import SeldomSaid
from networking.ticket import Cluster
from networking.transport import (
    Address,
    Connection,
    DialError,
    OtherClusterError,
    PeerId,
    StreamClosedError,
    TransportError,
    TransportListener,
)

logger = logging.getLogger(__name__)

DIAL_LIMIT = 4.0
"""Seconds for a dial, handshake included. Lower it and a busy peer can't be reached; raise it and a dead address holds up
the next one for longer."""

NO_HANDSHAKE = "connected, but no handshake: it does not allow this peer, or is too busy"

CLOSE_LIMIT = 1.0
"""Seconds to say goodbye to all peers; those that don't take it are cut off."""


def _everyone(_peer: PeerId) -> bool:
    return True


def _tell_nobody(_address: Address, _why: str) -> None:
    pass


class Libp2pTransport:
    """A ``networking.transport.Transport``. One object is one life: run it once.

    ``listen`` may name wildcards (``/ip4/0.0.0.0/tcp/52416``) and port 0. ``allow`` is asked about each peer that has
    proven its id, on both sides and before anything else is done with it; it must return at once. ``turned_away`` hears
    of those that dialled us and belong to another cluster: where they come from, and a line for people; not more often than
    ``seldom_said.SAID_AGAIN_S`` of each.
    """

    def __init__(
        self,
        identity: Identity,
        cluster: Cluster,
        listen: Iterable[Address],
        *,
        allow: Callable[[PeerId], bool] = _everyone,
        turned_away: Callable[[Address, str], None] = _tell_nobody,
    ) -> None:
        self._identity = identity
        self._network_key = cluster.network_key
        self._greeting = Greeting.of(cluster)
        self._turned_away = turned_away
        self._said = SeldomSaid()
        self._listen = tuple(parse(address).address for address in listen)
        self._allow = allow
        self._protocols: list[str] = []
        self._topics: list[str] = []
        self._connections: dict[SwarmConn, Libp2pConnection] = {}
        self._bound: tuple[Address, ...] = ()
        self._reachable: tuple[Address, ...] = ()
        self._host: IHost | None = None
        self._gossip: Gossip | None = None
        self._listener: TransportListener | None = None
        self._nursery: trio.Nursery | None = None

    @property
    def me(self) -> PeerId:
        return self._identity.peer_id

    @property
    def addresses(self) -> tuple[Address, ...]:
        try:
            self._reachable = reachable(self._bound)
        except OSError as error:  # asking takes a descriptor, and there may be none left
            logger.debug("the interfaces can't be read (%s); the addresses known last count", error)
        return self._reachable

    def register(self, protocol: str) -> None:
        self._refuse_when_started("register a protocol")
        self._protocols.append(protocol)

    def subscribe(self, topic: str) -> None:
        self._refuse_when_started("subscribe to a topic")
        self._topics.append(topic)

    def move(self, cluster: Cluster) -> None:
        """Make and take connections of this cluster from now on.

        Those that stand go on, but for those with peers that ``allow`` no longer allows.
        """
        self._network_key, self._greeting = cluster.network_key, Greeting.of(cluster)
        if self._host is not None:
            swarm_of(self._host).psk = self._network_key
        for connection in list(self._connections.values()):
            if self._refusal(connection.peer) is not None:
                connection.abort()

    async def run(
        self, listener: TransportListener, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        self._refuse_when_started("run")
        check_free(self._listen)
        self._listener = listener
        services = trio.CancelScope()
        async with trio.open_nursery() as nursery:
            try:
                await nursery.start(self._serve, services)
                task_status.started()
                await trio.sleep_forever()
            finally:
                await self._say_goodbye()
                services.cancel()

    async def dial(self, address: Address, peer: PeerId | None = None) -> Connection:
        if self._host is None:
            raise DialError(f"{address}: the transport isn't running")
        wire = None
        with trio.move_on_after(DIAL_LIMIT):
            wire = await _reach(address)
            return await self._shake_hands(swarm_of(self._host), wire, address, peer)
        problem = "no answer" if wire is None else "connected, but no handshake"
        raise DialError(f"{address}: {problem} (waited {DIAL_LIMIT:g} s)")

    async def broadcast(self, topic: str, data: bytes) -> None:
        if self._gossip is None:
            raise TransportError("the transport isn't running")
        await self._gossip.publish(topic, data)

    async def _serve(
        self, services: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        host = make_host(self._identity.seed, self._network_key, lambda: self._greeting, self._refusal, self._turn_away)
        swarm_of(host).register_notifee(ConnectionNotifee(self._connected, self._disconnected))
        for protocol in self._protocols:
            host.set_stream_handler(TProtocol(protocol), functools.partial(self._serve_stream, protocol))
        gossip = Gossip(host, self._topics, self._broadcast_received)
        listen = [Multiaddr(address) for address in self._listen]
        with services:
            async with trio.open_nursery() as self._nursery, gossip.running(), host.run(listen):
                self._bound = tuple(Address(str(address)) for address in cast(Any, host).get_transport_addrs())
                if len(self._bound) < len(listen):
                    raise TransportError(f"of {list(self._listen)}, only {list(self._bound)} could be listened on")
                await trio.lowlevel.checkpoint_if_cancelled()
                services.shield = True  # once up, they end after the goodbyes, not with the caller's cancellation
                self._host, self._gossip = host, gossip
                task_status.started()
                await trio.sleep_forever()
        self._nursery = None

    async def _serve_stream(self, protocol: str, net_stream: INetStream) -> None:
        connection = self._announce(cast(Any, net_stream).swarm_conn)
        if connection is None or self._listener is None:
            return await net_stream.reset()
        try:
            with connection.serving(cast(Any, net_stream)) as stream:
                await self._listener.stream_opened(protocol, stream, connection)
                await stream.linger()
        except StreamClosedError as error:
            logger.debug("a stream of %s ended: %s", protocol, error)
        except TransportError as error:
            logger.info("a stream of %s was refused: %s", protocol, error)
            await net_stream.reset()
        except Exception:
            logger.exception("serving a stream of %s to %s failed", protocol, connection.peer)

    async def _shake_hands(
        self, swarm: Swarm, wire: trio.SocketStream, address: Address, peer: PeerId | None
    ) -> Connection:
        try:
            connection = self._announce(await upgrade(swarm, wire, peer))
        except StrangerError as error:
            raise OtherClusterError(f"{address}: {error}") from error
        except (PeerRefusedError, NoPeerError) as error:
            raise DialError(f"{address}: {error}") from error
        except Exception as error:
            logger.debug("handshake with %s failed", address, exc_info=True)
            raise DialError(f"{address}: {NO_HANDSHAKE}") from error
        if connection is None:
            raise DialError(f"{address}: {NO_HANDSHAKE}")
        return connection

    def _refusal(self, peer: PeerId) -> str | None:
        # Ourselves, or a copy of our home on another machine: those above can tell, once they talk.
        return None if peer == self.me or self._allow(peer) else f"{peer} is not allowed here"

    def _turn_away(self, address: Address, error: NoPeerError | StrangerError) -> None:
        host = parse(address).host
        if not self._said.is_due((source(host), str(error))):
            return
        if isinstance(error, StrangerError):
            logger.warning("%s dialled this node and was turned away: %s", host, error)
            self._turned_away(address, str(error))
        else:
            logger.info("%s dialled this node and was turned away: %s", host, error)

    def _announce(self, swarm_conn: SwarmConn) -> Libp2pConnection | None:
        """Our object for libp2p's; the listener hears of it first. None if the connection is gone already.

        A peer's stream may be here before libp2p reports its connection.
        """
        connection = self._connections.get(swarm_conn)
        if connection is None and not swarm_conn.is_closed and self._listener is not None:
            try:
                connection = Libp2pConnection(swarm_conn, wire_of(swarm_conn), self._spawn)
            except OSError as error:  # reset by the peer a moment ago; libp2p will notice
                logger.debug("a connection ended before it began: %s", error)
                return None
            if self._refusal(connection.peer) is not None:  # no longer allowed since it began to shake hands
                connection.abort()
                return None
            self._connections[swarm_conn] = connection
            self._listener.connected(connection)
        return connection

    def _connected(self, swarm_conn: SwarmConn) -> None:
        try:
            self._announce(swarm_conn)
        except Exception:
            logger.exception("a new connection could not be taken")

    def _disconnected(self, swarm_conn: SwarmConn) -> None:
        connection = self._connections.pop(swarm_conn, None)
        if connection is None or self._listener is None:
            return
        try:
            self._listener.disconnected(connection)
        except Exception:
            logger.exception("the end of a connection to %s could not be taken", connection.peer)

    def _broadcast_received(self, topic: str, data: bytes) -> None:
        if self._listener is not None:
            self._listener.broadcast_received(topic, data)

    async def _say_goodbye(self) -> None:
        host, self._host, self._gossip = self._host, None, None
        if host is None:
            return
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._cut_off)
                async with trio.open_nursery() as goodbyes:
                    for swarm_conn in list(self._connections):
                        goodbyes.start_soon(swarm_conn.close)
                await host.close()
                nursery.cancel_scope.cancel()

    async def _cut_off(self) -> None:
        await trio.sleep(CLOSE_LIMIT)
        for connection in list(self._connections.values()):
            connection.abort()

    def _spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(task)

    def _refuse_when_started(self, what: str) -> None:
        if self._listener is not None:
            raise TransportError(f"too late to {what}: the transport has been started")


async def _reach(address: Address) -> trio.SocketStream:
    try:
        endpoint = parse(address)
        return await trio.open_tcp_stream(endpoint.host, endpoint.port)
    except (OSError, ValueError) as error:
        raise DialError(f"{address}: {_root_cause(error)}") from error


def _root_cause(error: OSError | ValueError) -> str:
    """What is behind trio's "all attempts to connect failed"."""
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        return str(cast(BaseExceptionGroup[BaseException], cause).exceptions[0])
    return str(cause or error)
