"""Which of several rings of a model takes a request. Pure."""

from collections.abc import Sequence
from hashlib import blake2b

from attrs import frozen

from p2pexo.ring.plan import Placement


@frozen
class Candidate:
    """A ring that is ready, as this node knows it."""

    placement: Placement
    load: int
    """Requests that run or wait there."""
    capacity: int
    """How many of them may run at a time."""
    held: int = 0
    """Pieces of the prompt, from its beginning on, that the ring has met before."""
    is_here: bool = False
    """Whether its stage 0 runs on this node."""

    def burden(self, prefix_weight: float) -> float:
        """The load, less what the prefix is worth: ``prefix_weight`` requests for each piece, but no more than has room."""
        return self.load - min(self.held * prefix_weight, max(0, self.capacity - self.load))


def choose(candidates: Sequence[Candidate], request_id: str, prefix_weight: float) -> Placement:
    """The ring with the least burden.

    So the one that holds the longest prefix of a prompt gets it unless it is busier than the others by more than that is
    worth, and never to make a request wait there that could run elsewhere. Of equal ones the one that holds more; then one
    that begins on this node; then by a hash of the request, so that the nodes of a cluster don't all take the same one.
    """
    best = min(
        candidates,
        key=lambda each: (
            each.burden(prefix_weight),
            -each.held,
            not each.is_here,
            _lot(each.placement, request_id),
        ),
    )
    return best.placement


def _lot(placement: Placement, request_id: str) -> bytes:
    return blake2b(f"{placement.id} {request_id}".encode(), digest_size=8).digest()
