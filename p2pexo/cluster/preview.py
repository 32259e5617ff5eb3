"""What placing a model would do, and what else could be done: a ring of each number of machines. Pure."""

from collections.abc import Sequence

from attrs import frozen

from p2pexo.cluster.demand import demand
from p2pexo.cluster.machines import Candidate, by_format
from p2pexo.cluster.manual import Part, plan_split
from p2pexo.cluster.placement import best_of, most_stages, of_whole, size
from p2pexo.cluster.speed import ring_speed, unmeasured
from p2pexo.generation.errors import InsufficientMemoryError
from p2pexo.models.card import Card
from p2pexo.ring.plan import StagePlan


@frozen
class StagePreview:
    peer: str
    node: str
    first_layer: int
    end_layer: int
    """Exclusive."""
    memory_bytes: int
    """Weights, ends and room for conversations."""
    memory_free: int
    """Bytes free for models there, before this one."""
    token_s: float | None = None
    """Seconds that one token takes in it, handing it on included; None if the machine knows no speed yet."""


@frozen
class PlacementOption:
    machines: int
    stages: tuple[StagePreview, ...] = ()
    """Empty if it is impossible."""
    cache_tokens: int = 0
    """Tokens of conversation that all stages would have room for."""
    decode_tokens_per_s: float | None = None
    """Expected of one answer at a time; None if a machine knows no speed yet."""
    prefill_tokens_per_s: float | None = None
    """Expected of a long prompt; None likewise."""
    note: str = ""
    """Why no speed is expected."""
    reason: str = ""
    """Why it is impossible; empty if it isn't."""


@frozen
class PlacementPreview:
    model: str
    options: tuple[PlacementOption, ...]
    chosen: int | None
    """The number of machines that would be used; None if the model can't be placed so."""
    running: str = ""
    """Id of the placement that runs the model already; placing gives that one."""


def preview(
    card: Card,
    candidates: Sequence[Candidate],
    *,
    min_stages: int = 1,
    precision: str = "auto",
    split: Sequence[Part] = (),
    running: str = "",
) -> PlacementPreview:
    """Raises InvalidRequestError for what can't be had of these machines at all, whatever memory they have."""
    if split:
        options = [_split_option(card, candidates, split, precision)]
    else:
        most = most_stages(card, candidates, precision, min_stages)
        options = [_option(card, candidates, count, precision) for count in range(1, most + 1)]
        if card.whole and len(candidates) > 1:
            options.append(PlacementOption(2, reason=f"{card.id} is {of_whole(card)}"))
    fitting = (each.machines for each in options if each.stages and each.machines >= min_stages)
    return PlacementPreview(card.id, tuple(options), next(fitting, None), running)


def _option(card: Card, candidates: Sequence[Candidate], count: int, precision: str) -> PlacementOption:
    stages = best_of(card, candidates, count, precision)
    if stages is None:
        return PlacementOption(count, reason=_shortage(card, candidates, count, precision))
    return _of_stages(card, candidates, stages, precision)


def _split_option(
    card: Card, candidates: Sequence[Candidate], split: Sequence[Part], precision: str
) -> PlacementOption:
    try:
        return _of_stages(card, candidates, plan_split(card, candidates, split, precision), precision)
    except InsufficientMemoryError as error:
        return PlacementOption(len(split), reason=error.message)


def _of_stages(
    card: Card, candidates: Sequence[Candidate], stages: Sequence[StagePlan], precision: str
) -> PlacementOption:
    by_peer = {each.peer: each for each in candidates}
    ring = [by_peer[stage.peer] for stage in stages]
    speed = ring_speed(card, ring, stages, precision)
    times = speed.stage_s if speed else (None,) * len(stages)
    return PlacementOption(
        machines=len(stages),
        stages=tuple(
            StagePreview(
                each.peer, each.name, stage.first_layer, stage.end_layer, stage.reserved_bytes, each.free, token_s
            )
            for each, stage, token_s in zip(ring, stages, times, strict=True)
        ),
        cache_tokens=min(stage.cache_tokens for stage in stages),
        decode_tokens_per_s=speed.decode_tokens_per_s if speed else None,
        prefill_tokens_per_s=speed.prefill_tokens_per_s if speed else None,
        note="" if speed else f"{', '.join(unmeasured(ring))}: speed not measured yet",
    )


def _shortage(card: Card, candidates: Sequence[Candidate], count: int, precision: str) -> str:
    """Why no ring of so many machines holds the model, by the machines that lack least."""
    groups = [group for group in by_format(candidates, precision).values() if len(group) >= count]
    needed, free = min((_need(card, group, count, precision) for group in groups), key=lambda each: each[0] - each[1])
    there = "the machine with most room has" if count == 1 else f"the {count} machines with most room have"
    cut = ", but no cut of the layers fits each of them" if free >= needed else ""
    return f"needs {size(needed)}; {there} {size(free)} free{cut}"


def _need(card: Card, group: Sequence[Candidate], count: int, precision: str) -> tuple[int, int]:
    """Bytes of the whole model, and those free on the machines that have most."""
    largest = sorted(group, key=lambda each: -each.free)[:count]
    needs = min((demand(card, each, precision) for each in largest), key=lambda each: each.factor)
    if count == 1:
        return needs.of_stage(0, card.layers), largest[0].free
    ends = needs.of_ends(first=True, last=False) + needs.of_ends(first=False, last=True)
    return int(needs.layers[-1]) + ends, sum(each.free for each in largest)
