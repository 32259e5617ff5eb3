"""What everyone knows: each peer's own document of versioned facts, and how copies of it become equal (pure).

Scuttlebutt reconciliation (van Renesse et al., 2008), as in Cassandra and chitchat: a digest says how much of each document
is held, a delta carries what is missing. Only the owner raises versions, and it signs every fact, so anybody may hand them on.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b

from attrs import define, evolve, field, frozen

from networking.transport import PeerId, Sign, Verify
from networking.wire import (
    Delta,
    DocumentVersion,
    Fact,
    Life,
    MalformedMessageError,
    SignedFact,
    decode_fact,
    encode_value,
)

MAX_VALUE_BYTES = 256 * 1024
"""The largest value of one fact. Raised, one fact may no longer fit a gossip message; lowered, the leader can place less."""
MAX_DELTA_BYTES = 256 * 1024
"""A delta is cut beyond this. Raised, heartbeats wait longer behind it; lowered, more messages on catching up."""


class FactTooLargeError(ValueError):
    """The value is larger than MAX_VALUE_BYTES; larger things go over a stream."""


@frozen
class DocumentSettings:
    tombstone_s: float = 600.0
    """How long a deleted key is remembered. Lowered, peers that were away fetch whole documents more often; raised, more memory."""
    retention_s: float = 600.0
    """How long the document of a peer that is gone is kept. Lowered, a returning peer sends all again; raised, more memory."""


@frozen
class _Held:
    fact: Fact
    signed: SignedFact
    held_since: float

    @property
    def size(self) -> int:
        return len(self.signed.body) + len(self.signed.signature)


@define
class _Document:
    life: Life
    touched_at: float
    version: int = 0
    """Every fact up to it is held; single newer ones may be, too."""
    forgotten: int = 0
    """The highest version of a tombstone that was dropped: whoever holds less needs the whole document."""
    facts: dict[str, _Held] = field(factory=dict[str, _Held])

    @property
    def reached(self) -> DocumentVersion:
        return DocumentVersion(self.life, self.version)

    @property
    def structural(self) -> int:
        versions = (each.fact.version for each in self.facts.values() if not each.fact.volatile)
        return max((each for each in versions if each <= self.version), default=0)


class Documents:
    def __init__(self, me: PeerId, life: Life, sign: Sign, verify: Verify, settings: DocumentSettings) -> None:
        self._me = me
        self._sign = sign
        self._verify = verify
        self._settings = settings
        self._documents = {me: _Document(life, 0.0)}

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
        return document and document.reached

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
        """Live keys of one document."""
        document = self._documents.get(owner)
        held = document.facts.values() if document else ()
        return {each.fact.key: each.fact.value for each in held if each.fact.value is not None}

    def write(self, now: float, changes: Mapping[str, bytes | None], *, volatile: bool = False) -> list[Delta]:
        """Change own facts (None deletes). Returns what to tell others. Raises FactTooLargeError."""
        for key, value in changes.items():
            check_size(key, value)
        mine = self._documents[self._me]
        before = mine.version
        for key, value in changes.items():
            mine.version += 1
            self._hold(mine, Fact(self._me, mine.life, mine.version, key, value, volatile), now)
        return list(self._cut(self._me, mine, before))

    def outbid(self, now: float, life: Life) -> None:
        """Begin a life above one that others believe in, with the same facts."""
        mine = self._documents[self._me]
        mine.life = evolve(mine.life, incarnation=life.incarnation + 1)
        for held in list(mine.facts.values()):
            self._hold(mine, evolve(held.fact, life=mine.life), now)

    def digest(self, owners: Iterable[PeerId]) -> dict[PeerId, DocumentVersion]:
        return {owner: self._documents[owner].reached for owner in owners if owner in self._documents}

    def missing_in(self, digest: Mapping[PeerId, DocumentVersion], owners: Iterable[PeerId]) -> list[Delta]:
        """What the sender of a digest lacks of these owners' documents."""
        deltas: list[Delta] = []
        for owner in owners:
            document = self._documents.get(owner)
            if document is not None:
                deltas += self._missing(owner, document, digest.get(owner))
        return deltas

    def covers(self, digest: Mapping[PeerId, DocumentVersion]) -> bool:
        """Whether the sender of the digest knows nothing that is missing here."""
        return all(self.has(owner, reached) for owner, reached in digest.items())

    def has(self, owner: PeerId, reached: DocumentVersion) -> bool:
        held = self.reached(owner)
        return held is not None and (held.life, held.version) >= (reached.life, reached.version)

    def apply(self, now: float, delta: Delta) -> bool:
        """Take over what is new; whether anything was. Facts that are malformed or not signed by their owner void the delta."""
        document = self._documents.get(delta.owner)
        if delta.owner == self._me or (document is not None and document.life > delta.life):
            return False
        news = self._read(delta, document if document and document.life == delta.life else None, now)
        if news is None:
            return False
        if document is None or document.life < delta.life:
            document = self._documents[delta.owner] = _Document(delta.life, now)
        document.touched_at = now
        return self._take(document, delta, news)

    def structural_hash(self, owners: Iterable[PeerId]) -> str:
        """Eight bytes (hex) that are equal where the same structural facts of these peers are held."""
        digest = blake2b(digest_size=8)
        for owner in sorted(owners):
            document = self._documents.get(owner)
            if document is not None:
                life, structural = document.life, document.structural
                digest.update(f"{owner} {life.incarnation} {life.process} {structural};".encode())
        return digest.hexdigest()

    def collect(self, now: float, members: Iterable[PeerId]) -> None:
        """Drop old tombstones, and documents of peers that are long gone."""
        kept = {self._me, *members}
        for owner, document in list(self._documents.items()):
            if owner in kept:
                document.touched_at = now
            elif now - document.touched_at >= self._settings.retention_s:
                del self._documents[owner]
            self._drop_tombstones(now, document)

    def _hold(self, mine: _Document, fact: Fact, now: float) -> None:
        body = encode_value(fact).decode()
        mine.facts[fact.key] = _Held(fact, SignedFact(body, self._sign(body.encode())), now)

    def _missing(self, owner: PeerId, document: _Document, theirs: DocumentVersion | None) -> Iterator[Delta]:
        if theirs is None or theirs.life < document.life:
            return self._cut(owner, document, 0)
        if theirs.life > document.life or theirs.version >= document.version:
            return iter(())
        return self._cut(owner, document, theirs.version if theirs.version >= document.forgotten else 0)

    def _cut(self, owner: PeerId, document: _Document, after: int) -> Iterator[Delta]:
        """All facts held above a version, in pieces that a message can carry."""
        facts = sorted((each for each in document.facts.values()), key=lambda each: each.fact.version)
        piece: list[_Held] = []
        for held in (each for each in facts if after < each.fact.version <= document.version):
            if piece and sum(each.size for each in piece) + held.size > MAX_DELTA_BYTES:
                up_to = piece[-1].fact.version
                yield Delta(owner, document.life, after, up_to, tuple(each.signed for each in piece))
                piece, after = [], up_to
            piece.append(held)
        if piece or after < document.version:
            yield Delta(owner, document.life, after, document.version, tuple(each.signed for each in piece))

    def _read(self, delta: Delta, document: _Document | None, now: float) -> list[_Held] | None:
        """The facts of a delta, checked; those held already are not checked again. None if one of them is wrong."""
        known = {each.fact.version: each for each in document.facts.values()} if document else {}
        news: list[_Held] = []
        for signed in delta.facts:
            try:
                fact = decode_fact(signed.body)
            except MalformedMessageError:
                return None
            held = known.get(fact.version)
            if held is None or held.signed != signed:
                if not self._is_genuine(delta, fact, signed):
                    return None
                held = _Held(fact, signed, now)
            news.append(held)
        return news

    def _is_genuine(self, delta: Delta, fact: Fact, signed: SignedFact) -> bool:
        within = delta.after < fact.version <= delta.up_to
        is_of_delta = (fact.owner, fact.life) == (delta.owner, delta.life) and within
        return is_of_delta and self._verify(delta.owner, signed.body.encode(), signed.signature)

    def _take(self, document: _Document, delta: Delta, news: list[_Held]) -> bool:
        changed = False
        listed = {each.fact.version for each in news}
        for held in news:
            mine = document.facts.get(held.fact.key)
            if mine is None or mine.fact.version < held.fact.version:
                document.facts[held.fact.key] = held
                changed = True
        # A delta lists all that is left of its range: what it does not list was deleted long ago.
        for key, held in list(document.facts.items()):
            if delta.after < held.fact.version <= delta.up_to and held.fact.version not in listed:
                del document.facts[key]
                changed = True
        if delta.after <= document.version < delta.up_to:
            document.version = delta.up_to
            changed = True
        return changed

    def _drop_tombstones(self, now: float, document: _Document) -> None:
        for key, held in list(document.facts.items()):
            is_old = now - held.held_since >= self._settings.tombstone_s
            if held.fact.value is None and is_old and held.fact.version <= document.version:
                document.forgotten = max(document.forgotten, held.fact.version)
                del document.facts[key]


def check_size(key: str, value: bytes | None) -> None:
    """Raises FactTooLargeError."""
    if value is not None and len(value) > MAX_VALUE_BYTES:
        raise FactTooLargeError(
            f"fact {key!r} has {len(value)} bytes, at most {MAX_VALUE_BYTES} are spread; send it over a stream"
        )
