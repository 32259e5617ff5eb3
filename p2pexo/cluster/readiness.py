"""Says when this node shall keep a spare stage process: as long as anything is placed, since any node may inherit a stage."""

from collections.abc import Callable

from networking.overlay import Overlay
from p2pexo.cluster.observed import observe
from p2pexo.cluster.reconciling import known_placements


async def keep_spare(overlay: Overlay, want: Callable[[bool], None]) -> None:
    """Tell ``want`` of each change, until cancelled."""
    async for view in overlay.views():
        want(bool(known_placements(observe(view))))
