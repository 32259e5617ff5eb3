# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# mlx-lm's caches are untyped
"""The KV caches of a stage's sequences, pooled so that sequences which decode together lie in one batched cache.

A batch says which sequences it computes, in which order, and that is all that is needed: rows that lie elsewhere are
taken out of their pools and joined. While the same sequences travel together nothing moves; a sequence that travels
alone has a plain cache, which costs nothing extra.
"""

from collections.abc import Sequence
from copy import copy
from itertools import groupby
from typing import Any

import mlx.core as mx
from attrs import define, field

Caches = list[Any]
"""One for each layer of the stage, all for the same sequences."""


@define(eq=False)
class Pool:
    """Rows of sequences in the same caches; plain ones if it was made for one sequence."""

    sequences: list[int | None]
    """By row; None where a sequence has gone."""
    caches: Caches
    is_plain: bool

    @property
    def live(self) -> list[int]:
        return [each for each in self.sequences if each is not None]


@define
class CachePools:
    _pools: dict[int, Pool] = field(factory=dict[int, Pool], init=False)
    """By sequence."""

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._pools

    def add(self, sequence: int, caches: Caches) -> None:
        """A sequence begins, with plain caches, and forgets what there was of it."""
        self.drop(sequence)
        self._pools[sequence] = Pool([sequence], caches, is_plain=True)

    def fork(self, source: int, sequence: int, tokens: int) -> None:
        """A sequence begins with the first tokens of another one; what they share is not copied before one of them grows.

        Raises ValueError if the source isn't here, or its caches don't remember the state at that place.
        """
        pool = self._pools.get(source)
        if pool is None:
            raise ValueError(f"sequence {source} is not cached here")
        row = pool.sequences.index(source)
        caches = pool.caches if pool.is_plain else [each.extract(row) for each in pool.caches]
        self.add(sequence, [_first(each, tokens) for each in caches])

    def set_apart(self, sequence: int) -> None:
        """Give a sequence that travels no more a plain cache of its own, which can be dropped without the others'."""
        pool = self._pools.get(sequence)
        if pool is not None and not pool.is_plain:
            self.add(sequence, _rows(pool, [sequence]).caches)
            mx.eval([each.state for each in self._pools[sequence].caches])

    def drop(self, sequence: int) -> None:
        """Its row is left as a hole until the others of its pool are next asked for."""
        pool = self._pools.pop(sequence, None)
        if pool is not None:
            pool.sequences[pool.sequences.index(sequence)] = None

    def clear(self) -> None:
        self._pools.clear()

    def take(self, sequences: Sequence[int]) -> Caches:
        """Caches whose rows are exactly these sequences, in this order. Raises KeyError for one that isn't here."""
        pool = self._pools[sequences[0]]
        if pool.sequences != list(sequences):
            runs = [list(run) for _, run in groupby(sequences, key=lambda each: id(self._pools[each]))]
            pool = _join([self._cut(run) for run in runs])
            self._pools.update(dict.fromkeys(sequences, pool))
        return pool.caches

    def _cut(self, sequences: list[int]) -> Pool:
        """A pool of these rows of one pool; the others, if any are wanted still, stay behind in theirs."""
        pool = self._pools[sequences[0]]
        if pool.sequences == sequences:
            return pool
        rest = [each for each in pool.live if each not in sequences]
        taken = _rows(pool, sequences)
        if rest:
            self._pools.update(dict.fromkeys(rest, _rows(pool, rest)))
        return taken


def _first(cache: Any, tokens: int) -> Any:
    """A plain cache of the first tokens of one, which stays as it is."""
    more = cache.offset - tokens
    if more < 0 or (more and not cache.is_trimmable()):
        raise ValueError(f"a {type(cache).__name__} of {cache.offset} tokens can't go back to its first {tokens}")
    first = copy(cache)
    # Other arrays on the same memory: caches grow by assigning to theirs in place.
    first.keys, first.values = cache.keys[..., : cache.keys.shape[2], :], cache.values[..., : cache.values.shape[2], :]
    first.trim(more)
    return first


def _rows(pool: Pool, sequences: Sequence[int]) -> Pool:
    """Copies of these rows alone."""
    numbers = [pool.sequences.index(each) for each in sequences]
    if len(numbers) == 1:
        return Pool(list(sequences), [each.extract(numbers[0]) for each in pool.caches], is_plain=True)
    caches = [copy(each) for each in pool.caches]
    for each in caches:
        each.filter(mx.array(numbers))
    return Pool(list(sequences), caches, is_plain=False)


def _join(pools: Sequence[Pool]) -> Pool:
    """One pool of all their rows, in order. The pools are used up."""
    if len(pools) == 1:
        return pools[0]
    plain = [list(run) for _, run in groupby(pools, key=lambda pool: pool.is_plain)]
    batched = [each for run in plain for each in (_merged(run) if run[0].is_plain else run)]
    first, *others = batched
    for other in others:
        for ours, theirs in zip(first.caches, other.caches, strict=True):
            ours.extend(theirs)
    return Pool([each for pool in pools for each in pool.sequences], first.caches, is_plain=False)


def _merged(pools: Sequence[Pool]) -> list[Pool]:
    """Plain pools as a single batched one."""
    layers = zip(*(pool.caches for pool in pools), strict=True)
    caches = [type(layer[0]).merge(list(layer)) for layer in layers]
    return [Pool([each for pool in pools for each in pool.sequences], caches, is_plain=False)]
