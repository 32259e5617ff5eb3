"""Which sequences begin alike, so that a prompt can take over what another one has computed. Pure.

Stage 0 alone decides by it; the other stages do as its batches say. Tokens are looked up block by block, the key of a
block being a hash of all tokens up to its end (as in vLLM's prefix caching), so that a look-up takes as long as the prompt,
however many sequences are kept.
"""

from collections.abc import Iterator, Sequence

from attrs import define, field

from p2pexo.engine.batch import Fork
from p2pexo.engine.groups import rounded

BLOCK = 32
"""Tokens. Raise it and fewer keys are kept; lower it and a few more tokens are found again."""


@define
class Prefixes:
    _tokens: dict[int, tuple[int, ...]] = field(factory=dict[int, tuple[int, ...]], init=False)
    """By sequence: what its caches hold."""
    _kept: dict[int, None] = field(factory=dict[int, None], init=False)
    """The sequences that have ended and are kept for others; the one used longest ago comes first."""
    _holders: dict[int, dict[int, None]] = field(factory=dict[int, dict[int, None]], init=False)
    """By key of a block: the sequences that have it."""
    room: int = field(default=0, init=False)
    """Tokens that the caches of the kept ones take."""

    def add(self, sequence: int, tokens: Sequence[int]) -> None:
        """The caches of a running sequence hold these tokens, at least."""
        self.drop(sequence)
        self._tokens[sequence] = tuple(tokens)
        for key in _keys(tokens):
            self._holders.setdefault(key, {})[sequence] = None

    def keep(self, sequence: int, tokens: Sequence[int]) -> list[int]:
        """The sequence has ended, but its caches are kept; those that are not needed beside it, perhaps its own."""
        if len(tokens) < BLOCK:
            self.drop(sequence)
            return [sequence]
        needless = [each for each in self._kept if self._tokens[each] == tuple(tokens[: len(self._tokens[each])])]
        for each in needless:
            self.drop(each)
        self.add(sequence, tokens)
        self._kept[sequence] = None
        self.room += rounded(len(tokens))
        return needless

    def drop(self, sequence: int) -> bool:
        """Its caches are not to be taken over any more; whether it was kept for that alone."""
        tokens = self._tokens.pop(sequence, ())
        for key in _keys(tokens):
            holders = self._holders[key]
            del holders[sequence]
            if not holders:
                del self._holders[key]
        if sequence not in self._kept:
            return False
        del self._kept[sequence]
        self.room -= rounded(len(tokens))
        return True

    def drop_oldest(self) -> int:
        """Of the kept sequences, the one that was used longest ago. There must be one."""
        oldest = next(iter(self._kept))
        self.drop(oldest)
        return oldest

    def find(self, tokens: Sequence[int]) -> Fork | None:
        """The sequence that shares most of the first tokens, in whole blocks; at least one token is left to compute."""
        found: Fork | None = None
        for number, key in enumerate(_keys(tokens[:-1]), start=1):
            holders = self._holders.get(key)
            if holders is None:
                break
            found = Fork(next(reversed(holders)), number * BLOCK)
        if found is None or self._tokens[found.sequence][: found.tokens] != tuple(tokens[: found.tokens]):
            return None
        if found.sequence in self._kept:
            self._kept[found.sequence] = self._kept.pop(found.sequence)
        return found

    def clear(self) -> None:
        self._tokens.clear()
        self._kept.clear()
        self._holders.clear()
        self.room = 0


def _keys(tokens: Sequence[int]) -> Iterator[int]:
    key = 0
    for end in range(BLOCK, len(tokens) + 1, BLOCK):
        key = hash((key, tuple(tokens[end - BLOCK : end])))
        yield key
