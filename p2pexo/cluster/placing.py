"""What becomes of the command to place a model: the rings that it has already, and those that it lacks. Pure."""

from collections.abc import Sequence

from attrs import evolve

from p2pexo.cluster import placements as edit
from p2pexo.cluster.commands import PlaceCommand
from p2pexo.cluster.facts import Placements
from p2pexo.cluster.machines import Candidate
from p2pexo.cluster.manual import Part, plan_split
from p2pexo.cluster.observed import Cluster
from p2pexo.cluster.placement import plan
from p2pexo.cluster.reforming import candidates
from p2pexo.generation.errors import InsufficientMemoryError, InvalidRequestError
from p2pexo.models.card import Card
from p2pexo.models.support import check_architecture
from p2pexo.ring.plan import Epoch, Placement, StagePlan


def place(cluster: Cluster, command: PlaceCommand, card: Card) -> tuple[Placements, str]:
    """The placements with the wanted ones in them, and the last one's id; the same as before for a model that is placed so already.

    Raises InvalidRequestError for what can't be had (a model of an unknown architecture, also more stages than the model
    now runs on: a ring is never torn down by accident), InsufficientMemoryError if it does not fit.
    """
    rings = rings_of(cluster, card)[: command.replicas]
    for existing in rings:
        _check_alike(cluster, existing, command)
    placements = cluster.placements
    if command.by_user:
        for existing in rings:
            placements = edit.claim_for_user(placements, existing)
    while len(rings) < command.replicas:
        ring = _form(evolve(cluster, placements=placements), command, card, rings)
        placements = edit.add(placements, ring)
        rings.append(ring)
    return placements, rings[-1].id


def rings_of(cluster: Cluster, card: Card) -> list[Placement]:
    """The placements of a model, the first one first."""
    placements = cluster.placements.placements
    return [each for each in placements if (each.model, each.revision) == (card.id, card.revision)]


def free_of(machines: Sequence[Candidate], rings: Sequence[Placement]) -> list[Candidate]:
    """The machines that have no part in these rings: on the others one more would only share their speed."""
    taken = {stage.peer for ring in rings for stage in ring.stages}
    return [each for each in machines if each.peer not in taken]


def _form(cluster: Cluster, command: PlaceCommand, card: Card, rings: Sequence[Placement]) -> Placement:
    check_architecture(card.id, card.architecture)
    stages = _stages_beside(rings, card, candidates(cluster, card), command)
    epoch = Epoch(cluster.term, cluster.placements.next_count, cluster.me)
    id = edit.placement_id(card.id, card.revision, epoch)
    return Placement(id, card.id, card.revision, epoch, stages, command.precision, command.by_user, card)


def _stages_beside(
    rings: Sequence[Placement], card: Card, machines: Sequence[Candidate], command: PlaceCommand
) -> tuple[StagePlan, ...]:
    if not rings:
        return _stages(card, machines, command)
    spare = free_of(machines, rings)
    which = f"replica {len(rings) + 1} of {card.id} needs machines that run none of it yet"
    if not spare:
        raise InsufficientMemoryError(f"{which}, and there are none; add one, or ask for fewer", retry_after_s=60)
    try:
        return _stages(card, spare, command)
    except InsufficientMemoryError as error:
        raise InsufficientMemoryError(f"{which}: {error.message}", retry_after_s=60) from error


def _stages(card: Card, machines: Sequence[Candidate], command: PlaceCommand) -> tuple[StagePlan, ...]:
    if command.split:
        return plan_split(card, machines, command.split, command.precision)
    return plan(card, machines, min_stages=command.min_stages, precision=command.precision)


def _check_alike(cluster: Cluster, existing: Placement, command: PlaceCommand) -> None:
    """Raises InvalidRequestError if the ring is another one than the command asks for."""
    advice = f"delete placement {existing.id} first to place it differently"
    if command.min_stages > len(existing.stages):
        message = f"{existing.model} runs on {len(existing.stages)} stages, fewer than min_stages {command.min_stages}; {advice}"
        raise InvalidRequestError(message, param="min_stages")
    if command.precision not in ("auto", existing.precision):
        message = f"{existing.model} runs with precision {existing.precision!r}, not {command.precision!r}; {advice}"
        raise InvalidRequestError(message, param="precision")
    if command.split and not _is_split(existing, command.split, cluster):
        runs = [Part(cluster.name_of(each.peer), each.first_layer, each.end_layer) for each in existing.stages]
        message = f"{existing.model} runs as {','.join(map(str, runs))}; {advice}"
        raise InvalidRequestError(message, param="split")


def _is_split(placement: Placement, split: Sequence[Part], cluster: Cluster) -> bool:
    return len(split) == len(placement.stages) and all(
        part.node in (stage.peer, cluster.name_of(stage.peer))
        and (part.first_layer, part.end_layer) == (stage.first_layer, stage.end_layer)
        for part, stage in zip(split, placement.stages, strict=True)
    )
