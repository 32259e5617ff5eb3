# pyright: reportUnknownMemberType=false
# (libp2p is typed in part)
"""How a libp2p host is put together for a cluster, and how each of its connections is secured."""

from collections.abc import Callable
from typing import Any, cast

import trio
from libp2p import new_host
from libp2p.abc import IHost, INetConn, INetStream, INetwork, INotifee, IRawConnection, ISecureConn
from libp2p.crypto import ed25519, x25519
from libp2p.custom_types import TProtocol
from libp2p.io.trio import TrioTCPStream
from libp2p.network.config import ConnectionConfig
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as Noise
from libp2p.security.pnet.protector import new_protected_conn
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX
from libp2p.stream_muxer.yamux.yamux import Yamux
from libp2p.transport.exceptions import SecurityUpgradeFailure
from multiaddr import Multiaddr

from networking import repairs
from networking.addresses import from_socket_name
from networking.greetings import Greeting, NoPeerError, StrangerError, greet
from networking.handshakes import Handshakes
from networking.transport import Address, PeerId

repairs.apply()

Refusal = Callable[[PeerId], str | None]
"""Why a peer that has proven its id may not connect; None if it may."""

TurnedAway = Callable[[Address, NoPeerError | StrangerError], None]
"""Who dialled us and isn't of our cluster; must return at once."""


class PeerRefusedError(SecurityUpgradeFailure):
    """The peer has proven its id, and it is one that we don't want here."""


WIRE = "cluster_wire"
"""The name under which a secured connection carries the TCP stream beneath it."""

_MANY = 1_000_000


def make_host(
    seed: bytes, network_key: str, greeting: Callable[[], Greeting], refusal: Refusal, turned_away: TurnedAway
) -> IHost:
    """A host that speaks TCP, noise and yamux within the private network, and nothing else.

    Its ``psk`` may be changed, and what ``greeting`` returns with it: new connections go by the new ones.
    """
    key_pair = ed25519.create_new_key_pair(seed)
    host = new_host(
        key_pair=key_pair,
        sec_opt={NOISE: Noise(key_pair, noise_privkey=x25519.create_new_key_pair().private_key)},
        muxer_opt={TProtocol(YAMUX): Yamux},
        psk=network_key,
        connection_config=_connection_config(),
        announce_addrs=[],  # peers learn our addresses from us, not from libp2p, which would advertise 0.0.0.0
    )
    swarm = swarm_of(host)
    # Its limits count connections, rates and the machine's free memory; a machine full of work would let nobody in.
    # What strangers may cost is bounded where they shake hands.
    swarm.set_resource_manager(None)
    _guard(swarm, greeting, refusal, turned_away)
    return host


def swarm_of(host: IHost) -> Swarm:
    return cast(Swarm, host.get_network())


async def upgrade(swarm: Swarm, wire: trio.SocketStream, expected: PeerId | None) -> SwarmConn:
    """Make a connection of a TCP stream that we opened. Without ``expected``, to whomever is there.

    libp2p's own dialling needs the peer's id, tries again on its own, and hides which step failed. Raises
    StrangerError, NoPeerError, PeerRefusedError, or whatever garbage led to.
    """
    assert swarm.psk is not None
    raw = new_protected_conn(RawConnection(TrioTCPStream(wire), True), swarm.psk)
    peer = None if expected is None else ID.from_string(expected)
    try:
        secure = await swarm.upgrader.upgrade_security(raw, True, peer)
        muxed = await swarm.upgrader.upgrade_connection(secure, secure.get_remote_peer())
        return await swarm.add_conn(muxed, direction="outbound")
    except BaseException:
        wire.socket.close()
        raise


def wire_of(swarm_conn: SwarmConn) -> trio.SocketStream:
    """The TCP stream that carries a connection."""
    return getattr(cast(Any, swarm_conn.muxed_conn).secured_conn, WIRE)


def _guard(swarm: Swarm, greeting: Callable[[], Greeting], refusal: Refusal, turned_away: TurnedAway) -> None:
    """Ask about each peer at the first moment its id is certain, before libp2p registers anything of it."""
    security = swarm.upgrader.security_multistream
    handshakes = Handshakes()

    async def secure_inbound(raw_conn: IRawConnection) -> ISecureConn:
        wire = _innermost_stream(raw_conn)
        with handshakes.one_more():
            try:
                await greet(wire, greeting())
            except (NoPeerError, StrangerError) as error:
                turned_away(from_socket_name(wire.socket.getpeername()), error)
                raise
            return await security.secure_inbound(raw_conn)

    async def secure_outbound(raw_conn: IRawConnection) -> ISecureConn:
        await greet(_innermost_stream(raw_conn), greeting())
        return await security.secure_outbound(raw_conn, cast(ID, None))  # noise takes None for anyone

    async def upgrade_security(raw_conn: IRawConnection, is_initiator: bool, peer_id: ID | None = None) -> ISecureConn:
        secure = await (secure_outbound if is_initiator else secure_inbound)(raw_conn)
        found = secure.get_remote_peer()
        reason = refusal(PeerId(str(found)))
        if peer_id is not None and found != peer_id:
            reason = f"{found} is there, not {peer_id}"
        if reason:
            await secure.close()
            raise PeerRefusedError(reason)
        setattr(secure, WIRE, _innermost_stream(raw_conn))
        return secure

    swarm.upgrader.upgrade_security = upgrade_security


def _innermost_stream(raw: Any) -> trio.SocketStream:
    while not isinstance(raw, trio.SocketStream):
        raw = getattr(raw, "_conn", None) or raw.stream
    return raw


def _connection_config() -> ConnectionConfig:
    """No connection that nobody asked for, and none closed to stay below a number."""
    return ConnectionConfig(
        min_connections=0,
        low_watermark=0,
        high_watermark=_MANY,
        max_connections=_MANY,
        max_connections_per_peer=_MANY,
    )


class ConnectionNotifee(INotifee):
    """What libp2p tells about connections; the rest of its news is of no use here."""

    def __init__(self, connected: Callable[[SwarmConn], None], disconnected: Callable[[SwarmConn], None]) -> None:
        self._connected = connected
        self._disconnected = disconnected

    async def connected(self, network: INetwork, conn: INetConn) -> None:
        self._connected(cast(SwarmConn, conn))

    async def disconnected(self, network: INetwork, conn: INetConn) -> None:
        self._disconnected(cast(SwarmConn, conn))

    async def opened_stream(self, network: INetwork, stream: INetStream) -> None: ...
    async def closed_stream(self, network: INetwork, stream: INetStream) -> None: ...
    async def listen(self, network: INetwork, multiaddr: Multiaddr) -> None: ...
    async def listen_close(self, network: INetwork, multiaddr: Multiaddr) -> None: ...
