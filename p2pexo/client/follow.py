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
class Following:
    """Judges one placement by each picture of the cluster: has it come where it should?"""

    placement_id: str
    goal: Goal = "ready"
    _clock: Callable[[], float] = field(default=time.monotonic, alias="clock")
    _since: float = field(init=False)
    _last: Placement | None = field(default=None, init=False)
    has_arrived: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._since = self._clock()

    def see(self, state: ClusterState) -> Placement | None:
        """The placement, if it is there and has changed. Raises PlacementFailedError if it can't become ready any more."""
        placement, before = state.placement(self.placement_id), self._last
        self._last = placement or before
        self.has_arrived = self._is_gone(placement) if self.goal == "gone" else self._is_ready(placement, before)
        return placement if placement != before else None

    def wait(self) -> None:
        """While nothing is seen. Raises PlacementFailedError if nobody has heard of the placement for too long."""
        if self.goal == "ready" and self._last is None and self._clock() - self._since > APPEAR_S:
            raise PlacementFailedError(
                f"placement {self.placement_id} was accepted, but the node asked has not heard of it in {APPEAR_S:.0f} s"
            )

    def _is_gone(self, placement: Placement | None) -> bool:
        return placement is None or placement.state == "failed"

    def _is_ready(self, placement: Placement | None, before: Placement | None) -> bool:
        if placement is None and before is not None:
            raise PlacementFailedError(f"placement {self.placement_id} was deleted while it was loading")
        if placement is not None and placement.state == "failed":
            raise PlacementFailedError(f"{placement.model} could not be loaded: {placement.failure}")
        return placement is not None and placement.is_ready


@define
class FollowReader:
    """The states of one placement, each once, until it is ``ready`` or ``gone``."""

    following: Following
    _watch: WatchReader = field(factory=WatchReader, init=False)
    may_start_over: bool = field(default=True, init=False)

    @property
    def is_complete(self) -> bool:
        return self.following.has_arrived

    def feed(self, line: str) -> Iterator[Placement]:
        """Raises PlacementFailedError if it can't become ready any more."""
        for state in self._watch.feed(line):
            placement = self.following.see(state)
            if placement is not None:
                yield placement
        self.following.wait()
