"""Finding peers on the local network by mDNS (RFC 6762, 6763), with python-zeroconf in threads of its own.

Sightings of other clusters are delivered, too: a peer that is alone can say which ones it sees.
"""

import contextlib
import itertools
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from ipaddress import ip_address

import trio
from attrs import frozen
from zeroconf import Error as ZeroconfError
from zeroconf import InterfaceChoice, IPVersion, ServiceBrowser, ServiceInfo, ServiceStateChange, Zeroconf

from networking.addresses import parse
from networking.identity import public_key_of
from networking.ticket import Cluster
from networking.transport import Address, PeerId
from networking.wire import MAX_COUNTER

logger = logging.getLogger(__name__)

DEFAULT_SERVICE = "_peercluster._tcp.local."

LOOKUP_MILLISECONDS = 3000
"""How long to wait for the details of a service that was announced. They most often come with the announcement."""

REPEAT_INTERVAL = 60.0
"""Seconds between repeats of who is there now. Lower it and forged sightings are repeated more often, too; raise it and
whoever forgets sightings after a while forgets real ones."""

MAX_PRESENT = 256
"""Raise it and somebody who makes up services takes more memory; lower it and real ones are pushed out sooner."""

_VERSIONS = {(4, 1): IPVersion.V4Only, (6, 1): IPVersion.V6Only, (6, 2): IPVersion.All}
"""By the highest IP version of the interfaces' addresses, and how many versions there are among them."""

_TXT_LIMIT = 255
"""A TXT entry, key and value together, holds no more (RFC 6763, 6.1)."""


@frozen
class Sighting:
    """What a peer says of itself on the local network. Nothing of it is proven: only a connection proves who is there."""

    peer: PeerId
    addresses: tuple[Address, ...]
    cluster: str
    fingerprint: str
    """The same as ours if the peer can connect to us."""
    version: int
    """Of the protocol that the peer speaks."""
    members: int = 1
    """How many are in its cluster."""
    pairing: int | None = None
    """The port where newcomers may ask to be let in; None where they can't."""
    fresh: bool = False
    """Alone, and willing to join another cluster."""

    def to_txt(self) -> dict[str, str]:
        """The entries of a TXT record; as many addresses as fit, in their order."""
        addresses = ""
        for address in self.addresses:
            longer = f"{addresses},{address}".lstrip(",")
            if len(f"a={longer}") <= _TXT_LIMIT:
                addresses = longer
        return {
            "peer": self.peer,
            "a": addresses,
            "cluster": self.cluster,
            "fp": self.fingerprint,
            "v": str(self.version),
            "n": str(self.members),
            "pair": str(self.pairing or ""),
            "fresh": "1" if self.fresh else "",
        }

    @classmethod
    def from_txt(cls, txt: dict[str, str]) -> "Sighting":
        """Raises KeyError or ValueError if the entries are not those of a peer. Names of hosts are left out: nobody here
        shall look up what a stranger wants."""
        peer = PeerId(txt["peer"])
        public_key_of(peer)
        endpoints = [parse(address) for address in txt["a"].split(",") if address]
        addresses = tuple(each.address for each in endpoints if each.kind in ("ip4", "ip6"))
        return cls(
            peer,
            addresses,
            Cluster(txt["cluster"]).name,
            txt["fp"],
            _version(txt["v"]),
            members=int(txt.get("n") or 1),
            pairing=_port(txt.get("pair", "")),
            fresh=bool(txt.get("fresh")),
        )


def _version(text: str) -> int:
    version = int(text)
    if not 0 < version <= MAX_COUNTER:
        raise ValueError(f"{version} is no version")
    return version


def _port(text: str) -> int | None:
    port = int(text) if text else None
    if port is not None and not 0 < port <= 65535:
        raise ValueError(f"{port} is no port")
    return port


Seen = Callable[[Sighting], None]
"""Called in the trio thread for each sighting, also repeated ones; must return at once."""


