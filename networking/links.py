"""The control connections of one peer: who said hello on them, and which of two are to go (pure).

Two running processes with one peer id (a cloned disk) look like a restart at first. The old connection tells: if it is heard well
after the newcomer's hello, both processes live, and the newcomer is turned away.
"""

from collections.abc import Iterator

from attrs import define, frozen

from networking.exchange import Exchange
from networking.transport import Address, PeerId
from networking.wire import Digest, DocumentVersion, Hello


@frozen
class LinkSettings:
    hello_within_s: float = 4.0
    """A connection without hello is closed after it. Raised, strays stay longer; lowered, slow machines are turned away."""
    clone_heard_s: float = 1.5
    """If the old process is heard this long after another said hello, both live. Lowered, late packets make a restart look like a clone."""
    clone_wait_s: float = 3.0
    """Silence of the old process after which the new one takes its place. Raised, a restart after a silent death takes longer."""
    gossip_takes_s: float = 0.9
    """How long versions may differ before digests are exchanged. Lowered, digests are sent for what is on its way; raised, lost gossip is mended later."""
    fresh_s: float = 1.5
    """Of two connections of a pair the surplus one is closed only if the other was heard within this time."""


@define
class Link:
    connection: int
    peer: PeerId
    outbound: bool
    opened_at: float
    heard_at: float
    exchange: Exchange
    address: Address | None = None
    """Of the other end, as its connection knows it."""
    hello: Hello | None = None
    contested_since: float | None = None
    """Set while another process of the same peer id holds a connection."""
    joined: bool = False
    closing: bool = False
    digest: Digest | None = None
    """The last one it sent."""

    @property
    def accepted(self) -> bool:
        return self.hello is not None and self.contested_since is None and not self.closing

    @property
    def process(self) -> int | None:
        return self.hello.life.process if self.hello else None

    @property
    def announced(self) -> DocumentVersion | None:
        """How far the peer's own document goes, as it says itself."""
        reached = self.digest.documents.get(self.peer) if self.digest else None
        return reached if reached and reached.life.process == self.process else None


class Links:
    def __init__(self, me: PeerId, settings: LinkSettings) -> None:
        self._me = me
        self._settings = settings
        self._links: dict[int, Link] = {}

    def __iter__(self) -> Iterator[Link]:
        return iter(list(self._links.values()))

    def open(
        self, now: float, connection: int, peer: PeerId, *, outbound: bool, address: Address | None = None
    ) -> Link:
        link = self._links[connection] = Link(
            connection, peer, outbound, now, now, Exchange(self._settings.gossip_takes_s), address
        )
        return link

    def close(self, connection: int) -> Link | None:
        return self._links.pop(connection, None)

    def get(self, connection: int) -> Link | None:
        link = self._links.get(connection)
        return None if link is None or link.closing else link

    def accepted_of(self, peer: PeerId) -> list[Link]:
        return [link for link in self._links.values() if link.peer == peer and link.accepted]

    def process_of(self, peer: PeerId) -> int | None:
        """The process that is directly connected under a peer id."""
        return next((link.process for link in self.accepted_of(peer)), None)

    @property
    def joined(self) -> list[Link]:
        return [link for link in self._links.values() if link.joined and not link.closing]

    def proven(self, peer: PeerId) -> tuple[Address, ...]:
        """Where the peer was dialled with success, and is still connected; the newest first.

        The far address of a connection that it opened has a port that leads nowhere, and maybe a host that doesn't, either.
        """
        dialled = (link.address for link in reversed(self.joined) if link.peer == peer and link.outbound)
        return tuple(dict.fromkeys(address for address in dialled if address))

    def address_of(self, peer: PeerId) -> Address | None:
        """The far end of the connection that was heard last. Of two that are heard alike, the older one, so that it doesn't flicker."""
        of_peer = [link for link in self.joined if link.peer == peer]
        if not of_peer:
            return None
        newest = max(link.heard_at for link in of_peer)
        return next(link.address for link in of_peer if newest - link.heard_at < self._settings.fresh_s)

    def greet(self, now: float, link: Link, hello: Hello) -> None:
        """Note a hello; the link is contested if another process holds the peer id."""
        process = self.process_of(link.peer)
        link.hello = hello
        if process is not None and process != hello.life.process:
            link.contested_since = now

    def surplus(self, now: float, peer: PeerId) -> list[Link]:
        """Connections of a pair beyond one: both sides keep that which the lower peer id opened, if it is heard."""
        links = self.accepted_of(peer)
        if len(links) < 2:
            return []
        fresh = [link for link in links if now - link.heard_at < self._settings.fresh_s]
        by_lower = [link for link in fresh if link.outbound == (self._me < peer)]
        keep = min(by_lower or fresh or links, key=lambda link: link.connection)
        # Of several opened by the same side only that side knows which came first.
        return [link for link in links if link is not keep and (link.outbound or link.outbound != keep.outbound)]

    def without_hello(self, now: float, patience: float = 1.0) -> list[Link]:
        """Those that are over due; ``patience`` is how many times as long as usual they are given."""
        limit = self._settings.hello_within_s * patience
        return [link for link in self if link.hello is None and not link.closing and now - link.opened_at >= limit]

    def resolve(self, now: float, link: Link) -> "Contest":
        """How things stand between a contested link and those of the process that was there before."""
        since = link.contested_since
        holders = self.accepted_of(link.peer)
        if since is None or not holders:
            return Contest(accept=True)
        if max(each.heard_at for each in holders) >= since + self._settings.clone_heard_s:
            return Contest(clones=tuple(holders))
        if now - since >= self._settings.clone_wait_s:
            return Contest(accept=True, obsolete=tuple(holders))
        return Contest()


@frozen
class Contest:
    """Accept the newcomer (and close what is obsolete), or it is a clone of those that live, or wait (nothing set)."""

    accept: bool = False
    obsolete: tuple[Link, ...] = ()
    clones: tuple[Link, ...] = ()
