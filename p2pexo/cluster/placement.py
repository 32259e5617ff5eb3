"""Which machines run which layers of a model: the fewest that hold it, and of those the fastest. Pure and deterministic.

Weights, KV cache reserve, the embedding on the first stage and the head on the last are all counted where they sit.
"""

from collections.abc import Mapping, Sequence

from p2pexo.cluster.demand import KV_RESERVE_TOKENS, demand
from p2pexo.cluster.machines import Candidate, by_format, by_preference
from p2pexo.cluster.rings import Ring, Rings
from p2pexo.generation.errors import InsufficientMemoryError, InvalidRequestError
from p2pexo.models.card import Card
from p2pexo.ring.plan import StagePlan


def plan(
    card: Card, candidates: Sequence[Candidate], *, min_stages: int = 1, precision: str = "auto"
) -> tuple[StagePlan, ...]:
    """The stages in order, one machine each, all of which compute in the same number format.

    Raises InvalidRequestError if that many stages can't be made of the machines or layers there are, and
    InsufficientMemoryError, with what is needed and free on each machine, if the model fits on no number of them.
    """
    most = most_stages(card, candidates, precision, min_stages)
    for count in range(min_stages, most + 1):
        stages = best_of(card, candidates, count, precision)
        if stages is not None:
            return stages
    raise InsufficientMemoryError(explain(card, candidates, precision, min_stages), retry_after_s=60)


def best_of(
    card: Card, candidates: Sequence[Candidate], count: int, precision: str = "auto"
) -> tuple[StagePlan, ...] | None:
    """The best ring of so many machines, or None if none holds the model."""
    groups = [Rings(card, group, precision) for group in by_format(candidates, precision).values()]
    found = [(rings, ring) for rings in groups if (ring := rings.best(count)) is not None]
    if not found:
        return None
    measured = all(rings.by_speed for rings, _ in found)
    rings, ring = min(found, key=lambda each: _merit(each[1], measured))
    return rings.stages(ring.machines, ring.ends)


def _merit(ring: Ring, measured: bool) -> tuple[float, bool, list[tuple[int, int, str]]]:
    """Sorts the ring to be taken first to the front: by speed, or else one of GPUs, then that of the preferred machines."""
    on_cpu = any(each.device == "cpu" for each in ring.machines)
    return ring.round_s if measured else 0.0, on_cpu, sorted(map(by_preference, ring.machines))


def most_stages(card: Card, candidates: Sequence[Candidate], precision: str, min_stages: int = 1) -> int:
    """Into how many stages the model can be cut here. Raises InvalidRequestError if these are not enough."""
    groups = by_format(candidates, precision)
    _check_stages(card, groups, min_stages)
    return min(max(map(len, groups.values())), card.layers)


def _check_stages(card: Card, groups: Mapping[str, Sequence[Candidate]], min_stages: int) -> None:
    if min_stages < 1:
        raise InvalidRequestError(f"min_stages must be at least 1, not {min_stages}", param="min_stages")
    most = max((len(group) for group in groups.values()), default=0)
    if min_stages > most:
        there = f"{most} node{'' if most == 1 else 's'}"
        advice = f"add machines or ask for fewer stages{_of_formats(groups)}"
        message = f"min_stages is {min_stages}, but {there} can run {card.id}; {advice}"
        raise InvalidRequestError(message, param="min_stages")
    if min_stages > 1 and card.whole:
        message = f"min_stages is {min_stages}, but {card.id} is {of_whole(card)}"
        raise InvalidRequestError(message, param="min_stages")
    if min_stages > card.layers:
        message = f"min_stages is {min_stages}, but {card.id} has only {card.layers} layers"
        raise InvalidRequestError(message, param="min_stages")


def explain(card: Card, candidates: Sequence[Candidate], precision: str, min_stages: int) -> str:
    """Why the model fits nowhere."""
    lines = [
        f"{each.name}: needs {size(demand(card, each, precision).of_stage(0, card.layers))} "
        f"for the whole model, {size(each.free)} of {size(each.budget)} free"
        for each in candidates
    ]
    tokens = min(card.context_length, KV_RESERVE_TOKENS)
    split = f" in at least {min_stages} stages" if min_stages > 1 else ""
    whole = f" It is {of_whole(card)}." if card.whole else ""
    return (
        f"{card.id} does not fit{split}, with room for {tokens} tokens of conversation ({'; '.join(lines) or 'no nodes'}).{whole} "
        f"Delete another model, raise --memory, or add a machine{_of_formats(by_format(candidates, precision))}."
    )


def of_whole(card: Card) -> str:
    """Why it is not cut, behind "is"."""
    return f"of the architecture {card.architecture!r}, which runs on one machine or not at all"


def _of_formats(groups: Mapping[str, Sequence[Candidate]]) -> str:
    if len(groups) < 2:
        return ""
    told = ", ".join(f"{len(group)} in {format}" for format, group in sorted(groups.items()))
    return f" (machines that compute in different number formats can't share a ring: here {told})"


def size(number: int) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{max(number, 0) / 1e6:.0f} MB"
