"""A cluster's name and secret, the key made from them, and the ticket by which a member lets another peer in."""

import base64
import binascii
import hashlib
import json
import logging
import re
import secrets

from attrs import field, frozen
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from networking.identity import public_key_of
from networking.transport import Address, PeerId

logger = logging.getLogger(__name__)

PREFIX = "cluster1"
"""What a ticket begins with; the number is the version of its form."""

SECRET_BYTES = 32

SHORT_PASSPHRASE = 12
"""Characters. Raise it and more people are warned; lower it and guessable secrets pass in silence."""

_CHECKSUM_BYTES = 4
_SHOWN = 80
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}")


class TicketError(ValueError):
    """The text is no usable ticket, or the settings of a cluster are wrong; the message says what to do."""


def check_cluster_name(_instance: object, _attribute: object, name: str) -> None:
    """A validator. Raises TicketError, with no more of the name than can be read at a glance."""
    if not _NAME.fullmatch(name):
        said = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
        raise TicketError(
            f"{said!r} can't be a cluster's name: use 1 to 63 letters, digits, blanks, dots, dashes or underscores, "
            "and begin with a letter or digit"
        )


def _check_secret(_instance: object, _attribute: object, secret: bytes | None) -> None:
    if secret is not None and len(secret) != SECRET_BYTES:
        raise TicketError(f"a cluster's secret has {SECRET_BYTES} bytes, not {len(secret)}")


@frozen
class Cluster:
    """What all members of a cluster share. Peers connect only if both name and secret are the same."""

    name: str = field(validator=check_cluster_name)
    secret: bytes | None = field(default=None, repr=False, validator=_check_secret)
    """None makes an open cluster: whoever knows its name is in."""

    @classmethod
    def new(cls, name: str) -> "Cluster":
        """A cluster with a random secret."""
        return cls(name, secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def from_passphrase(cls, name: str, passphrase: str) -> "Cluster":
        """A cluster whose secret people type. Takes about 0.1 s on purpose: guessing one passphrase costs that much, too.

        The fingerprint, which everyone on the network sees, tells whoever guesses when he is right. Warns of a short one.
        """
        if not passphrase:
            raise TicketError("the secret is empty; give one, or ask for an open cluster")
        if len(passphrase) < SHORT_PASSPHRASE:
            logger.warning(
                "the secret of cluster %s has fewer than %d characters: anybody on the network can try to guess it, "
                "without asking a member; choose a longer one, or a random one by tickets",
                name,
                SHORT_PASSPHRASE,
            )
        salt = b"cluster passphrase " + name.encode()
        secret = hashlib.scrypt(passphrase.encode(), salt=salt, n=2**15, r=8, p=1, maxmem=2**26, dklen=SECRET_BYTES)
        return cls(name, secret)

    @property
    def open(self) -> bool:
        return self.secret is None

    @property
    def network_key(self) -> str:
        """The key of the libp2p private network: 64 hex digits made from name and secret (HKDF, RFC 5869)."""
        return self._derive(b"private network").hex()

    @property
    def fingerprint(self) -> str:
        """12 hex digits that are shown to everyone: the same for peers that can connect.

        A random secret can't be found from them. A passphrase can be guessed offline, at the cost of one scrypt a guess: they
        confirm the right one, and so would one recorded handshake. That is as safe as the passphrase is hard to guess.
        """
        return self._derive(b"fingerprint")[:6].hex()

    def _derive(self, purpose: bytes) -> bytes:
        secret = self.secret if self.secret is not None else b"open cluster"
        return HKDF(SHA256(), 32, salt=self.name.encode(), info=purpose).derive(secret)


@frozen
class Ticket:
    """What a newcomer needs: the cluster, and a member with the addresses where it can be dialled."""

    cluster: Cluster
    peer: PeerId
    addresses: tuple[Address, ...]

    def __str__(self) -> str:
        secret = None if self.cluster.secret is None else encode_bytes(self.cluster.secret)
        fields = [self.cluster.name, secret, self.peer, list(self.addresses)]
        payload = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
        return PREFIX + encode_bytes(payload + _checksum(payload))

    @classmethod
    def parse(cls, text: str) -> "Ticket":
        """The ticket that ``str`` wrote. Blanks and line breaks from pasting don't matter. Raises TicketError."""
        text = "".join(text.split())
        _check_version(text)
        payload = _checked_payload(text.removeprefix(PREFIX))
        try:
            name, secret, peer, addresses = json.loads(payload)
            cluster = Cluster(name, None if secret is None else decode_bytes(secret))
            public_key_of(peer)
            return cls(cluster, PeerId(peer), tuple(Address(str(address)) for address in addresses))
        except (ValueError, TypeError, AttributeError) as error:
            raise TicketError(
                f"the ticket is whole but holds something unknown ({error}); ask for a new one"
            ) from error


def _check_version(text: str) -> None:
    if text.startswith(PREFIX):
        return
    if re.match(r"cluster\d", text):
        raise TicketError("the ticket was made by another version; use the same version on both machines")
    raise TicketError(f"{text[:12]!r}… is no ticket: a ticket begins with {PREFIX}")


def _checked_payload(body: str) -> bytes:
    try:
        data = decode_bytes(body)
    except ValueError:
        data = b""
    payload, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if checksum != _checksum(payload):
        raise TicketError("the ticket was cut off or mistyped; copy it again, whole")
    return payload


def _checksum(payload: bytes) -> bytes:
    return hashlib.sha256(payload).digest()[:_CHECKSUM_BYTES]


def encode_bytes(data: bytes) -> str:
    """Base64 as it may stand in a URL, without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decode_bytes(text: str) -> bytes:
    """What ``encode_bytes`` wrote. Raises ValueError."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
