"""The live picture of the cluster, and one placement in it, read line by line. Pure."""

import time
from collections.abc import Callable, Iterator
from typing import Literal

from attrs import define, field

from p2pexo.client.cluster import ClusterState, Placement
from p2pexo.client.errors import PlacementFailedError
from p2pexo.client.reading import read

APPEAR_S = 15.0
"""How long a placement may take to become known to the node that is asked. Raise it for clusters that gossip slowly."""

Goal = Literal["ready", "gone"]


@define
class WatchReader:
    """The cluster now, and after each change. It goes on for ever, at another node if need be."""

    may_start_over: bool = field(default=True, init=False)
    is_complete: bool = field(default=False, init=False)

    def feed(self, line: str) -> Iterator[ClusterState]:
        if line.startswith("data:"):
            yield read(ClusterState, line[5:])


@define
class FollowReader:
    """The states of one placement, each once, until it is ``ready`` or ``gone``."""

    placement_id: str
    goal: Goal
    _clock: Callable[[], float] = time.monotonic
    _watch: WatchReader = field(factory=WatchReader, init=False)
    _since: float = field(init=False)
    _last: Placement | None = field(default=None, init=False)
    may_start_over: bool = field(default=True, init=False)
    is_complete: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._since = self._clock()

    def feed(self, line: str) -> Iterator[Placement]:
        """Raises PlacementFailedError if it can't become ready any more."""
        for state in self._watch.feed(line):
            placement = state.placement(self.placement_id)
            if placement is not None and placement != self._last:
                yield placement
            self._judge(placement)
            self._last = placement or self._last
        self._lose_patience()

    def _judge(self, placement: Placement | None) -> None:
        if self.goal == "gone":
            self.is_complete = placement is None or placement.state == "failed"
            return
        if placement is None and self._last is not None:
            raise PlacementFailedError(f"placement {self.placement_id} was deleted while it was loading")
        if placement is not None and placement.state == "failed":
            raise PlacementFailedError(f"{placement.model} could not be loaded: {_reason(placement)}")
        self.is_complete = placement is not None and placement.is_ready

    def _lose_patience(self) -> None:
        if self.goal == "ready" and self._last is None and self._clock() - self._since > APPEAR_S:
            raise PlacementFailedError(f"nobody has heard of placement {self.placement_id} in {APPEAR_S:.0f} s")


def _reason(placement: Placement) -> str:
    stages = (f"stage {stage.rank} on {stage.node}: {stage.reason}" for stage in placement.stages if stage.reason)
    return placement.reason or next(stages, "no reason was given; see the nodes' logs")
