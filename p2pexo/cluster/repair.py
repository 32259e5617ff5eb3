"""The leader's decisions: what to do about placements whose ring has lost a stage. Pure; ``leader`` acts on them.

A placement is formed anew under a raised epoch: on other machines when one is gone or a stage failed there, on the same
ones when only links broke. A failed stage is a heavy strike against the placement, a broken link a light one, and a machine
that left none. With too many strikes it ends as failed; a ring that stays ready for a while has its strikes forgotten.
"""

from collections.abc import Mapping
from math import inf

from attrs import evolve, field, frozen

from p2pexo.cluster import placements as edit
from p2pexo.cluster.facts import Deletion, Placements, Trouble
from p2pexo.cluster.faults import BROKEN_LINK_STRIKES, Fault, find_fault, link_troubles
from p2pexo.cluster.observed import Cluster
from p2pexo.cluster.reconciling import reconcile
from p2pexo.cluster.reforming import form_anew
from p2pexo.generation.errors import GenerationError
from p2pexo.ring.plan import Epoch, Placement

MAX_STRIKES = 12
"""How much may go wrong before a placement ends as failed. Raise it and flaky machines get more chances; lower it and a model
that can't run says so sooner."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 8.0
"""After the first try, doubled up to the longest. Raise them and a cluster in trouble is calmer; lower them and it is back sooner."""

LINK_WITHIN_S = 15.0
"""How long loaded stages may take to link before the ring is formed anew. Raise it and slow networks get more time; lower it
and a stage that was restarted while others waited for it is noticed sooner."""

STEADY_AFTER_S = 5.0
"""How long a ring must be ready to count as mended. Raise it and a ring that breaks again and again is given up sooner; lower it
and one that serves between two losses is always formed anew at once."""

DELETION_KEPT_S = 3600.0
"""How long a deletion outlives its placement. Raise it and machines that were away longer learn of it; lower it and the payload is smaller."""


@frozen
class Trial:
    """How a placement has fared lately under this leader. Times are the leader's monotonic seconds."""

    strikes: int = 0
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
class Moment:
    now: float
    """Monotonic seconds, by which everything is decided."""
    wall: float
    """Wall clock seconds, only for people to read."""


def decide(cluster: Cluster, memory: Memory, at: Moment) -> Decision:
    """The placements that the leader should hold, given what its cluster shows. Changes nothing where nothing is wrong."""
    placements = reconcile(cluster)
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
    fault = find_fault(cluster, placement) or _find_delay(cluster, placement, trial, at.now)
    if fault is None:
        trial, next_look = _steadied(trial, at.now)
        return edit.end_trouble(placements, placement.id), trial, next_look
    if fault.strikes and at.now < trial.not_before:
        return placements, trial, trial.not_before
    if trial.strikes + fault.strikes > MAX_STRIKES:
        reason = f"formed anew {trial.tries} times without success; at last: {fault.reason}"
        return edit.delete(placements, Deletion(placement.id, reason, at.wall, placement)), trial, inf
    try:
        stages = form_anew(cluster, placement, fault)
    except GenerationError as error:
        if not fault.is_certain:
            return placements, trial, inf
        trouble = Trouble(placement.id, f"{fault.reason}; {error.message}")
        return edit.report_trouble(placements, trouble), trial, inf
    epoch = Epoch(cluster.term, placements.next_count, cluster.me)
    trial = _after_try(trial, fault, at.now)
    return edit.replace(placements, placement, stages, epoch), trial, trial.not_before


def _find_delay(cluster: Cluster, placement: Placement, trial: Trial, now: float) -> Fault | None:
    if trial.loaded_since is None or now < trial.loaded_since + LINK_WITHIN_S:
        return None
    troubles = link_troubles(cluster, placement) or "none of them says why"
    return Fault(f"the stages did not link within {LINK_WITHIN_S:g} s ({troubles})", BROKEN_LINK_STRIKES)


def _after_try(trial: Trial, fault: Fault, now: float) -> Trial:
    if fault.strikes == 0:
        return trial
    pause = min(FIRST_PAUSE_S * 2**trial.tries, LONGEST_PAUSE_S)
    return Trial(trial.strikes + fault.strikes, trial.tries + 1, now + pause)


def _timed(trial: Trial, cluster: Cluster, placement: Placement, now: float) -> Trial:
    """Note since when the placement has been ready, and since when it is loaded and should be."""
    ready = cluster.is_ready(placement)
    loaded = not ready and cluster.is_loaded(placement)
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
    if now >= trial.ready_since + STEADY_AFTER_S:
        return Trial(ready_since=trial.ready_since), inf
    return trial, trial.ready_since + STEADY_AFTER_S


def _forget_old_deletions(
    placements: Placements, seen: Mapping[str, float], now: float
) -> tuple[Placements, dict[str, float], float]:
    """Drop deletions this leader has held for long enough; wall clocks of several leaders are never compared."""
    ages = {each.placement_id: seen.get(each.placement_id, now) for each in placements.deletions}
    kept = {each: since for each, since in ages.items() if now < since + DELETION_KEPT_S}
    if len(kept) < len(ages):
        placements = evolve(placements, deletions=[each for each in placements.deletions if each.placement_id in kept])
    return placements, kept, min((since + DELETION_KEPT_S for since in kept.values()), default=inf)
