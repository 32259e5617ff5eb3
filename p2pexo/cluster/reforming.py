"""Where the stages of a broken placement go. Pure."""

from collections.abc import Sequence
from contextlib import suppress

from attrs import evolve

from p2pexo.cluster.demand import demand
from p2pexo.cluster.facts import SpeedsFact
from p2pexo.cluster.faults import Fault
from p2pexo.cluster.machines import Candidate, by_preference
from p2pexo.cluster.observed import Cluster
from p2pexo.cluster.placement import plan
from p2pexo.generation.errors import GenerationError, InsufficientMemoryError, InvalidRequestError
from p2pexo.models.card import Card
from p2pexo.ring.plan import Placement, StagePlan


def form_anew(cluster: Cluster, placement: Placement, fault: Fault) -> tuple[StagePlan, ...]:
    """Stages for a broken placement.

    A machine that takes over exactly the lost layers comes first, since the others then keep their weights: a spare one, or
    else one of the ring that has room for a further stage. Machines to be avoided are used only when there is no other
    way. Raises GenerationError if the model can't be placed.
    """
    gone = {stage.peer for stage in placement.stages if not cluster.is_alive(stage.peer)}
    lost = gone | cluster.leaving.intersection(stage.peer for stage in placement.stages) | fault.to_avoid
    if not lost:
        return placement.stages
    card = placement.card or cluster.card_of(placement.model)
    if card is None:
        raise GenerationError(f"no live node knows the model {placement.model}")
    machines = candidates(cluster, card, besides=placement)
    sound = [each for each in machines if each.peer not in fault.to_avoid]
    substituted = _substitute(card, placement, lost, sound)
    if substituted is not None:
        return substituted
    try:
        return _plan_again(card, placement, sound)
    except GenerationError:
        if len(sound) == len(machines):
            raise
        return _plan_again(card, placement, machines)


def candidates(cluster: Cluster, card: Card, *, besides: Placement | None = None) -> list[Candidate]:
    """The machines that are surely there and stay, with what other placements leave free on them.

    A model that is a folder of somebody's can only run where that folder is.
    """
    stages = {stage.peer for stage in besides.stages} if besides else set[str]()
    holders = {peer for peer, fact in cluster.models.items() if card.id in fact.held}
    able = holders if card.source.startswith("directory:") else cluster.nodes.keys()
    return [
        Candidate(
            peer=peer,
            name=node.name,
            budget=node.memory_budget,
            reserved=cluster.reserved_on(peer, besides=besides.id if besides else ""),
            dense=node.dense,
            device=node.device,
            preference=2 * (peer in stages) + (peer in holders),
            speeds=cluster.speeds.get(peer, SpeedsFact()),
        )
        for peer, node in sorted(cluster.nodes.items())
        if cluster.is_alive(peer) and peer in able and peer not in cluster.leaving
    ]


def _substitute(
    card: Card, placement: Placement, lost: set[str], sound: Sequence[Candidate]
) -> tuple[StagePlan, ...] | None:
    """The same ring with an heir in each lost stage's place, or None if there is no room for one of them."""
    staying = {stage.peer for stage in placement.stages} - lost
    formats = {each.format(placement.precision) for each in sound if each.peer in staying}
    heirs = [
        evolve(each, reserved=each.reserved + _kept_on(placement, lost, each.peer))
        for each in sound
        if not formats or each.format(placement.precision) in formats
    ]
    stages = list(placement.stages)
    for rank, stage in enumerate(stages):
        if stage.peer in lost:
            able = [each for each in heirs if _needed(card, placement, rank, each) <= each.free]
            if not able:
                return None
            heir = min(able, key=lambda each: (any(each.peer == stage.peer for stage in stages), _merit(each)))
            stages[rank] = _inherited(card, placement, rank, heir)
            heirs[heirs.index(heir)] = evolve(heir, reserved=heir.reserved + stages[rank].reserved_bytes)
    return tuple(stages)


def _merit(heir: Candidate) -> tuple[int, float, tuple[int, int, str]]:
    """Sorts the best heir to the front: one that has the files is back soonest; of several the fastest."""
    return -heir.preference, -(heir.speeds.decode_bytes_per_s or 0.0), by_preference(heir)


def _kept_on(placement: Placement, lost: set[str], peer: str) -> int:
    """Bytes that stages of the placement go on using on a peer."""
    return sum(each.reserved_bytes for each in placement.stages if each.peer == peer and peer not in lost)


def _needed(card: Card, placement: Placement, rank: int, machine: Candidate, tokens: int | None = None) -> int:
    stage = placement.stages[rank]
    return demand(card, machine, placement.precision).of_stage(stage.first_layer, stage.end_layer, tokens)


def _inherited(card: Card, placement: Placement, rank: int, heir: Candidate) -> StagePlan:
    """The stage on another machine, with room for as many tokens of conversation as before if they fit."""
    stage = placement.stages[rank]
    fewest = demand(card, heir, placement.precision).tokens
    tokens = max(fewest, stage.cache_tokens)
    if _needed(card, placement, rank, heir, tokens) > heir.free:
        tokens = fewest
    needed = _needed(card, placement, rank, heir, tokens)
    return evolve(stage, peer=heir.peer, reserved_bytes=needed, cache_tokens=tokens)


def _plan_again(card: Card, placement: Placement, machines: Sequence[Candidate]) -> tuple[StagePlan, ...]:
    """As many stages as before, or as many as can be. Raises GenerationError."""
    for stages in range(min(len(placement.stages), len(machines)), 1, -1):
        with suppress(InsufficientMemoryError, InvalidRequestError):
            return plan(card, machines, min_stages=stages, precision=placement.precision)
    return plan(card, machines, precision=placement.precision)
