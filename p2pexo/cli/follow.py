"""Follows a placement until it can answer."""

import time
from collections.abc import Callable

from p2pexo.cli.display import find_placement
from p2pexo.cli.errors import CommandError
from p2pexo.cluster.snapshot import ClusterSnapshot, PlacementView

POLL_S = 0.2
APPEAR_S = 15.0
"""How long a placement may take to become known to the node that is asked: a gossip, or a catch-up when that was lost."""


def follow_placement(
    look: Callable[[], ClusterSnapshot],
    placement_id: str,
    show: Callable[[ClusterSnapshot], None],
    *,
    timeout_s: float = float("inf"),
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> PlacementView:
    """The placement once it is ready; every picture that ``look`` takes on the way is given to ``show``.

    Raises CommandError when it failed, was deleted, or isn't ready after ``timeout_s``.
    """
    started, seen = clock(), False
    while True:
        snapshot = look()
        show(snapshot)
        placement = find_placement(snapshot, placement_id)
        if placement is not None and placement.state == "ready":
            return placement
        waited = clock() - started
        _check(placement, placement_id, seen, waited, timeout_s)
        seen = seen or placement is not None
        pause(POLL_S)


def _check(placement: PlacementView | None, placement_id: str, seen: bool, waited: float, timeout_s: float) -> None:
    if placement is not None and placement.state == "failed":
        raise CommandError(f"{placement.model} could not be loaded: {_reason(placement)}")
    if placement is None and seen:
        raise CommandError(f"placement {placement_id} was deleted while it was loading")
    if placement is None and waited > APPEAR_S:
        raise CommandError(
            f"placement {placement_id} was accepted, but the node asked has not heard of it in {APPEAR_S:.0f} s"
        )
    if waited > timeout_s:
        raise CommandError(f"{placement.model if placement else placement_id} is not ready after {timeout_s:.0f} s")


def _reason(placement: PlacementView) -> str:
    stages = (f"stage {stage.rank} on {stage.node}: {stage.reason}" for stage in placement.stages if stage.reason)
    return placement.reason or next(stages, "no reason was given; see the nodes' logs")
