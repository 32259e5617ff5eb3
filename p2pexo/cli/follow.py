"""Follows a placement until it can answer, and shows the whole cluster on the way."""

import time
from collections.abc import Callable

from p2pexo.cli.errors import CommandError
from p2pexo.client import ClusterState, Following, Placement

POLL_S = 0.2


def follow_placement(
    look: Callable[[], ClusterState],
    placement_id: str,
    show: Callable[[ClusterState], None],
    *,
    timeout_s: float = float("inf"),
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Placement:
    """The placement once it is ready; every picture that ``look`` takes on the way is given to ``show``.

    Raises PlacementFailedError when it failed or was deleted, CommandError when it isn't ready after ``timeout_s``.
    """
    started, following = clock(), Following(placement_id, clock=clock)
    while True:
        state = look()
        show(state)
        following.see(state)
        placement = state.placement(placement_id)
        if placement is not None and following.has_arrived:
            return placement
        following.wait()
        if clock() - started > timeout_s:
            raise CommandError(f"{placement.model if placement else placement_id} is not ready after {timeout_s:.0f} s")
        pause(POLL_S)
