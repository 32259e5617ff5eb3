"""The leader's decisions: what to do about placements whose ring has lost a stage. Pure; ``leader`` acts on them.

A placement is formed anew under a raised epoch: on other machines when one is gone or a stage failed there, on the same
ones when only links broke. Each try costs one of a few; a ring that then stays ready for a while gets them back.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf

from attrs import evolve, field, frozen

from p2pexo.cluster import placements as edit
from p2pexo.cluster.facts import Deletion, Placements, Trouble
from p2pexo.cluster.observed import Cluster
from p2pexo.cluster.placement import Candidate, by_preference, demand, plan
from p2pexo.generation.errors import GenerationError, InsufficientMemoryError
from p2pexo.models.card import Card
from p2pexo.ring.plan import Epoch, Placement, StagePlan
from p2pexo.ring.stage import StagePhase

MAX_TRIES = 3
"""How often a placement is formed anew before it ends as failed. Raise it and flaky machines get more chances; lower it and a
model that can't run says so sooner."""

FIRST_PAUSE_S = 1.0
"""After the first try; doubled with each further one. Raise it and a cluster in trouble is calmer; lower it and it is back sooner."""

LINK_WITHIN_S = 15.0
"""How long loaded stages may take to link before the ring is formed anew. Raise it and slow networks get more time; lower it
and a stage that was restarted while others waited for it is noticed sooner."""

STEADY_AFTER_S = 30.0
"""How long a ring must be ready to count as mended. Raise it and a ring that breaks again and again is given up sooner."""

DELETION_KEPT_S = 3600.0
"""How long a deletion outlives its placement. Raise it and machines that were away longer learn of it; lower it and the payload is smaller."""

LOADED = (StagePhase.LISTENING, StagePhase.LINKING, StagePhase.READY, StagePhase.BROKEN)


@frozen
class Trial:
    """How a placement has fared lately under this leader. Times are the leader's monotonic seconds."""

    tries: int = 0
    not_before: float = -inf
    ready_since: float | None = None
    loaded_since: float | None = None
    """Since when all stages have been loaded without being ready."""


@frozen
class Memory:
    """What a leader keeps to itself between two decisions; a new leader starts with none."""

    trials: Mapping[str, Trial] = field(factory=dict[str, Trial])
    deletions_seen: Mapping[str, float] = field(factory=dict[str, float])


@frozen
class Decision:
    placements: Placements
    memory: Memory
    wake_at: float = inf
    """When to decide again even if nothing changes."""


@frozen
class Fault:
    reason: str
    to_avoid: frozenset[str] = frozenset()
    """Peers on which the stage failed."""


@frozen
class Moment:
    now: float
    """Monotonic seconds, by which everything is decided."""
    wall: float
    """Wall clock seconds, only for people to read."""


def decide(cluster: Cluster, memory: Memory, at: Moment) -> Decision:
    """The placements that the leader should hold, given what its cluster shows. Changes nothing where nothing is wrong."""
    placements = evolve(cluster.placements, placements=edit.known_placements(cluster))
    placements, seen, wake_at = _forget_old_deletions(placements, memory.deletions_seen, at.now)
    trials: dict[str, Trial] = {}
    for placement in placements.placements:
        trial = memory.trials.get(placement.id, Trial())
        placements, trials[placement.id], next_look = _tend(
            evolve(cluster, placements=placements), placement, trial, at
        )
        wake_at = min(wake_at, next_look)
    return Decision(placements, Memory(trials, seen), wake_at)


def _tend(cluster: Cluster, placement: Placement, trial: Trial, at: Moment) -> tuple[Placements, Trial, float]:
    """One placement: leave it, form it anew, say why that isn't possible yet, or give it up."""
    placements = cluster.placements
    trial = _timed(trial, cluster, placement, at.now)
    fault = find_fault(cluster, placement) or _find_delay(trial, at.now)
    if fault is None:
        trial, next_look = _steadied(trial, at.now)
        return edit.end_trouble(placements, placement.id), trial, next_look
    if at.now < trial.not_before:
        return placements, trial, trial.not_before
    if trial.tries >= MAX_TRIES:
        reason = f"formed anew {trial.tries} times without success; at last: {fault.reason}"
        return edit.delete(placements, Deletion(placement.id, reason, at.wall, placement)), trial, inf
    try:
        stages = form_anew(cluster, placement, fault)
    except GenerationError as error:
        trouble = Trouble(placement.id, f"{fault.reason}; {error.message}")
        return edit.report_trouble(placements, trouble), trial, inf
    epoch = Epoch(cluster.term, placements.next_count, cluster.me)
    not_before = at.now + FIRST_PAUSE_S * 2**trial.tries
    return edit.replace(placements, placement, stages, epoch), Trial(trial.tries + 1, not_before), not_before


def find_fault(cluster: Cluster, placement: Placement) -> Fault | None:
    """What keeps the ring from running that won't mend itself: a dead machine, a failed stage, or a broken link."""
    lost = [stage.peer for stage in placement.stages if not cluster.is_live(stage.peer)]
    if lost:
        return Fault(f"{' and '.join(peer[-8:] for peer in lost)} left the cluster")
    if not all(cluster.is_alive(stage.peer) for stage in placement.stages):
        return None  # what is about to be lost is lost in a moment
    facts = [cluster.stage(placement, rank) for rank in range(len(placement.stages))]
    failed = [(rank, fact) for rank, fact in enumerate(facts) if fact and fact.status.phase is StagePhase.FAILED]
    if failed:
        reasons = (f"stage {rank} on {_host(cluster, placement, rank)}: {fact.status.reason}" for rank, fact in failed)
        return Fault("; ".join(reasons), frozenset(placement.stages[rank].peer for rank, _ in failed))
    return _find_broken_link(cluster, placement)


