"""Which machines, in which order, make the best ring of so many stages. Pure and deterministic.

By measured speed where all that could take part know theirs, else by memory alone: then the layers go in proportion to what
each machine holds, and the machines in order of preference.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, combinations, permutations
from math import inf, perm

from attrs import field, frozen

from p2pexo.cluster.demand import Demand, demand
from p2pexo.cluster.machines import Candidate, by_preference
from p2pexo.cluster.speed import is_measured, latency_s, seconds_per_byte, sending_s
from p2pexo.cluster.splitting import Slot, fill, slowest, split
from p2pexo.models.card import Card
from p2pexo.ring.plan import StagePlan

MOST_MACHINES = 8
"""Of more machines only those are weighed that hold most, or as many as there are to be stages."""
MOST_ORDERS = 2000
"""Up to so many rings all orders are tried; beyond, all first and last machines, and the nearest next between them."""
AS_GOOD = 1.05
"""Machines that are preferred are taken if that makes a round of a token slower by no more than this. Raise it and fewer
weights are fetched and loaded; lower it and small differences of measurement decide."""


@frozen
class Ring:
    machines: tuple[Candidate, ...]
    ends: tuple[int, ...]
    """The end of each stage's layers."""
    round_s: float
    """If every stage took as long as the slowest, with the way round; infinite if speeds are not known."""


def _preferred_first(machines: Sequence[Candidate]) -> list[Candidate]:
    return sorted(machines, key=by_preference)


@frozen(slots=False)
class Rings:
    """Of machines that compute in one format."""

    card: Card
    machines: Sequence[Candidate] = field(converter=_preferred_first)
    precision: str
    _made: dict[tuple[str, bool, bool, str], Slot] = field(factory=dict[tuple[str, bool, bool, str], Slot], init=False)

    @cached_property
    def by_speed(self) -> bool:
        return is_measured(self.machines)

    @cached_property
    def _demands(self) -> dict[str, Demand]:
        return {each.peer: demand(self.card, each, self.precision) for each in self.machines}

    def best(self, count: int) -> Ring | None:
        """The best one of ``count`` machines, or None if none holds the model.

        Of sets of machines that are as good as the best, the first in order of preference.
        """
        if not self._may_hold(count):
            return None
        sets = combinations(self._pool(count), count)
        found = filter(None, map(self._best_order, sets))
        if not self.by_speed:
            return next(found, None)
        rings = list(found)
        least = min((ring.round_s for ring in rings), default=inf)
        return next((ring for ring in rings if ring.round_s <= AS_GOOD * least), None)

    def stages(self, machines: Sequence[Candidate], ends: Sequence[int]) -> tuple[StagePlan, ...]:
        """With room for equally many tokens of conversation on each stage."""
        spans = list(zip(machines, [0, *ends], ends, strict=False))
        tokens = min(self._demands[each.peer].tokens_in(each.free, start, end) for each, start, end in spans)
        return tuple(
            StagePlan(each.peer, start, end, self._demands[each.peer].of_stage(start, end, tokens), tokens)
            for each, start, end in spans
        )

    def _best_order(self, chosen: Sequence[Candidate]) -> Ring | None:
        best: Ring | None = None
        for order in _orders(chosen, len(self.machines)):
            slots = self._slots(order)
            way_s = latency_s(order)
            if fill(slots, inf if best is None else (best.round_s * (1 - 1e-9) - way_s) / len(order)) is None:
                continue
            ends = split(slots)
            if ends is not None:
                best = Ring(tuple(order), tuple(ends), self._round_s(slots, ends, way_s))
                if not self.by_speed:
                    return best
        return best

    def _round_s(self, slots: Sequence[Slot], ends: Sequence[int], way_s: float) -> float:
        return len(slots) * slowest(slots, ends) + way_s if self.by_speed else inf

    def _slots(self, order: Sequence[Candidate]) -> list[Slot]:
        last = len(order) - 1
        following = [*order[1:], None]
        return [self._slot(each, rank == 0, rank == last, following[rank]) for rank, each in enumerate(order)]

    def _slot(self, machine: Candidate, first: bool, last: bool, following: Candidate | None) -> Slot:
        place = (machine.peer, first, last, following.peer if following and self.by_speed else "")
        if place not in self._made:
            self._made[place] = self._make_slot(machine, first, last, following)
        return self._made[place]

    def _make_slot(self, machine: Candidate, first: bool, last: bool, following: Candidate | None) -> Slot:
        sizes = self._demands[machine.peer].layers
        room = machine.free - self._demands[machine.peer].of_ends(first=first, last=last)
        if not self.by_speed:
            return Slot(sizes, room, [size / max(1, room) for size in sizes])
        pace = seconds_per_byte(self.card, machine, self.precision)
        sent = sending_s(self.card, machine, following, self.precision) if following else 0.0
        return Slot(sizes, room, self._work[machine.peer], last * self.card.head_bytes * pace + sent)

    @cached_property
    def _work(self) -> dict[str, tuple[float, ...]]:
        """Seconds of the layers before each layer, by machine."""
        sums = list(accumulate(self.card.active_sizes, initial=0))
        paces = {each.peer: seconds_per_byte(self.card, each, self.precision) for each in self.machines}
        return {peer: tuple(size * pace for size in sums) for peer, pace in paces.items()}

    def _share(self, machine: Candidate) -> float:
        """Of all layers, how large a part it could hold between others."""
        return machine.free / max(1.0, self._demands[machine.peer].layers[-1])

    def _may_hold(self, count: int) -> bool:
        """False if no ring of so many machines can hold the model, whatever their order."""
        shares = sorted(map(self._share, self.machines), reverse=True)[:count]
        return len(shares) == count and sum(shares) >= 1 - 1e-9

    def _pool(self, count: int) -> list[Candidate]:
        largest = sorted(self.machines, key=lambda each: (-self._share(each), by_preference(each)))
        return sorted(largest[: max(count, MOST_MACHINES)], key=by_preference)


def _orders(chosen: Sequence[Candidate], of: int) -> Iterator[Sequence[Candidate]]:
    if perm(min(of, max(MOST_MACHINES, len(chosen))), len(chosen)) <= MOST_ORDERS:
        yield from permutations(chosen)
        return
    for first, last in permutations(chosen, 2):
        yield [*_nearest_first(first, [each for each in chosen if each not in (first, last)]), last]


def _nearest_first(first: Candidate, others: list[Candidate]) -> list[Candidate]:
    path = [first]
    while others:
        path.append(min(others, key=lambda each: _distance(path[-1], each)))
        others.remove(path[-1])
    return path


def _distance(one: Candidate, other: Candidate) -> float:
    link = one.link_to(other)
    return link.round_trip_s if link else 0.0
