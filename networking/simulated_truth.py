"""What really is in a simulated cluster, by which what its nodes believe is judged."""

from collections.abc import Iterable, Sequence
from itertools import combinations

import trio
from attrs import define, field

from networking.simulation import SimulatedCluster, SimulatedNode

SHORT_PAUSE_S = 2.0
"""A node that stands still no longer than this at a time still counts as responsive."""
_TOLERANCE_S = 0.01

Pair = tuple[SimulatedNode, SimulatedNode]


@define
class Truth:
    """Since when two nodes have been in touch: both run, are awake but for short pauses, and reach each other both ways."""

    cluster: SimulatedCluster
    _in_touch_since: dict[Pair, tuple[tuple[int, int], float]] = field(
        factory=dict[Pair, tuple[tuple[int, int], float]]
    )
    """With the lives of both, as a restart begins anew."""
    _still_since: dict[SimulatedNode, float] = field(factory=dict[SimulatedNode, float])

    def look(self) -> None:
        """To be called often, and before each question."""
        now = trio.current_time()
        for node in self.cluster.nodes:
            if not self.cluster.network.is_paused(node.address):
                self._still_since.pop(node, None)
            else:
                self._still_since.setdefault(node, now)
        for pair in combinations(self.cluster.nodes, 2):
            self._look_at(pair, now)

    def in_touch_s(self, one: SimulatedNode, other: SimulatedNode) -> float:
        """For how long; 0 if they aren't."""
        since = self._in_touch_since.get((one, other)) or self._in_touch_since.get((other, one))
        return trio.current_time() - since[1] if since else 0.0

    def parts(self) -> list[list[SimulatedNode]]:
        """The running nodes, by who reaches whom both ways, if need be by way of others."""
        parts: list[list[SimulatedNode]] = []
        for node in self.cluster.running:
            joined = [part for part in parts if any(self._connects(node, each) for each in part)]
            parts = [part for part in parts if part not in joined]
            parts.append([*(each for part in joined for each in part), node])
        return parts

    def is_close(self, part: Sequence[SimulatedNode]) -> bool:
        """Whether any two of a part reach each other, or a third that reaches both: as far as members speak for each other."""
        return all(
            self._connects(one, other)
            or any(self._connects(one, each) and self._connects(each, other) for each in part)
            for one, other in combinations(part, 2)
        )

    def is_responsive(self, node: SimulatedNode) -> bool:
        still_s = trio.current_time() - self._still_since.get(node, trio.current_time())
        return node.is_running and not node.is_leaving and still_s <= SHORT_PAUSE_S + _TOLERANCE_S

    def _look_at(self, pair: Pair, now: float) -> None:
        one, other = pair
        if not (self.is_responsive(one) and self.is_responsive(other) and self._connects(one, other)):
            self._in_touch_since.pop(pair, None)
            return
        lives = one.lives, other.lives
        before = self._in_touch_since.get(pair)
        if before is None or before[0] != lives:
            self._in_touch_since[pair] = (lives, now)

    def _connects(self, one: SimulatedNode, other: SimulatedNode) -> bool:
        return self.cluster.network.connects(one.address, other.address)


def names(nodes: Iterable[SimulatedNode]) -> str:
    return " ".join(sorted(node.peer for node in nodes))