def _find_broken_link(cluster: Cluster, placement: Placement) -> Fault | None:
    """Only once all stages are loaded: until then the ring isn't closed anyway."""
    if not is_loaded(cluster, placement):
        return None
    for rank in range(len(placement.stages)):
        fact = cluster.stage(placement, rank)
        if fact and fact.status.phase is StagePhase.BROKEN and fact.status.epoch == placement.epoch:
            return Fault(f"stage {rank} on {_host(cluster, placement, rank)} lost a link: {fact.status.reason}")
    return None


def _find_delay(trial: Trial, now: float) -> Fault | None:
    if trial.loaded_since is None or now - trial.loaded_since < LINK_WITHIN_S:
        return None
    return Fault(f"the stages did not link within {LINK_WITHIN_S:g} s")


def is_loaded(cluster: Cluster, placement: Placement) -> bool:
    facts = [cluster.stage(placement, rank) for rank in range(len(placement.stages))]
    return all(fact is not None and fact.status.phase in LOADED for fact in facts)


def form_anew(cluster: Cluster, placement: Placement, fault: Fault) -> tuple[StagePlan, ...]:
    """Stages for a broken placement, on as many machines as before where there are so many.

    A machine that takes over exactly the lost layers comes first, since the others then keep their weights. Machines to be
    avoided are used only when there is no other way. Raises GenerationError if the model can't be placed.
    """
    lost = {stage.peer for stage in placement.stages if not cluster.is_alive(stage.peer)} | fault.to_avoid
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
    """The machines that are surely there, with what other placements leave free on them.

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
            preference=2 * (peer in stages) + (peer in holders),
        )
        for peer, node in sorted(cluster.nodes.items())
        if cluster.is_alive(peer) and peer in able
    ]


def _substitute(
    card: Card, placement: Placement, lost: set[str], sound: Sequence[Candidate]
) -> tuple[StagePlan, ...] | None:
    """The same ring with a new machine in each lost one's place, or None if there are no machines to take over."""
    staying = {stage.peer for stage in placement.stages} - lost
    spare = sorted((each for each in sound if each.peer not in staying), key=by_preference)
    stages = list(placement.stages)
    for rank, stage in enumerate(stages):
        if stage.peer in lost:
            heir = next((each for each in spare if _needed(card, placement, rank, each) <= each.free), None)
            if heir is None:
                return None
            spare.remove(heir)
            stages[rank] = evolve(stage, peer=heir.peer, reserved_bytes=_needed(card, placement, rank, heir))
    return tuple(stages)


def _needed(card: Card, placement: Placement, rank: int, machine: Candidate) -> int:
    stage, is_last = placement.stages[rank], rank == len(placement.stages) - 1
    layers = stage.end_layer - stage.first_layer
    return demand(card, machine, placement.precision).of_stage(layers, first=rank == 0, last=is_last)


def _plan_again(card: Card, placement: Placement, machines: Sequence[Candidate]) -> tuple[StagePlan, ...]:
    """As many stages as before, or as many as can be. Raises GenerationError."""
    for stages in range(min(len(placement.stages), len(machines)), 1, -1):
        with suppress(InsufficientMemoryError):
            return plan(card, machines, min_stages=stages, precision=placement.precision)
    return plan(card, machines, precision=placement.precision)


def _timed(trial: Trial, cluster: Cluster, placement: Placement, now: float) -> Trial:
    """Note since when the placement has been ready, and since when it is loaded and should be."""
    ready = cluster.is_ready(placement)
    loaded = not ready and is_loaded(cluster, placement)
    return evolve(
        trial,
        ready_since=(now if trial.ready_since is None else trial.ready_since) if ready else None,
        loaded_since=(now if trial.loaded_since is None else trial.loaded_since) if loaded else None,
    )


def _steadied(trial: Trial, now: float) -> tuple[Trial, float]:
    """The trial of a placement without a fault, and when to look at it again."""
    if trial.loaded_since is not None:
        return trial, trial.loaded_since + LINK_WITHIN_S
    if trial.ready_since is None or trial.tries == 0:
        return trial, inf
    if now - trial.ready_since >= STEADY_AFTER_S:
        return evolve(trial, tries=0), inf
    return trial, trial.ready_since + STEADY_AFTER_S


def _forget_old_deletions(
    placements: Placements, seen: Mapping[str, float], now: float
) -> tuple[Placements, dict[str, float], float]:
    """Drop deletions this leader has held for long enough; wall clocks of several leaders are never compared."""
    ages = {each.placement_id: seen.get(each.placement_id, now) for each in placements.deletions}
    kept = {each: since for each, since in ages.items() if now - since < DELETION_KEPT_S}
    if len(kept) < len(ages):
        placements = evolve(placements, deletions=[each for each in placements.deletions if each.placement_id in kept])
    return placements, kept, min((since + DELETION_KEPT_S for since in kept.values()), default=inf)


def _host(cluster: Cluster, placement: Placement, rank: int) -> str:
    return cluster.name_of(placement.stages[rank].peer)
