"""What everyone knows: each peer's own document of versioned facts, and how copies of it become equal (pure).

Scuttlebutt reconciliation (van Renesse et al., 2008), as in Cassandra and chitchat: a digest says how much of each document
is held, a delta carries what is missing. Only the owner raises versions. It signs every fact, and a head that lists them, so
anybody may hand them on and nobody can change, delete or invent any.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from attrs import evolve, frozen

from networking.document import Document, Held, News, cut, missing
from networking.remembered import Remembered
from networking.transport import PeerId, Sign, Verify
from networking.wire import (
    Delta,
    DocumentVersion,
    Fact,
    Head,
    Life,
    MalformedMessageError,
    Signed,
    decode_fact,
    decode_head,
    encode_value,
)

MAX_VALUE_BYTES = 256 * 1024
"""The largest value of one fact. Raised, one fact may no longer fit a gossip message; lowered, the leader can place less."""


class FactTooLargeError(ValueError):
    """The value is larger than MAX_VALUE_BYTES; larger things go over a stream."""


@frozen
class DocumentSettings:
    retention_s: float = 600.0
    """How long the document of a peer that is gone is kept. Lowered, a returning peer sends all again; raised, more memory."""


class Documents:
    def __init__(self, me: PeerId, life: Life, sign: Sign, verify: Verify, settings: DocumentSettings) -> None:
        self._me = me
        self._sign = sign
        self._verify = verify
        self._settings = settings
        head = Head(me, life, 0, 0, ())
        self._documents = {me: Document(head, self._signed(head), 0.0)}
        self._structural_hash = Remembered[str]()
        self.changes = 0
        """How often anything that is held changed; what was read stays true as long as this does."""

    @property
    def life(self) -> Life:
        """This peer's own."""
        return self._documents[self._me].life

    @property
    def version(self) -> int:
        """Of this peer's own document."""
        return self._documents[self._me].version

    @property
    def owners(self) -> list[PeerId]:
        return sorted(self._documents)

    def reached(self, owner: PeerId) -> DocumentVersion | None:
        document = self._documents.get(owner)
        return document and DocumentVersion(document.life, document.version)

    def value(self, owner: PeerId, key: str) -> bytes | None:
        document = self._documents.get(owner)
        held = document and document.facts.get(key)
        return held.fact.value if held else None

    def version_of(self, owner: PeerId, key: str) -> int:
        """Of the fact held under a key; 0 if there is none."""
        document = self._documents.get(owner)
        held = document and document.facts.get(key)
        return held.fact.version if held else 0

    def values(self, owner: PeerId) -> dict[str, bytes]:
        document = self._documents.get(owner)
        return {key: held.fact.value for key, held in document.facts.items()} if document else {}

    def write(self, changes: Mapping[str, bytes | None], *, volatile: bool = False) -> list[Delta]:
        """Change own facts (None deletes). Returns what to tell others. Raises FactTooLargeError."""
        for key, value in changes.items():
            check_size(key, value)
        mine = self._documents[self._me]
        before = version = mine.version
        for key, value in changes.items():
            version += 1
            if value is None:
                mine.facts.pop(key, None)
            else:
                mine.facts[key] = self._hold(Fact(self._me, mine.life, version, key, value))
        self._list(mine, mine.life, version, structural=mine.head.structural if volatile else version)
        return list(cut(mine, before))

    def outbid(self, life: Life) -> None:
        """Begin a life above one that others believe in, with the same facts."""
        mine = self._documents[self._me]
        above = evolve(mine.life, incarnation=life.incarnation + 1)
        mine.facts = {key: self._hold(evolve(held.fact, life=above)) for key, held in mine.facts.items()}
        self._list(mine, above, mine.version, structural=mine.head.structural)

    def digest(self, owners: Iterable[PeerId]) -> dict[PeerId, DocumentVersion]:
        held = {owner: self.reached(owner) for owner in owners}
        return {owner: reached for owner, reached in held.items() if reached}

    def missing_in(self, digest: Mapping[PeerId, DocumentVersion], owners: Iterable[PeerId]) -> list[Delta]:
        """What the sender of a digest lacks of these owners' documents."""
        deltas: list[Delta] = []
        for owner in owners:
            document = self._documents.get(owner)
            if document is not None:
                deltas += missing(document, digest.get(owner))
        return deltas

    def covers(self, digest: Mapping[PeerId, DocumentVersion]) -> bool:
        """Whether the sender of the digest knows nothing that is missing here."""
        return all(self.has(owner, reached) for owner, reached in digest.items())

    def has(self, owner: PeerId, reached: DocumentVersion) -> bool:
        held = self.reached(owner)
        return held is not None and (held.life, held.version) >= (reached.life, reached.version)

    def read(self, delta: Delta) -> News:
        """Check a delta. Raises MalformedMessageError if anything in it is not a text of its owner."""
        head = decode_head(delta.head.body)
        document = self._documents.get(head.owner)
        known = {each.signed: each for each in document.facts.values()} if document else {}
        if document is None or delta.head != document.signed:
            self._check(head.owner, delta.head)
        facts = [known.get(signed) or self._read_fact(head, signed) for signed in delta.facts]
        return News(head, delta.head, tuple(facts))

    def take(self, now: float, news: News) -> bool:
        """Take over what is new; whether anything was."""
        head = news.head
        document = self._documents.get(head.owner)
        if head.owner == self._me or (document is not None and document.life > head.life):
            return False
        is_new = document is None or document.life < head.life
        if document is None or is_new:
            document = self._documents[head.owner] = Document(head, news.signed, now)
        document.touched_at = now
        is_new |= document.take(news)
        self.changes += is_new
        return is_new

    def structural_hash(self, owners: Iterable[PeerId]) -> str:
        """Eight bytes (hex) that are equal where the same structural facts of these peers are held."""
        key = tuple(sorted(owners))
        return self._structural_hash.get((self.changes, key), lambda: self._hash(key))

    def collect(self, now: float, members: Iterable[PeerId]) -> None:
        """Drop the documents of peers that are long gone."""
        kept = {self._me, *members}
        for owner, document in list(self._documents.items()):
            if owner in kept:
                document.touched_at = now
            elif now - document.touched_at >= self._settings.retention_s:
                del self._documents[owner]
                self.changes += 1

    def _hash(self, owners: Iterable[PeerId]) -> str:
        digest = blake2b(digest_size=8)
        for owner in owners:
            document = self._documents.get(owner)
            if document is not None:
                life, structural = document.life, document.structural
                digest.update(f"{owner} {life.incarnation} {life.process} {structural};".encode())
        return digest.hexdigest()

    def _list(self, mine: Document, life: Life, version: int, *, structural: int) -> None:
        facts = sorted(held.fact.version for held in mine.facts.values())
        mine.head, mine.version = Head(self._me, life, version, structural, tuple(facts)), version
        mine.signed = self._signed(mine.head)
        self.changes += 1

    def _hold(self, fact: Fact) -> Held:
        return Held(fact, self._signed(fact))

    def _signed(self, value: Fact | Head) -> Signed:
        body = encode_value(value).decode()
        return Signed(body, self._sign(body.encode()))

    def _read_fact(self, head: Head, signed: Signed) -> Held:
        fact = decode_fact(signed.body)
        if (fact.owner, fact.life) != (head.owner, head.life):
            raise MalformedMessageError(f"a fact of {fact.owner} in a delta of {head.owner}, or of another life")
        self._check(head.owner, signed)
        return Held(fact, signed)

    def _check(self, owner: PeerId, signed: Signed) -> None:
        if not self._verify(owner, signed.body.encode(), signed.signature):
            raise MalformedMessageError(f"what is said to be of {owner} is not signed by it")


def check_size(key: str, value: bytes | None) -> None:
    """Raises FactTooLargeError."""
    if value is not None and len(value) > MAX_VALUE_BYTES:
        raise FactTooLargeError(
            f"fact {key!r} has {len(value)} bytes, at most {MAX_VALUE_BYTES} are spread; send it over a stream"
        )
