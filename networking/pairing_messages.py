"""What a newcomer and a member say to each other before the newcomer is in, and how it becomes bytes.

Everything here may come from a stranger: lengths are bounded, and text that is shown to people is cleaned.
"""

from base64 import b64decode, b64encode
from enum import StrEnum
from typing import Any, cast

import orjson
from attrs import Attribute, field, frozen
from cattrs import BaseValidationError, transform_error
from cattrs.preconf.orjson import make_converter
from cattrs.strategies import configure_tagged_union

from networking.identity import public_key_of
from networking.ticket import check_cluster_name
from networking.transport import Address, PeerId
from networking.wire import MAX_COUNTER

PAIRING_VERSION = 1
"""Raised when an older side could no longer take part."""

MAX_MESSAGE_BYTES = 64 * 1024
"""Raise it and a stranger can make us hold more memory; lower it and the lists of an old, large cluster don't fit."""

NONCE_BYTES = 32
HASH_BYTES = 32
SIGNATURE_BYTES = 64

_HIGHEST_VERSION = 9999
_NAME_CHARACTERS = 64
_REASON_CHARACTERS = 240


class MalformedPairingError(ValueError):
    """The bytes are nothing that is said while pairing; the text lists what is wrong."""


class Purpose(StrEnum):
    JOIN = "join"
    """Let me in; somebody has to approve it."""
    RENEW = "renew"
    """I was a member while you changed the secret; my key proves who I am."""


def shown(text: str) -> str:
    """A name that a stranger gave itself as it may be shown: one line of printable characters, not too long."""
    return _printable(text)[:_NAME_CHARACTERS].strip()


def _shown_reason(text: str) -> str:
    return _printable(text)[:_REASON_CHARACTERS]


def _printable(text: str) -> str:
    return "".join(each for each in text if each.isprintable())


def _sized(size: int) -> Any:
    def check(_instance: object, attribute: "Attribute[bytes]", value: bytes) -> None:
        if len(value) != size:
            raise ValueError(f"{attribute.name} has {len(value)} bytes, not {size}")

    return check


def _check_version(_instance: object, _attribute: object, version: int) -> None:
    if not 0 < version <= _HIGHEST_VERSION:
        raise ValueError(f"a version is a number from 1 to {_HIGHEST_VERSION}")


def _check_number(_instance: object, _attribute: object, number: int) -> None:
    if not 0 <= number <= MAX_COUNTER:
        raise ValueError(f"no secret was ever changed so often: a number from 0 to {MAX_COUNTER} is wanted")


def _check_peer(_instance: object, _attribute: object, peer: PeerId) -> None:
    public_key_of(peer)


@frozen
class Ask:
    """The newcomer's first words. The commitment binds it to a nonce that it does not tell yet."""

    version: int = field(validator=_check_version)
    purpose: Purpose
    peer: PeerId = field(validator=_check_peer)
    name: str = field(converter=shown)
    machine: str = field(converter=shown)
    commitment: bytes = field(validator=_sized(HASH_BYTES))


@frozen
class Challenge:
    """The member's answer. All that a stranger learns: the cluster's name, and a peer id that is announced anyway.

    What can't be a cluster's name is refused and not cleaned: both sides sign it as it was said.
    """

    version: int = field(validator=_check_version)
    peer: PeerId = field(validator=_check_peer)
    cluster: str = field(validator=check_cluster_name)
    nonce: bytes = field(validator=_sized(NONCE_BYTES))


@frozen
class Reveal:
    """The newcomer's nonce, and its signature of everything said so far on this very channel."""

    nonce: bytes = field(validator=_sized(NONCE_BYTES))
    signature: bytes = field(validator=_sized(SIGNATURE_BYTES))


@frozen
class Proof:
    """The member's signature of the same."""

    signature: bytes = field(validator=_sized(SIGNATURE_BYTES))


@frozen
class Waiting:
    """Nobody has decided yet; said every few seconds, so that a newcomer notices when the member is gone."""


@frozen
class Admission:
    """Everything that makes a member of a newcomer. Only ever said to a peer that was approved, or is known."""

    cluster: str = field(validator=check_cluster_name)
    secret: bytes | None = field(repr=False)
    number: int = field(validator=_check_number)
    """How often the cluster's secret has been changed."""
    addresses: tuple[Address, ...] = ()
    """Where the member that says it can be dialled."""
    known: tuple[PeerId, ...] = ()
    removed: tuple[PeerId, ...] = ()


@frozen
class Refusal:
    """Why not. ``denied``: it was decided, so asking again at once is no use."""

    reason: str = field(converter=_shown_reason)
    denied: bool = False


PairingMessage = Ask | Challenge | Reveal | Proof | Waiting | Admission | Refusal

_converter = make_converter()
_converter.register_unstructure_hook(bytes, lambda value: b64encode(value).decode())
_converter.register_structure_hook(bytes, lambda value, _: b64decode(value, validate=True))
configure_tagged_union(PairingMessage, _converter, tag_name="kind")


def encode(message: PairingMessage) -> bytes:
    return orjson.dumps(_converter.unstructure(message, unstructure_as=cast(Any, PairingMessage)))


def decode(data: bytes) -> PairingMessage:
    """The message that ``encode`` wrote. Raises MalformedPairingError."""
    try:
        return cast(PairingMessage, _converter.structure(orjson.loads(data), cast(Any, PairingMessage)))
    except orjson.JSONDecodeError as error:
        raise MalformedPairingError(f"not JSON: {error}") from error
    except (BaseValidationError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise MalformedPairingError("; ".join(transform_error(error))) from error