class Discovery:
    """Announces one peer and watches for others, never blocking the trio loop.

    ``interfaces`` are IP addresses of this machine's interfaces; none stands for all. ``service`` is a DNS-SD type: peers
    of one type see one another.
    """

    def __init__(
        self, announced: Sighting, seen: Seen, *, service: str = DEFAULT_SERVICE, interfaces: Sequence[str] = ()
    ) -> None:
        self._announced = announced
        self._seen = seen
        self._service = service
        self._interfaces = list(interfaces) or InterfaceChoice.All
        self._present: dict[str, Sighting] = {}
        self._moved = trio.Event()
        self._said_anew = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None

    def announce(self, announced: Sighting) -> None:
        """Say something else of this peer from now on; with other addresses, look anew at the interfaces, too."""
        if announced == self._announced:
            return
        has_moved = announced.addresses != self._announced.addresses
        self._announced = announced
        self._said_anew.set()
        if has_moved:
            self._moved.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Announce and watch until cancelled. Without multicast it says so, and waits for another network."""
        self._token = trio.lowlevel.current_trio_token()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._repeat)
                for turn in itertools.count():
                    self._moved, self._said_anew = trio.Event(), trio.Event()
                    async with self._on_the_network() as zeroconf:
                        if turn == 0:
                            task_status.started()
                        await self._keep_saying(zeroconf)
        finally:
            self._token = None

    @contextlib.asynccontextmanager
    async def _on_the_network(self) -> AsyncGenerator[Zeroconf | None]:
        zeroconf = None
        try:
            try:
                zeroconf = await trio.to_thread.run_sync(self._open)
                await trio.to_thread.run_sync(self._start, zeroconf)
            except (OSError, ZeroconfError) as error:
                logger.warning("no discovery on the local network (%s): join by ticket or address instead", error)
            yield zeroconf
        finally:
            self._present.clear()
            if zeroconf is not None:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(zeroconf.close)

    async def _keep_saying(self, zeroconf: Zeroconf | None) -> None:
        """Until the machine has moved."""
        while True:
            await self._said_anew.wait()
            self._said_anew = trio.Event()
            if self._moved.is_set():
                return
            if zeroconf is not None:
                try:
                    await trio.to_thread.run_sync(zeroconf.update_service, self._info())
                except (OSError, ZeroconfError) as error:  # what it says is old then, until there is news again
                    logger.warning("the local network can't be told what is new here (%r)", error)

    async def _repeat(self) -> None:
        while True:
            await trio.sleep(REPEAT_INTERVAL)
            for sighting in list(self._present.values()):
                self._hand_over(sighting)

    def _open(self) -> Zeroconf:
        if isinstance(self._interfaces, list):
            families = {ip_address(each).version for each in self._interfaces}
            return Zeroconf(interfaces=self._interfaces, ip_version=_VERSIONS[max(families), len(families)])
        try:
            return Zeroconf(interfaces=self._interfaces, ip_version=IPVersion.All)
        except OSError:  # a machine without IPv6
            return Zeroconf(interfaces=self._interfaces, ip_version=IPVersion.V4Only)

    def _start(self, zeroconf: Zeroconf) -> None:
        ServiceBrowser(zeroconf, self._service, handlers=[self._changed])
        # The name has the peer id in it, so nobody else can hold it, and it needs no second of asking around first.
        zeroconf.register_service(self._info(), cooperating_responders=True)

    def _info(self) -> ServiceInfo:
        endpoints = [parse(address) for address in self._announced.addresses]
        numbers = [endpoint.host for endpoint in endpoints if endpoint.kind in ("ip4", "ip6")]
        return ServiceInfo(
            self._service,
            f"{self._announced.peer}.{self._service}",
            port=endpoints[0].port if endpoints else 0,
            properties=self._announced.to_txt(),
            server=f"{self._announced.peer}.local.",
            addresses=[ip_address(number).packed for number in numbers],
        )

    def _changed(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        """Called in zeroconf's thread, which may wait."""
        if state_change is ServiceStateChange.Removed:
            self._in_trio(self._gone, name)
            return
        info = ServiceInfo(service_type, name)
        if not info.load_from_cache(zeroconf):
            info.request(zeroconf, LOOKUP_MILLISECONDS)
        txt = {key: value or "" for key, value in info.decoded_properties.items()}
        try:
            sighting = Sighting.from_txt(txt)
        except (KeyError, ValueError) as error:
            logger.debug("%s on the local network is no peer: %r", name, error)
            return
        self._in_trio(self._here, name, sighting)

    def _in_trio(self, call: Callable[..., None], *arguments: object) -> None:
        if self._token is not None:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(call, *arguments)

    def _here(self, name: str, sighting: Sighting) -> None:
        if sighting.peer != self._announced.peer:
            self._present.pop(name, None)
            self._present[name] = sighting
            while len(self._present) > MAX_PRESENT:
                del self._present[next(iter(self._present))]
            self._hand_over(sighting)

    def _gone(self, name: str) -> None:
        self._present.pop(name, None)

    def _hand_over(self, sighting: Sighting) -> None:
        try:
            self._seen(sighting)
        except Exception:
            logger.exception("a sighting of %s could not be taken", sighting.peer)
