"""How machines come into the cluster and leave it for good: the parts of pairing and removal, and how they are joined."""

import trio

from networking.charter import Charter, NotMemberError
from networking.discovery import Sighting
from networking.libp2p_host import Libp2pTransport
from networking.overlay import Overlay
from networking.pairing import Party
from networking.transport import PeerId
from networking.wire import PROTOCOL_VERSION
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.node.belonging import Belonging
from p2pexo.node.doors import Doors
from p2pexo.node.keys import decide_by_keys, has_terminal
from p2pexo.node.newcomer import Introduction, Newcomer
from p2pexo.node.rekeying import Rekeying
from p2pexo.node.settings import NodeSettings
from p2pexo.node.shut_out import ShutOut


class Pairing:
    """``start`` it once the overlay runs."""

    def __init__(
        self,
        settings: NodeSettings,
        party: Party,
        belonging: Belonging,
        overlay: Overlay,
        transport: Libp2pTransport,
        machine: str,
        shut_out: ShutOut,
    ) -> None:
        """``machine``: what it is, for people elsewhere. ``shut_out``: where it is kept why this node is no member any more."""
        self._settings = settings
        self._belonging = belonging
        self._overlay = overlay
        self._transport = transport
        self._port: int | None = None
        self._rekeying = Rekeying(overlay, belonging)
        self.doors = Doors(overlay, party, belonging, lambda: transport.addresses, approve_all=settings.approve_all)
        self._newcomer = Newcomer(
            party,
            belonging,
            Introduction(settings.display_name, machine, settings.cluster),
            self.doors.show_asking,
            overlay.add_sighting,
            lambda peer: overlay.view.member(peer) is not None,
            shut_out,
        )
        belonging.follow(self._belonging_changed)

    async def start(self, duties: trio.Nursery, hosts: tuple[str, ...]) -> None:
        """Do what there is to do, with a door on these hosts, if any. Raises OSError if none of them can be listened on."""
        duties.start_soon(self._rekeying.run)
        if not hosts:
            return
        self._port = await duties.start(self.doors.reception.run, hosts, self._settings.pairing_port)
        duties.start_soon(self._newcomer.renew_when_behind)
        if self._settings.pair:
            duties.start_soon(self._newcomer.ask_while_fresh)
        if has_terminal() and not self._settings.exit_with_parent:
            duties.start_soon(decide_by_keys, self.doors)

    def sighting(self) -> Sighting:
        """What this node says of itself on the local network."""
        return Sighting(
            self._overlay.me,
            self._transport.addresses,
            self._belonging.cluster.name,
            self._belonging.cluster.fingerprint,
            PROTOCOL_VERSION,
            members=len(self._overlay.view.members),
            pairing=self._port,
            fresh=self._belonging.charter.fresh and self._settings.pair,
        )

    def seen(self, sighting: Sighting) -> None:
        self._newcomer.seen(sighting)

    # What people ask for, by HTTP.

    async def approve(self, peer: str, code: str | None = None) -> None:
        await self.doors.approve(peer, code)

    async def deny(self, peer: str) -> None:
        await self.doors.deny(peer)

    async def remove(self, peer: str) -> tuple[str, ...]:
        """Keep a member out for ever; those that have not followed yet. Raises InvalidRequestError and NotMemberError."""
        if peer == self._overlay.me:
            raise InvalidRequestError("a node can't remove itself; ask another member, or just stop it for good")
        members = {member.peer for member in self._overlay.view.members}
        if peer not in members and peer not in self._belonging.charter.known:
            raise NotMemberError(f"{peer} is no member of this cluster, and never was")
        return await self._rekeying.remove(PeerId(peer))

    def _belonging_changed(self, before: Charter, after: Charter) -> None:
        if before.cluster != after.cluster or before.removed != after.removed:
            self._transport.move(after.cluster)
        if before.fresh and before.cluster != after.cluster:
            self._overlay.move_in()
        if before.cluster != after.cluster:
            self._newcomer.dial_our_own()
