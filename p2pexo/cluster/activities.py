"""Which changes of what a stage is busy with are worth a message to everybody. Pure."""

from p2pexo.ring.activity import StageActivity

MEANINGFUL_SHARE = 0.05
"""Of a stage's time. Raise it and the picture is coarser; lower it and busy stages say more."""

MEANINGFUL_CHANGE = 0.1
"""Of each other figure, relative to the one that was told."""


def is_worth_telling(told: StageActivity, now: StageActivity) -> bool:
    """Also that a stage has come to rest, or to work."""
    if (told.batches_per_s > 0, told.busy_share > 0) != (now.batches_per_s > 0, now.busy_share > 0):
        return True
    if abs(told.busy_share - now.busy_share) >= MEANINGFUL_SHARE:
        return True
    return any(_differs(before, after) for before, after in zip(_figures(told), _figures(now), strict=True))


def _figures(activity: StageActivity) -> tuple[float | None, ...]:
    """All but the number of batches, which goes with the share, and the capacity, which stays."""
    return (
        activity.rows,
        activity.sequences,
        activity.hop_s,
        activity.queue_s,
        activity.prefill_tokens_per_s,
        activity.decode_tokens_per_s,
        activity.conversations,
        activity.cache_bytes,
        activity.requests,
    )


def _differs(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return before is not after
    return abs(after - before) > MEANINGFUL_CHANGE * abs(before)
