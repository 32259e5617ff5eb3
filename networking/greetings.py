"""The first words on a connection, in clear, from both sides: which cluster is this?

libp2p's private network says nothing of a wrong key: both sides wait for words that never make sense. Here each side shows
what mDNS shows everyone, too, the cluster's name and the fingerprint of its key, and so knows at once that they don't match.
Nothing rests on it: who only pretends to the right fingerprint fails at the key itself.
"""

import trio
from attrs import frozen

from networking.ticket import Cluster, TicketError

MAGIC = b"overlay1"
"""The last byte is the version of these words. One byte after it counts those that follow."""


class NoPeerError(Exception):
    """Whoever is at the other end is no peer of any cluster."""


class StrangerError(Exception):
    """The other end belongs to another cluster, or has another version of these words, and the message says which."""


@frozen
class Greeting:
    name: str
    fingerprint: str

    @classmethod
    def of(cls, cluster: Cluster) -> "Greeting":
        return cls(cluster.name, cluster.fingerprint)

    def encode(self) -> bytes:
        words = f"{self.fingerprint} {self.name}".encode()
        return MAGIC + bytes((len(words),)) + words

    @classmethod
    def decode(cls, words: bytes) -> "Greeting":
        """Of the words after magic and length. Raises NoPeerError."""
        try:
            fingerprint, _, name = words.decode().partition(" ")
            return cls(Cluster(name).name, bytes.fromhex(fingerprint).hex())
        except (TicketError, ValueError) as error:
            raise NoPeerError(f"its first words make no sense ({error})") from error


async def greet(wire: trio.SocketStream, ours: Greeting) -> None:
    """Exchange greetings. Raises NoPeerError, and StrangerError on both sides if they can't be in one cluster."""
    try:
        await wire.send_all(ours.encode())
        theirs = await _read_greeting(wire)
    except trio.BrokenResourceError as error:
        raise NoPeerError("it hung up before it said which cluster it belongs to") from error
    if theirs.fingerprint != ours.fingerprint:
        raise StrangerError(_difference(ours, theirs))


async def _read_greeting(wire: trio.SocketStream) -> Greeting:
    magic = await _read(wire, len(MAGIC))
    if magic[:-1] != MAGIC[:-1]:
        raise NoPeerError("it speaks another protocol, or another version of this one")
    if magic != MAGIC:
        theirs, ours = (each[-1:].decode(errors="replace") for each in (magic, MAGIC))
        raise StrangerError(f"it greets in version {theirs}, this node in {ours}; update the older one")
    (length,) = await _read(wire, 1)
    return Greeting.decode(await _read(wire, length))


async def _read(wire: trio.SocketStream, size: int) -> bytes:
    """Exactly so many bytes: what follows them is for others to read."""
    data = b""
    while len(data) < size:
        piece = await wire.receive_some(size - len(data))
        if not piece:
            raise NoPeerError("it hung up before it said which cluster it belongs to")
        data += piece
    return data


def _difference(ours: Greeting, theirs: Greeting) -> str:
    if theirs.name == ours.name:
        prints = f"fingerprint {theirs.fingerprint} there, {ours.fingerprint} here"
        return f"it is in a cluster of our name, {ours.name!r}, but with another secret ({prints}); join by a ticket"
    return f"it is in another cluster, {theirs.name!r}, and this node in {ours.name!r}; join by a ticket"
