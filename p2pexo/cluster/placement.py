"""Which machines run which layers of a model: the fewest that fit, layers shared out by memory. Pure and deterministic.

Weights, KV cache reserve, the embedding on the first stage and the head on the last are all counted where they sit.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from math import floor

from attrs import frozen

from p2pexo.generation.errors import InsufficientMemoryError, InvalidRequestError
from p2pexo.models.card import Card
from p2pexo.ring.plan import StagePlan

KV_RESERVE_TOKENS = 8192
"""Tokens of conversation a stage must have room for, or the model's whole context if that is shorter. Raise it and long or
many conversations fit everywhere, but a model needs more machines; lower it and they are refused sooner."""
KV_SHARE = 0.25
"""Of the memory that a model leaves free, the share that is set aside for conversations on top. Raise it and more of them,
and longer ones, are computed at a time; lower it and more models fit beside one another."""
KV_CONTEXTS = 4
"""Nothing is set aside for more conversations than so many of full length."""


@frozen
class Candidate:
    """A live machine, and what it can give."""

    peer: str
    name: str
    budget: int
    """Bytes that placements may use in all."""
    reserved: int = 0
    """Bytes that other placements have taken of it."""
    dense: bool = False
    """True if it dequantises weights at load."""
    preference: int = 0
    """Higher is taken first: it holds the model's files, or runs a stage of it already."""
    device: str = "cpu"

    @property
    def free(self) -> int:
        return self.budget - self.reserved

    def dequantises(self, precision: str) -> bool:
        return precision == "dequantise" or (precision == "auto" and self.dense)

    def format(self, precision: str) -> str:
        """The numbers in which it hands on hidden states; all stages of a ring must agree on them."""
        return "fp32" if self.device == "cpu" or self.dequantises(precision) else "the model's own"


def by_preference(candidate: Candidate) -> tuple[int, int, str]:
    """Sorts the machine to be taken first to the front."""
    return (-candidate.preference, -candidate.free, candidate.peer)


@frozen
class Demand:
    """Bytes a model needs on one machine."""

    layer: int
    embedding: int
    head: int
    token: int
    """KV cache of one token in one layer."""
    tokens: int
    """Of conversation, for which each layer counts in ``layer``."""
    most_tokens: int
    """For which more may be set aside."""

    def of_stage(self, layers: int, *, first: bool, last: bool, tokens: int | None = None) -> int:
        """With room for ``tokens`` of conversation if there is to be room for more than must be."""
        more = (tokens or self.tokens) - self.tokens
        return layers * (self.layer + more * self.token) + first * self.embedding + last * self.head

    def tokens_in(self, free: int, layers: int, *, first: bool, last: bool) -> int:
        """Tokens of conversation to set room aside for on a machine on which so many layers fit."""
        spare = free - self.of_stage(layers, first=first, last=last)
        more = floor(KV_SHARE * spare / max(1, layers * self.token))
        return min(self.tokens + more, self.most_tokens)

    def layers_in(self, free: int, *, first: bool, last: bool) -> int:
        """How many layers fit; 0 if not even the ends do."""
        return max(0, floor((free - self.of_stage(0, first=first, last=last)) / max(1, self.layer)))


def demand(card: Card, candidate: Candidate, precision: str = "auto") -> Demand:
    factor = card.dense_factor if candidate.dequantises(precision) else 1.0
    tokens = min(card.context_length, KV_RESERVE_TOKENS)
    return Demand(
        layer=int(card.layer_bytes * factor) + card.kv_bytes_per_token * tokens,
        embedding=int(card.embedding_bytes * factor),
        head=int(card.head_bytes * factor),
        token=card.kv_bytes_per_token,
        tokens=tokens,
        most_tokens=KV_CONTEXTS * card.context_length,
    )


def plan(
    card: Card, candidates: Sequence[Candidate], *, min_stages: int = 1, precision: str = "auto"
) -> tuple[StagePlan, ...]:
    """The stages in order, one machine each, all of which compute in the same number format.

    Raises InvalidRequestError if that many stages can't be made of the machines or layers there are, and
    InsufficientMemoryError, with what is needed and free on each machine, if the model fits on no number of them.
    """
    groups = by_format(candidates, precision)
    _check_stages(card, groups, min_stages)
    rooms = [Room(card, group, precision) for group in groups.values()]
    for count in range(max(1, min_stages), min(len(candidates), card.layers) + 1):
        able = [room for room in rooms if room.holds(count, ())]
        if able:
            room = min(able, key=lambda room: room.rank(count))
            return room.share_out(room.choose(count))
    raise InsufficientMemoryError(_explain(card, candidates, precision, min_stages), retry_after_s=60)


def by_format(candidates: Sequence[Candidate], precision: str) -> dict[str, list[Candidate]]:
    """The machines that can share a ring, by the format in which they compute."""
    groups: dict[str, list[Candidate]] = {}
    for each in candidates:
        groups.setdefault(each.format(precision), []).append(each)
    return groups


