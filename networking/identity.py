"""Who this peer is: an ed25519 key in a home folder, and the peer id made from it.

Uses ``cryptography`` alone, so a command that only wants the peer id doesn't wait two seconds for libp2p.
"""

import contextlib
import fcntl
import functools
import logging
import os
import stat
import tempfile
from collections.abc import Generator
from pathlib import Path

import base58
from attrs import field, frozen
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from networking.transport import PeerId

logger = logging.getLogger(__name__)

KEY_FILE = "identity.key"
LOCK_FILE = "lock"

# https://github.com/libp2p/specs/blob/master/peer-ids/peer-ids.md: an identity multihash (0x00) of 36 bytes, which are
# the protobuf {1: key type ed25519, 2: the 32 bytes of the public key}.
_PEER_ID_PREFIX = bytes((0x00, 36, 0x08, 0x01, 0x12, 32))


class IdentityError(Exception):
    """The home folder or the key in it can't be used; the message says why and what to do."""


class HomeInUseError(IdentityError):
    """Another process runs on this home."""


@frozen
class Identity:
    """The key of one peer and the home folder that holds it."""

    home: Path
    key: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def load(cls, home: Path) -> "Identity":
        """The identity of a home; home and key are made when absent. Raises IdentityError, and then changes nothing."""
        _secure_folder(home)
        path = home / KEY_FILE
        with _alone_in(home):  # of two first starts at a time, the second finds the key of the first
            if not path.exists():
                write_privately(path, _to_pem(Ed25519PrivateKey.generate()))
        return cls(home, _read_key(path))

    @functools.cached_property
    def peer_id(self) -> PeerId:
        return peer_id_of(self.key.public_key())

    @property
    def seed(self) -> bytes:
        """The 32 bytes from which other libraries rebuild the private key."""
        return self.key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())

    def sign(self, data: bytes) -> bytes:
        """A 64-byte ed25519 signature, which ``verify`` checks against the peer id alone."""
        return self.key.sign(data)

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Hold the home for this process. Raises HomeInUseError if another process, or this one, holds it already.

        The system drops the lock when the process ends, however it ends.
        """
        path = self.home / LOCK_FILE
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _take_lock(descriptor, self.home)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)


def peer_id_of(key: Ed25519PublicKey) -> PeerId:
    """The peer id of a public key, the same that libp2p computes."""
    return PeerId(base58.b58encode(_PEER_ID_PREFIX + key.public_bytes(Encoding.Raw, PublicFormat.Raw)).decode())


@functools.lru_cache(maxsize=1024)
def public_key_of(peer: PeerId) -> Ed25519PublicKey:
    """The public key that an ed25519 peer id holds. Raises ValueError for anything else, also for one with blanks after it,
    which base58 would take: one key has one peer id."""
    data = b"" if peer[-1:].isspace() else base58.b58decode(peer)
    if not data.startswith(_PEER_ID_PREFIX) or len(data) != len(_PEER_ID_PREFIX) + 32:
        raise ValueError(f"{peer!r} is not the peer id of an ed25519 key")
    return Ed25519PublicKey.from_public_bytes(data[len(_PEER_ID_PREFIX) :])


def verify(peer: PeerId, data: bytes, signature: bytes) -> bool:
    """Whether the peer's key made the signature of the data. False, too, for a peer id that isn't one."""
    try:
        public_key_of(peer).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def write_privately(path: Path, data: bytes) -> None:
    """Replace a file at one stroke, readable by its owner only: after a crash there is the old content or the new."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_privately(path: Path) -> bytes:
    """Read a secret file, first taking away what rights others have to it. Raises IdentityError if it isn't ours."""
    status = path.stat()
    if status.st_uid != os.getuid():
        raise IdentityError(f"{path} belongs to another user (uid {status.st_uid}); use a home folder of your own")
    if stat.S_IMODE(status.st_mode) & 0o077:
        logger.warning("%s could be read by others; its rights are set to 0600", path)
        path.chmod(0o600)
    return path.read_bytes()


def _secure_folder(home: Path) -> None:
    if not home.exists():
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not home.is_dir():
        raise IdentityError(f"{home} is not a folder; name a folder for the home")
    status = home.stat()
    if status.st_uid != os.getuid():
        raise IdentityError(f"{home} belongs to another user (uid {status.st_uid}); use a home folder of your own")
    if status.st_mode & 0o022:
        raise IdentityError(f"others may write to {home}, so they could swap the key; run: chmod go-w {home}")


@contextlib.contextmanager
def _alone_in(home: Path) -> Generator[None]:
    """Wait until no other process is at this point with the same home."""
    descriptor = os.open(home, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _to_pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _read_key(path: Path) -> Ed25519PrivateKey:
    refusal = f"{path} holds no ed25519 private key; restore it, or move it away to get a new identity"
    try:
        key = load_pem_private_key(read_privately(path), password=None)
    except (ValueError, TypeError) as error:
        raise IdentityError(refusal) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise IdentityError(refusal)
    return key


def _take_lock(descriptor: int, home: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        raise HomeInUseError(
            f"{home} is in use by process {holder}; stop that one first, or give this one a home of its own"
        ) from error
