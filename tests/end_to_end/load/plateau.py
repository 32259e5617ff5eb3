"""Whether a figure that was read again and again has stopped growing. Pure."""

from collections.abc import Sequence
from statistics import median

from attrs import frozen


@frozen
class Plateau:
    """A figure early and late in a time, behind a warm-up of a quarter of it."""

    first: float
    last: float

    @property
    def grown(self) -> float:
        return self.last - self.first

    def is_flat(self, share: float, slack: float) -> bool:
        """Whether it has grown by no more than ``share`` of itself and ``slack``, which is for what allocators keep."""
        return self.grown <= share * self.first + slack

    def pair(self) -> tuple[float, float]:
        return round(self.first, 1), round(self.last, 1)


def plateau(readings: Sequence[float]) -> Plateau:
    """The medians of the second and of the last quarter. Raises ValueError without readings."""
    if not readings:
        raise ValueError("nothing was read, so nothing can be said of its growth; let it run for longer")
    quarter = max(1, len(readings) // 4)
    return Plateau(median(readings[quarter : 2 * quarter] or readings[:1]), median(readings[-quarter:]))