class Room:
    """How many layers each machine holds as first, middle, last or only stage, and what can be made of that."""

    def __init__(self, card: Card, candidates: Sequence[Candidate], precision: str) -> None:
        self._card = card
        self._machines = sorted(candidates, key=by_preference)
        self._demands = [demand(card, each, precision) for each in self._machines]

    def holds(self, count: int, chosen: Sequence[int]) -> bool:
        """Whether ``count`` machines, ``chosen`` among them, can hold all layers with at least one each."""
        return self._best_ends(count, chosen, range(len(self._machines))) is not None

    def choose(self, count: int) -> list[int]:
        """Machines in order of preference, as long as the others can still hold the rest; then in the order of the ring."""
        chosen: list[int] = []
        for machine in range(len(self._machines)):
            if len(chosen) < count and self.holds(count, [*chosen, machine]):
                chosen.append(machine)
        first, last = self._best_ends(count, chosen, chosen) or (chosen[0], chosen[-1])
        middle = [each for each in chosen if each not in (first, last)]
        return [first, *middle, *([last] if last != first else [])]

    def rank(self, count: int) -> tuple[bool, list[tuple[int, int, str]]]:
        """Sorts the room to be taken first to the front: one of GPUs, then the one with the preferred machines."""
        chosen = [self._machines[each] for each in self.choose(count)]
        return any(each.device == "cpu" for each in chosen), sorted(by_preference(each) for each in chosen)

    def share_out(self, ring: Sequence[int]) -> tuple[StagePlan, ...]:
        """Layers in proportion to what each stage holds, by the method of the largest remainder; and room for equally many
        tokens of conversation on each."""
        ends = [(rank == 0, rank == len(ring) - 1) for rank in range(len(ring))]
        capacities = [self._capacity(machine, *end) for machine, end in zip(ring, ends, strict=True)]
        shares = list(zip(ring, proportional(self._card.layers, capacities), ends, strict=True))
        tokens = min(self._tokens(*share) for share in shares)
        stages: list[StagePlan] = []
        start = 0
        for machine, layers, (first, last) in shares:
            reserved = self._demands[machine].of_stage(layers, first=first, last=last, tokens=tokens)
            stages.append(StagePlan(self._machines[machine].peer, start, start + layers, reserved, tokens))
            start += layers
        return tuple(stages)

    def _tokens(self, machine: int, layers: int, end: tuple[bool, bool]) -> int:
        first, last = end
        return self._demands[machine].tokens_in(self._machines[machine].free, layers, first=first, last=last)

    def _capacity(self, machine: int, first: bool, last: bool) -> int:
        return self._demands[machine].layers_in(self._machines[machine].free, first=first, last=last)

    def _best_ends(self, count: int, chosen: Sequence[int], pool: Iterable[int]) -> tuple[int, int] | None:
        """The most preferred first and last machine with which everything fits; for one stage the same machine twice."""
        pool = list(pool)
        pairs = [(each, each) for each in pool] if count == 1 else permutations(pool, 2)
        return next((pair for pair in pairs if self._fits(count, chosen, pool, pair)), None)

    def _fits(self, count: int, chosen: Sequence[int], pool: Sequence[int], ends: tuple[int, int]) -> bool:
        first, last = ends
        if first == last:
            return set(chosen) <= {first} and self._capacity(first, True, True) >= self._card.layers
        fixed = [each for each in chosen if each not in ends]
        spare = sorted(
            (self._capacity(each, False, False) for each in pool if each not in (*ends, *fixed)), reverse=True
        )
        wanted = count - 2 - len(fixed)
        if wanted < 0 or len(spare) < wanted:
            return False
        held = [self._capacity(first, True, False), self._capacity(last, False, True)]
        held += [self._capacity(each, False, False) for each in fixed] + spare[:wanted]
        return min(held) >= 1 and sum(held) >= self._card.layers


def proportional(total: int, capacities: Sequence[int]) -> list[int]:
    """Split ``total`` in proportion to the capacities; each part is at least 1 and at most its capacity."""
    whole = sum(capacities)
    shares = [max(1, total * each // whole) for each in capacities]
    by_remainder = sorted(range(len(capacities)), key=lambda index: (-(total * capacities[index] % whole), index))
    for index in by_remainder:
        if sum(shares) < total and shares[index] < capacities[index]:
            shares[index] += 1
    while sum(shares) > total:
        shares[shares.index(max(shares))] -= 1
    return shares


def _check_stages(card: Card, groups: Mapping[str, Sequence[Candidate]], min_stages: int) -> None:
    if min_stages < 1:
        raise InvalidRequestError(f"min_stages must be at least 1, not {min_stages}", param="min_stages")
    most = max((len(group) for group in groups.values()), default=0)
    if min_stages > most:
        there = f"{most} node{'' if most == 1 else 's'}"
        advice = f"add machines or ask for fewer stages{_of_formats(groups)}"
        message = f"min_stages is {min_stages}, but {there} can run {card.id}; {advice}"
        raise InvalidRequestError(message, param="min_stages")
    if min_stages > card.layers:
        message = f"min_stages is {min_stages}, but {card.id} has only {card.layers} layers"
        raise InvalidRequestError(message, param="min_stages")


def _explain(card: Card, candidates: Sequence[Candidate], precision: str, min_stages: int) -> str:
    lines = [
        f"{each.name}: needs {_size(demand(card, each, precision).of_stage(card.layers, first=True, last=True))} "
        f"for the whole model, {_size(each.free)} of {_size(each.budget)} free"
        for each in candidates
    ]
    tokens = min(card.context_length, KV_RESERVE_TOKENS)
    split = f" in at least {min_stages} stages" if min_stages > 1 else ""
    return (
        f"{card.id} does not fit{split}, with room for {tokens} tokens of conversation ({'; '.join(lines) or 'no nodes'}). "
        f"Delete another model, raise --memory, or add a machine{_of_formats(by_format(candidates, precision))}."
    )


def _of_formats(groups: Mapping[str, Sequence[Candidate]]) -> str:
    if len(groups) < 2:
        return ""
    told = ", ".join(f"{len(group)} in {format}" for format, group in sorted(groups.items()))
    return f" (machines that compute in different number formats can't share a ring: here {told})"


def _size(number: int) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{max(number, 0) / 1e6:.0f} MB"
