"""The cluster as a client sees it: members, and which models run where."""

from attrs import frozen


@frozen
class Model:
    id: str
    context_length: int = 0
    """Tokens, prompt and answer together; 0 if the node doesn't say."""
    description: str = ""


@frozen
class LinkSpeed:
    """From the node that tells of it to another one."""

    peer: str
    round_trip_s: float = 0.0
    bytes_per_s: float | None = None
    """None until it has been measured."""


@frozen
class Speeds:
    """How fast a node computes and reaches the others, as it has measured it."""

    decode_bytes_per_s: float | None = None
    """Bytes of weights that it works through to compute one token, each second; None until it has been measured."""
    prefill_flops_per_s: float | None = None
    """Floating point operations in a long prompt."""
    links: tuple[LinkSpeed, ...] = ()


@frozen
class Member:
    peer: str
    name: str = ""
    state: str = "alive"
    """``alive`` or ``suspect``."""
    is_leader: bool = False
    is_me: bool = False
    """True for the node that was asked."""
    machine: str = ""
    """Empty while only the connection to it is known."""
    version: str = ""
    device: str = ""
    memory_total: int = 0
    memory_free: int = 0
    memory_budget: int = 0
    """Bytes that models may use there."""
    memory_reserved: int = 0
    """Bytes that placements have reserved there."""
    api_url: str = ""
    """Where it answers HTTP."""
    addresses: tuple[str, ...] = ()
    """Where other nodes can dial it, as multiaddresses."""
    models: tuple[str, ...] = ()
    """Whose files it holds."""
    address: str = ""
    """The far end of the connection that the asked node has to it; empty for that node itself."""
    protocol: int | None = None
    """Which version of the nodes' protocol it speaks."""
    speeds: Speeds | None = None
    """None until it has measured something."""
    told_bytes: int = 0
    """What it tells the cluster takes, the placements included if it leads; every node holds a copy."""


@frozen
class Activity:
    """What a stage has done in the last seconds, and how its requests fared."""

    busy_share: float = 0.0
    """Of the time, that went into computing; 0 to 1."""
    batches_per_s: float = 0.0
    rows: float = 0.0
    """Tokens computed in one batch, on average."""
    sequences: float = 0.0
    """Of how many requests they were, on average."""
    hop_s: float | None = None
    """From one stage to the next one, on average round the ring. This and the next three are told by stage 0."""
    queue_s: float | None = None
    """How long the request that ended last waited before its prompt was begun."""
    prefill_tokens_per_s: float | None = None
    decode_tokens_per_s: float | None = None
    conversations: int | None = None
    """Whose caches the stage holds: of requests that run, and of ended ones that are kept for others. Every stage tells this."""
    cache_bytes: float | None = None
    """What they take."""
    requests: int | None = None
    """That run or wait. This and the next one are told by stage 0, once it has had one."""
    capacity: int | None = None
    """How many of them may run at a time."""


@frozen
class Stage:
    rank: int
    peer: str = ""
    node: str = ""
    first_layer: int = 0
    end_layer: int = 0
    phase: str = ""
    progress: float = 0.0
    """From 0 to 1, of what it does in this phase."""
    reason: str = ""
    weight_bytes: int = 0
    resident_bytes: int = 0
    """Of the whole process."""
    endpoint: str = ""
    """Where it listens for the previous stage."""
    link: str = ""
    """To the next stage."""
    compute: str = ""
    activity: Activity | None = None
    """None until it has said something of it."""


@frozen
class Placement:
    """A model that runs, or is on its way, as a ring of stages."""

    id: str
    model: str = ""
    revision: str = ""
    epoch: str = ""
    state: str = ""
    """``loading``, ``ready``, ``broken`` or ``failed``."""
    reason: str = ""
    by_user: bool = False
    stages: tuple[Stage, ...] = ()
    keep_alive_s: float | None = None
    """How long it stays after its last use; None: until somebody deletes it."""
    idle_since: float | None = None
    """Unix seconds of its last use; None while it is used, or where it doesn't matter."""

    @property
    def is_ready(self) -> bool:
        return self.state == "ready"

    @property
    def progress(self) -> float:
        """From 0 to 1: that of the stage that is furthest behind."""
        return 1.0 if self.is_ready else min((stage.progress for stage in self.stages), default=0.0)

    @property
    def failure(self) -> str:
        """Why it failed, in the words of the cluster, or else of the first stage that has any."""
        stages = (f"stage {stage.rank} on {stage.node}: {stage.reason}" for stage in self.stages if stage.reason)
        return self.reason or next(stages, "no reason was given; see the nodes' logs")


@frozen
class Newcomer:
    """A machine that waits to be let in."""

    peer: str
    name: str = ""
    machine: str = ""
    code: str = ""
    """To be compared with the one that it shows itself."""
    address: str = ""
    """The IP address it asks from."""
    at: str = ""
    """The name of the member that it asked."""
    looks_like: str = ""
    """The member, here or away, that is called so or that its name could be taken for; empty if there is none."""


@frozen
class Asking:
    """The node that was asked waits to be let into another cluster."""

    cluster: str = ""
    code: str = ""


@frozen
class Away:
    """One that has been a member and is not here now."""

    peer: str
    name: str = ""
    machine: str = ""
    """Empty if it never said one to the node that was asked."""


@frozen
class ClusterState:
    cluster: str = ""
    """The cluster's name."""
    me: str = ""
    """Peer id of the node that was asked."""
    leader: str | None = None
    term: int = 0
    open: bool = False
    """True if the cluster has no secret."""
    members: tuple[Member, ...] = ()
    placements: tuple[Placement, ...] = ()
    warnings: tuple[str, ...] = ()
    """Things a person should know: other clusters seen, versions that differ, a slow BLAS."""
    newcomers: tuple[Newcomer, ...] = ()
    """Machines that wait to be let in."""
    asking: Asking | None = None
    away: tuple[str, ...] = ()
    """Peer ids of those that have been members, are not here now, and may come back without asking."""
    away_members: tuple[Away, ...] = ()
    """The same, with what they called themselves when they were last here. Empty from a node of an older version."""

    def placement(self, placement_id: str) -> Placement | None:
        return next((each for each in self.placements if each.id == placement_id), None)
