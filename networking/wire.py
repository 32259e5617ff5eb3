"""What overlays say to each other on a connection's control stream and on the gossip topic, and how it becomes bytes.

Every message is one JSON object with its ``kind``. Unknown fields are ignored, so that a newer peer may add some;
an unknown kind raises UnknownKindError, so that the caller can count it.
"""

from base64 import b64decode, b64encode
from functools import lru_cache
from typing import Any, cast

import orjson
from attrs import Attribute, field, frozen
from cattrs import BaseValidationError, transform_error
from cattrs.preconf.orjson import make_converter
from cattrs.strategies import configure_tagged_union

from networking.transport import Address, PeerId

PROTOCOL_VERSION = 3
"""Raised when a change can't be understood by ignoring fields; peers of another version are warned about."""


MAX_COUNTER = 2**53
"""No incarnation, version or term is higher: JSON's numbers are exact up to it, and no cluster lives to see it."""


def _check_counter(_instance: object, attribute: "Attribute[int]", value: int) -> None:
    if not 0 <= value <= MAX_COUNTER:
        raise ValueError(f"{attribute.name} is {value}, outside of 0 to {MAX_COUNTER}")


def _check_listed(instance: "Head", _attribute: object, facts: tuple[int, ...]) -> None:
    if not all(0 < each <= instance.version for each in facts):
        raise ValueError(f"the head of version {instance.version} lists facts that can't be in it: {facts}")


class MalformedMessageError(ValueError):
    """The bytes are no message; the text lists what is wrong."""


class UnknownKindError(MalformedMessageError):
    """A message of a kind that this version does not know."""


@frozen(order=True)
class Life:
    """One life of a peer. A restart starts a higher incarnation; the random process number tells a restart from a clone."""

    incarnation: int = field(validator=_check_counter)
    process: int = field(validator=_check_counter)


@frozen
class DocumentVersion:
    """How much of a peer's document somebody holds: every fact of that life up to a version."""

    life: Life
    version: int = field(validator=_check_counter)


@frozen
class Fact:
    """One key of its owner's document. The version is that of the document when the fact was written."""

    owner: PeerId
    life: Life
    version: int = field(validator=_check_counter)
    key: str
    value: bytes


@frozen
class Head:
    """What its owner's document consists of at a version: a fact that is older and not listed was replaced or deleted.

    Since the owner signs it, nobody else can delete a fact, begin a life or raise a version, only withhold what is new.
    """

    owner: PeerId
    life: Life
    version: int = field(validator=_check_counter)
    structural: int = field(validator=_check_counter)
    """The version of the last change that was not to volatile facts."""
    facts: tuple[int, ...] = field(converter=tuple, validator=_check_listed)
    """The versions of all facts."""


@frozen
class Signed:
    """A fact or head as its owner wrote and signed it. The text is handed on untouched, unknown fields included."""

    body: str
    signature: bytes


@frozen
class Hello:
    """The first message on a control stream, from both sides."""

    protocol: int
    life: Life


@frozen
class Heartbeat:
    """Sent once a second."""

    versions: str
    """A hash of the structural versions of all members' documents."""
    own: int
    """The version of the sender's own document, volatile facts included."""
    strain: int = 0
    """How late the sender's own ticks were of late."""


@frozen
class Digest:
    """What the sender holds. The receiver sends what is missing, and its own digest if ``answer`` asks for it."""

    documents: dict[PeerId, DocumentVersion]
    answer: bool = False


@frozen
class Delta:
    """News of one document: its head, and facts of it that the receiver may lack."""

    head: Signed
    facts: tuple[Signed, ...] = ()


@frozen
class Ask:
    """Do you hear this peer?"""

    about: PeerId


@frozen
class Answer:
    """Seconds since a peer was heard in the life of that process number; None if it isn't connected."""

    about: PeerId
    process: int = 0
    age_s: float | None = None
    version: int = field(default=0, validator=_check_counter)
    """How far the sender's copy of its document goes."""


@frozen
class Duplicate:
    """Two running processes use the receiver's peer id; ``process`` is the other one."""

    process: int


@frozen
class Goodbye:
    """The sender leaves on purpose."""


Message = Hello | Heartbeat | Digest | Delta | Ask | Answer | Duplicate | Goodbye


@frozen
class MemberFact:
    """What every peer tells of itself to the overlay. ``seniority`` is None until it has joined."""

    seniority: int | None = None
    may_lead: bool = True
    addresses: tuple[Address, ...] = field(default=(), converter=tuple)
    protocol: int | None = None
    """The version it speaks; None of those that didn't say so yet."""
    seen_term: int = field(default=0, validator=_check_counter)
    """A term that it has seen and that the leader has yet to outdo."""


@frozen
class Claim:
    """A peer's claim to lead: its term, the members behind it, and what the leader tells everyone. One atomic fact."""

    term: int = field(validator=_check_counter)
    members: int = field(validator=_check_counter)
    payload: bytes = b""
    merged: dict[PeerId, int] = field(factory=dict[PeerId, int])
    """Claims of others that it replaces, by the version of the fact: what they carried is in its payload."""


_converter = make_converter()
_converter.register_unstructure_hook(bytes, lambda value: b64encode(value).decode())
_converter.register_structure_hook(bytes, lambda value, _: b64decode(value, validate=True))
configure_tagged_union(Message, _converter, tag_name="kind")

_KINDS = frozenset(each.__name__ for each in (Hello, Heartbeat, Digest, Delta, Ask, Answer, Duplicate, Goodbye))


def encode(message: Message) -> bytes:
    return orjson.dumps(_converter.unstructure(message, unstructure_as=cast(Any, Message)))


def decode(data: bytes) -> Message:
    """The message that ``encode`` wrote. Raises MalformedMessageError, and UnknownKindError for a kind of a newer version."""
    fields = _loads(data)
    kind: object = cast(dict[str, object], fields).get("kind") if isinstance(fields, dict) else None
    if not isinstance(kind, str):
        raise MalformedMessageError("a message is a JSON object with a kind")
    if kind not in _KINDS:
        raise UnknownKindError(f"unknown kind of message {kind!r}")
    return cast(Message, _structure(fields, cast(Any, Message)))


def encode_value(value: Fact | Head | MemberFact | Claim) -> bytes:
    return orjson.dumps(_converter.unstructure(value))


def decode_fact(body: str) -> Fact:
    """Raises MalformedMessageError."""
    return cast(Fact, _structure(_loads(body.encode()), Fact))


def decode_head(body: str) -> Head:
    """Raises MalformedMessageError."""
    return cast(Head, _structure(_loads(body.encode()), Head))


@lru_cache(maxsize=64)
def decode_member(value: bytes) -> MemberFact:
    """Raises MalformedMessageError."""
    return cast(MemberFact, _structure(_loads(value), MemberFact))


@lru_cache(maxsize=32)
def decode_claim(value: bytes) -> Claim:
    """Raises MalformedMessageError."""
    return cast(Claim, _structure(_loads(value), Claim))


def _loads(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MalformedMessageError(f"not JSON: {error}") from error


def _structure(fields: Any, cls: type[Any]) -> object:
    try:
        return _converter.structure(fields, cls)
    except (BaseValidationError, KeyError, ValueError, TypeError) as error:
        raise MalformedMessageError("; ".join(transform_error(error))) from error
