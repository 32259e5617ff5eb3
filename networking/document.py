"""One copy of one peer's document, and what of it another copy lacks (pure)."""

from collections.abc import Iterator

from attrs import define, field, frozen

from networking.wire import Delta, DocumentVersion, Fact, Head, Life, Signed

MAX_DELTA_BYTES = 256 * 1024
"""A delta is cut beyond this. Raised, heartbeats wait longer behind it; lowered, more messages on catching up."""


@frozen
class Held:
    fact: Fact
    signed: Signed

    @property
    def size(self) -> int:
        return len(self.signed.body) + len(self.signed.signature)


@frozen
class News:
    """A delta whose signatures are the owner's."""

    head: Head
    signed: Signed
    facts: tuple[Held, ...]


@define
class Document:
    head: Head
    signed: Signed
    touched_at: float
    version: int = 0
    """Every fact up to it is held; single newer ones may be, too."""
    facts: dict[str, Held] = field(factory=dict[str, Held])

    @property
    def life(self) -> Life:
        return self.head.life

    @property
    def structural(self) -> int:
        return min(self.head.structural, self.version)

    def take(self, news: News) -> bool:
        """Take over what is new of the same life; whether anything was."""
        before = (self.head, dict(self.facts))
        if news.head.version > self.head.version:
            self.head, self.signed = news.head, news.signed
        listed = set(self.head.facts)
        for held in news.facts:
            mine = self.facts.get(held.fact.key)
            if held.fact.version in listed and (mine is None or mine.fact.version < held.fact.version):
                self.facts[held.fact.key] = held
        self._settle(listed)
        return (self.head, self.facts) != before

    def _settle(self, listed: set[int]) -> None:
        """Find out how far this copy goes. What was replaced stays until its replacement is here, too."""
        missing = listed - {each.fact.version for each in self.facts.values()}
        self.version = min(missing) - 1 if missing else self.head.version
        if not missing:
            self.facts = {key: held for key, held in self.facts.items() if held.fact.version in listed}


def missing(document: Document, theirs: DocumentVersion | None) -> Iterator[Delta]:
    """What somebody lacks of it who holds that much."""
    if theirs is None or theirs.life < document.life:
        return cut(document, 0)
    is_behind = theirs.life == document.life and theirs.version < document.version
    return cut(document, theirs.version) if is_behind else iter(())


def cut(document: Document, after: int) -> Iterator[Delta]:
    """The head, and all facts held above a version, in pieces that a message can carry."""
    facts = sorted(document.facts.values(), key=lambda each: each.fact.version)
    piece: list[Signed] = []
    size = 0
    for held in (each for each in facts if each.fact.version > after):
        if piece and size + held.size > MAX_DELTA_BYTES:
            yield Delta(document.signed, tuple(piece))
            piece, size = [], 0
        piece.append(held.signed)
        size += held.size
    yield Delta(document.signed, tuple(piece))
