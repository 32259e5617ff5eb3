"""Where to cut a model's layers for a ring whose machines are in order: the slowest stage as fast as can be. Pure.

The layers that a machine can take follow one another, and more of them never take less time or memory. So for a given limit
of time it is best that every machine takes as many as it may, in order; and the least limit for which that reaches the last
layer is found by bisection (the linear partition problem, with a capacity for each part).
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from math import inf

from attrs import frozen

_HALVINGS = 40
"""Of the interval in which the least limit is known to be. Raise it and cuts differ for machines that differ by less."""
_ROUNDING = 1e-9
"""By how much sums of the same numbers may differ."""


@frozen
class Slot:
    """A machine at its place in a ring."""

    sizes: Sequence[float]
    """Bytes of the layers before each layer, and of all."""
    room: float
    """Bytes that are there for layers."""
    work: Sequence[float]
    """Cost of the layers before each layer, and of all: seconds, or any other measure that is to be evened out."""
    fixed: float = 0.0
    """Cost besides that of the layers."""

    @cached_property
    def least_size(self) -> float:
        """Of one layer."""
        return _least_step(self.sizes)

    @cached_property
    def least_work(self) -> float:
        """Of one layer."""
        return _least_step(self.work)

    def takes_any(self, limit: float) -> bool:
        """Whether one layer at least may lie here."""
        return self.least_size <= self.room + _ROUNDING and self.least_work + self.fixed <= limit * (1 + _ROUNDING)

    def furthest(self, start: int, limit: float) -> int:
        """The end of the longest stage from ``start`` on that fits and costs no more than the limit."""
        by_memory = bisect_right(self.sizes, self.sizes[start] + self.room) - 1
        by_cost = bisect_right(self.work, self.work[start] + (limit - self.fixed)) - 1
        return min(by_memory, by_cost)

    def cost(self, start: int, end: int) -> float:
        return self.fixed + self.work[end] - self.work[start]


def fill(slots: Sequence[Slot], limit: float = inf) -> list[int] | None:
    """The ends of stages that cost no more than the limit, one layer at least in each; None if there are none."""
    layers = len(slots[0].sizes) - 1
    if not all(slot.takes_any(limit) for slot in slots):
        return None
    ends = _reach(slots, len(slots) - 1, layers, limit)
    return ends if ends is not None and ends[-1] == layers else None


def _reach(slots: Sequence[Slot], rank: int, most: int, limit: float) -> list[int] | None:
    """The ends of the stages up to ``rank`` with which that one reaches furthest, but not beyond ``most``; None if there are none.

    Where the next layer alone is too much for a stage, those before it stop earlier.
    """
    before = _reach(slots, rank - 1, most - 1, limit) if rank else [0]
    while before is not None:
        start = before[-1]
        end = min(slots[rank].furthest(start, limit), most)
        if end > start:
            return [*before, end] if rank else [end]
        before = _reach(slots, rank - 1, start - 1, limit) if rank else None
    return None


def slowest(slots: Sequence[Slot], ends: Sequence[int]) -> float:
    """The cost of the stage that costs most."""
    return max(slot.cost(start, end) for slot, start, end in zip(slots, [0, *ends], ends, strict=False))


def split(slots: Sequence[Slot]) -> list[int] | None:
    """The ends of stages of which the slowest is as fast as can be; None if the layers don't fit."""
    best = fill(slots)
    if best is None:
        return None
    low, high = 0.0, slowest(slots, best)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        ends = fill(slots, middle)
        if ends is None:
            low = middle
        else:
            best, high = ends, min(middle, slowest(slots, ends))
    return best


def _least_step(sums: Sequence[float]) -> float:
    return min(after - before for before, after in pairwise(sums))
