"""The machines that a model may be placed on, as the leader weighs them."""

from collections.abc import Sequence

from attrs import field, frozen

from p2pexo.cluster.facts import LinkSpeed, SpeedsFact


@frozen
class Candidate:
    """A live machine, and what it can give."""

    peer: str
    name: str
    budget: int
    """Bytes that placements may use in all."""
    reserved: int = 0
    """Bytes that other placements have taken of it."""
    dense: bool = False
    """True if it dequantises weights at load."""
    preference: int = 0
    """Higher is taken first: it holds the model's files, or runs a stage of it already."""
    device: str = "cpu"
    speeds: SpeedsFact = field(factory=SpeedsFact)

    @property
    def free(self) -> int:
        return self.budget - self.reserved

    def dequantises(self, precision: str) -> bool:
        return precision == "dequantise" or (precision == "auto" and self.dense)

    def format(self, precision: str) -> str:
        """The numbers in which it hands on hidden states; all stages of a ring must agree on them."""
        return "fp32" if self.device == "cpu" or self.dequantises(precision) else "the model's own"

    def link_to(self, other: "Candidate") -> LinkSpeed | None:
        """As this machine has measured it, or else as the other one has."""
        own = (link for link in self.speeds.links if link.peer == other.peer)
        theirs = (link for link in other.speeds.links if link.peer == self.peer)
        return next(own, None) or next(theirs, None)


def by_preference(candidate: Candidate) -> tuple[int, int, str]:
    """Sorts the machine to be taken first to the front."""
    return (-candidate.preference, -candidate.free, candidate.peer)


def by_format(candidates: Sequence[Candidate], precision: str) -> dict[str, list[Candidate]]:
    """The machines that can share a ring, by the format in which they compute."""
    groups: dict[str, list[Candidate]] = {}
    for each in candidates:
        groups.setdefault(each.format(precision), []).append(each)
    return groups
