"""Who is next to whom: from what the stages of a ring say of themselves to what each must be told."""

from collections.abc import Sequence

from p2pexo.ring.plan import Epoch
from p2pexo.ring.stage import Neighbours, StageStatus


def neighbours_of(rank: int, statuses: Sequence[StageStatus], epoch: Epoch) -> Neighbours:
    """What the stage ``rank`` is told, given the statuses of all stages in order."""
    if len(statuses) == 1:
        return Neighbours(epoch)
    following = statuses[(rank + 1) % len(statuses)]
    return Neighbours(epoch, statuses[rank - 1].certificate, following.certificate, following.endpoints)
