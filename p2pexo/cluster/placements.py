"""The leader's payload as a value: placing, deleting, merging what several leaders hold (DESIGN 9.1, 9.2). All pure."""

from collections.abc import Iterable, Sequence
from hashlib import sha256

from attrs import evolve

from p2pexo.cluster.facts import Deletion, Placements, Trouble
from p2pexo.cluster.observed import read_placements
from p2pexo.generation.codec import encode
from p2pexo.ring.plan import Epoch, Placement, StagePlan

MAX_DELETIONS = 500
"""Deletions that are kept, the latest ones. Raise it and a machine that was away misses none of a busy hour; lower it and more
placements fit beside them in the one fact they share."""

MAX_EXPLAINED = 16
"""Of the deletions, the latest, those that are kept with their reason, and with the placement as it was if it failed."""

_TICK_S = 0.001

FORGOTTEN = "a while ago"
"""In place of a reason that is no longer kept."""


def merge_payloads(payloads: Sequence[bytes]) -> bytes:
    """One payload out of those of several claims: the union by placement id. A deletion beats all. Of several
    epochs that of the first claim counts, which is the merging leader's own, until it is decided which ring goes on where the
    rings are seen (``reconciling``)."""
    return encode(merge([read_placements(payload) for payload in payloads]))


def merge(several: Sequence[Placements]) -> Placements:
    deletions = _latest(each for one in several for each in one.deletions)
    ended = {each.placement_id for each in deletions}
    withdrawals = {each for one in several for each in one.withdrawals if each.placement_id not in ended}
    withdrawn = {(each.placement_id, each.epoch) for each in withdrawals}
    held = [
        each
        for one in several
        for each in (*one.placements, *one.rivals)
        if each.id not in ended and (each.id, each.epoch) not in withdrawn
    ]
    first = {each.id: each for each in reversed(held)}
    rivals = {(each.id, each.epoch): each for each in held if each.epoch != first[each.id].epoch}
    troubles = {each.placement_id: each for one in several for each in one.troubles}
    return Placements(
        placements=first.values(),
        deletions=deletions,
        next_count=max((one.next_count for one in several), default=1),
        troubles=[each for each in troubles.values() if each.placement_id not in ended],
        rivals=[rivals[key] for key in sorted(rivals)],
        withdrawals=sorted(withdrawals, key=lambda each: (each.placement_id, each.epoch)),
    )


def add(placements: Placements, placement: Placement) -> Placements:
    return evolve(placements, placements=(*placements.placements, placement), next_count=placements.next_count + 1)


def replace(placements: Placements, placement: Placement, stages: Sequence[StagePlan], epoch: Epoch) -> Placements:
    """The same placement on other machines, or on the same ones again, under a raised epoch."""
    renewed = evolve(placement, stages=tuple(stages), epoch=epoch)
    return evolve(
        placements,
        placements=[renewed if each.id == placement.id else each for each in placements.placements],
        next_count=placements.next_count + 1,
        troubles=_without(placements.troubles, placement.id),
    )


def claim_for_user(placements: Placements, placement: Placement) -> Placements:
    """From now on a person's own, so that it is never evicted."""
    if placement.by_user:
        return placements
    kept = evolve(placement, by_user=True)
    return evolve(placements, placements=[kept if each.id == kept.id else each for each in placements.placements])


def delete(placements: Placements, deletion: Deletion) -> Placements:
    """Of the failures of a model only the last is kept in full, so that trying again and again does not fill the payload.

    It counts as the latest deletion, even if the clock of the leader before was ahead of ours.
    """
    latest = max((each.deleted_at for each in placements.deletions), default=0.0)
    deletion = evolve(deletion, deleted_at=max(deletion.deleted_at, latest + _TICK_S))
    model = deletion.failed.model if deletion.failed else None
    others = [
        evolve(each, failed=None) if each.failed and each.failed.model == model else each
        for each in placements.deletions
        if each.placement_id != deletion.placement_id
    ]
    return evolve(
        placements,
        placements=[each for each in placements.placements if each.id != deletion.placement_id],
        deletions=_latest([*others, deletion]),
        troubles=_without(placements.troubles, deletion.placement_id),
        rivals=[each for each in placements.rivals if each.id != deletion.placement_id],
        withdrawals=[each for each in placements.withdrawals if each.placement_id != deletion.placement_id],
    )


def report_trouble(placements: Placements, trouble: Trouble) -> Placements:
    if placements.trouble_of(trouble.placement_id) == trouble:
        return placements
    return evolve(placements, troubles=(*_without(placements.troubles, trouble.placement_id), trouble))


def end_trouble(placements: Placements, placement_id: str) -> Placements:
    if placements.trouble_of(placement_id) is None:
        return placements
    return evolve(placements, troubles=_without(placements.troubles, placement_id))


def placement_id(model: str, revision: str, epoch: Epoch) -> str:
    """Unique since the first epoch of a placement is; the same for all who compute it."""
    return sha256(f"{model}@{revision}#{epoch.term}.{epoch.count}.{epoch.leader}".encode()).hexdigest()[:10]


def was_formed_anew(placement: Placement) -> bool:
    """True once the placement has had an epoch after its first."""
    return placement.id != placement_id(placement.model, placement.revision, placement.epoch)


def _latest(deletions: Iterable[Deletion]) -> list[Deletion]:
    """One for each placement, in the order in which they ended; only so many, and most of them without their story."""
    told = sorted(deletions, key=lambda each: (each.failed is not None, each.reason != FORGOTTEN, each.reason))
    by_age = sorted({each.placement_id: each for each in told}.values(), key=_age)[-MAX_DELETIONS:]
    return [*map(_forget, by_age[:-MAX_EXPLAINED]), *by_age[-MAX_EXPLAINED:]]


def _forget(deletion: Deletion) -> Deletion:
    if deletion.failed is None and deletion.reason == FORGOTTEN:
        return deletion
    return evolve(deletion, reason=FORGOTTEN, failed=None)


def _age(deletion: Deletion) -> tuple[float, str]:
    return deletion.deleted_at, deletion.placement_id


def _without(troubles: Iterable[Trouble], placement_id: str) -> tuple[Trouble, ...]:
    return tuple(each for each in troubles if each.placement_id != placement_id)
