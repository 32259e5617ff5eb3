"""The cluster as one picture: what ``GET /v1/cluster``, the page and ``p2pexo status`` show."""

from attrs import frozen

from p2pexo.cluster.facts import SpeedsFact
from p2pexo.ring.activity import StageActivity


@frozen
class MemberView:
    peer: str
    name: str
    state: str
    """``alive`` or ``suspect``."""
    is_leader: bool
    is_me: bool
    machine: str
    version: str
    device: str
    memory_total: int
    memory_free: int
    memory_budget: int
    memory_reserved: int
    """Sum of what placements have reserved on it."""
    api_url: str
    addresses: tuple[str, ...]
    models: tuple[str, ...]
    address: str = ""
    """The far end of the connection to it; empty for this node itself, and while there is none."""
    protocol: int | None = None
    """The version of the protocol that it speaks; None if it didn't say."""
    speeds: SpeedsFact | None = None
    """How fast it computes and reaches the others; None until it has measured something."""
    told_bytes: int = 0
    """What it tells the cluster takes, the placements included if it leads; every node holds a copy."""


@frozen
class StageView:
    rank: int
    peer: str
    node: str
    first_layer: int
    end_layer: int
    phase: str
    progress: float
    reason: str
    weight_bytes: int
    resident_bytes: int
    endpoint: str
    """Where it listens for the previous stage."""
    link: str
    compute: str
    activity: StageActivity | None = None
    """What it is busy with; None until it has said something of it."""


@frozen
class PlacementView:
    id: str
    model: str
    revision: str
    epoch: str
    state: str
    """``loading``, ``ready``, ``broken`` or ``failed``: that of its worst stage."""
    reason: str
    by_user: bool
    stages: tuple[StageView, ...]
    keep_alive_s: float | None = None
    """How long it stays after its last use; None: until somebody deletes it."""
    idle_since: float | None = None
    """Unix seconds of its last use; None while it is used, or where it doesn't matter."""


@frozen
class NewcomerView:
    """A machine that waits to be let in."""

    peer: str
    name: str
    machine: str
    code: str
    """To be compared with the one that it shows itself."""
    address: str
    at: str
    """The name of the member that it asked."""
    looks_like: str = ""
    """The member, here or away, that is called so or that its name could be taken for; empty if there is none."""


@frozen
class AskingView:
    """The node that was asked waits to be let into another cluster."""

    cluster: str
    code: str


@frozen
class AwayView:
    """One that has been a member and is not here now."""

    peer: str
    name: str
    machine: str = ""
    """Empty if it never said one here."""


@frozen
class ClusterSnapshot:
    cluster: str
    """The cluster's name."""
    me: str
    leader: str | None
    term: int
    open: bool
    """True if the cluster has no secret."""
    members: tuple[MemberView, ...]
    placements: tuple[PlacementView, ...]
    warnings: tuple[str, ...] = ()
    """Things a person should know: other clusters seen, versions that differ, a slow BLAS."""
    newcomers: tuple[NewcomerView, ...] = ()
    asking: AskingView | None = None
    away: tuple[str, ...] = ()
    """Peer ids of those that have been members, are not here now, and may come back without asking."""
    away_members: tuple[AwayView, ...] = ()
    """The same, with what they called themselves when they were last here."""
