"""What each node tells of itself, as keys of its overlay document, and what the leader's claim carries."""

from attrs import field, frozen

from p2pexo.models.card import Card
from p2pexo.ring.activity import StageActivity
from p2pexo.ring.plan import Epoch, Placement
from p2pexo.ring.stage import StageStatus, shorten

NODE_KEY = "node"
MODELS_KEY = "models"
PAIRING_KEY = "pairing"
CHARTER_KEY = "charter"
STAYS_KEY = "stays"
SPEEDS_KEY = "speeds"
LEAVING_KEY = "leaving"
STAGE_KEY_PREFIX = "stage/"
"""Followed by ``<placement id>/<rank>``."""
ACTIVITY_KEY_PREFIX = "activity/"
"""Followed by the same."""


@frozen
class NodeFacts:
    """Structural facts of a node; change rarely."""

    name: str
    machine: str
    """Such as ``Apple M3 Max, 64 GB`` or ``Linux x86_64, 2 cores``."""
    version: str
    device: str
    """MLX's device: ``gpu`` or ``cpu``."""
    memory_total: int
    memory_budget: int
    """Bytes that placements may use on this node."""
    memory_free: int
    """As the system sees it, for people; placement goes by the budget."""
    api_url: str
    link_hosts: tuple[str, ...] = field(converter=tuple)
    """Hosts on which its stages listen, best first."""
    dense: bool = False
    """True if weights are dequantised at load (Linux CPU)."""


@frozen
class ModelsFact:
    """The models whose files this node holds, and their cards, so that any leader can place them."""

    held: tuple[str, ...] = ()
    cards: tuple[Card, ...] = ()


@frozen
class LinkSpeed:
    """From the node that tells of it to another one."""

    peer: str
    round_trip_s: float
    bytes_per_s: float | None = None
    """None until it has been measured."""


@frozen
class SpeedsFact:
    """How fast a node computes and reaches the others, as it has measured it; None until it has."""

    decode_bytes_per_s: float | None = None
    """Bytes of weights, in the form in which it loads them, that it works through to compute one token."""
    prefill_flops_per_s: float | None = None
    """Floating point operations, two for each weight and token, in a long prompt."""
    links: tuple[LinkSpeed, ...] = field(default=(), converter=tuple)


@frozen
class StageFact:
    """One stage as its worker reports it. Carries the placement in full, so that a new leader can adopt it."""

    placement: Placement
    rank: int
    status: StageStatus
    signature: str
    """By the peer key over the certificate, the placement id and the rank (base64)."""


@frozen
class ActivityFact:
    """What a stage is busy with; volatile, and so told apart from the stage itself."""

    placement_id: str
    rank: int
    activity: StageActivity


@frozen
class StayFact:
    """How long a placement that requests brought about stays. As the node of its stage 0 tells it."""

    placement_id: str
    keep_alive_s: float
    """After its last use; negative means for ever."""
    idle_since: float | None = None
    """Wall clock seconds of that node, for people; None while it is used, or being formed."""


@frozen
class StaysFact:
    """Of all such placements whose stage 0 a node runs."""

    stays: tuple[StayFact, ...] = field(default=(), converter=tuple)


@frozen
class LeavingFact:
    """Told by a node that is about to go: its stages are to move to others while they still serve."""


@frozen
class Newcomer:
    """A machine that waits to be let in by the node that tells of it. Only its peer id is proven."""

    peer: str
    name: str
    machine: str
    code: str
    """What both machines show, if nobody stands between them."""
    address: str
    """The IP address it asks from."""
    looks_like: str = ""
    """The member, here or away, that is called so or that its name could be taken for; empty if there is none."""


@frozen
class Asking:
    """The node that tells of it waits to be let into another cluster."""

    cluster: str
    code: str


@frozen
class PairingFact:
    """Who waits for whom, as one node sees it."""

    waiting: tuple[Newcomer, ...] = field(default=(), converter=tuple)
    asking: Asking | None = None


@frozen
class CharterFact:
    """Which secret a node goes by, and whom it lets in no more."""

    number: int
    """How often the secret has been changed; of two, the higher counts."""
    fingerprint: str
    removed: tuple[str, ...] = field(default=(), converter=tuple)


@frozen
class Deletion:
    """A placement that somebody ended. Kept for an hour, so that no worker's report brings it back."""

    placement_id: str
    reason: str = field(converter=shorten)
    deleted_at: float
    """Wall clock seconds of the leader: for people, and for which go first when there are too many. How long it is kept
    goes by the holder's own monotonic clock."""
    failed: Placement | None = None
    """The placement as it last was, if it ended because it could not run."""
    idle: bool = False
    """True if it ended because nobody used it: whoever asks for the model gets it placed again."""
    makes_room_for: str = ""
    """The model that needed its memory, if that is why it ended."""

    @property
    def was_asked_for(self) -> bool:
        """Whether somebody wanted the model to stop."""
        return self.failed is None and not self.idle


@frozen
class Trouble:
    """Why a placement that lost a stage has not been formed anew yet; tried again whenever the cluster changes."""

    placement_id: str
    reason: str = field(converter=shorten)


@frozen
class Withdrawal:
    """A ring that was formed where its placement was thought lost, but an older ring of it is still there and goes on."""

    placement_id: str
    epoch: Epoch


@frozen
class Placements:
    """The payload of the leader's claim: one atomic fact with it."""

    placements: tuple[Placement, ...] = field(default=(), converter=tuple)
    deletions: tuple[Deletion, ...] = field(default=(), converter=tuple)
    next_count: int = 1
    troubles: tuple[Trouble, ...] = field(default=(), converter=tuple)
    rivals: tuple[Placement, ...] = field(default=(), converter=tuple)
    """Other epochs of ``placements`` that other leaders held, until it is decided which one goes on."""
    withdrawals: tuple[Withdrawal, ...] = field(default=(), converter=tuple)

    def find(self, placement_id: str) -> Placement | None:
        return next((each for each in self.placements if each.id == placement_id), None)

    def deletion_of(self, placement_id: str) -> Deletion | None:
        return next((each for each in self.deletions if each.placement_id == placement_id), None)

    def trouble_of(self, placement_id: str) -> Trouble | None:
        return next((each for each in self.troubles if each.placement_id == placement_id), None)

    def is_withdrawn(self, placement: Placement) -> bool:
        return any((each.placement_id, each.epoch) == (placement.id, placement.epoch) for each in self.withdrawals)

    @property
    def undecided(self) -> frozenset[str]:
        """Ids of placements that two leaders have formed rings of."""
        return frozenset(each.id for each in self.rivals)


def stage_key(placement_id: str, rank: int) -> str:
    return f"{STAGE_KEY_PREFIX}{placement_id}/{rank}"


def activity_key(placement_id: str, rank: int) -> str:
    return f"{ACTIVITY_KEY_PREFIX}{placement_id}/{rank}"


__all__ = [
    "ACTIVITY_KEY_PREFIX",
    "CHARTER_KEY",
    "LEAVING_KEY",
    "MODELS_KEY",
    "NODE_KEY",
    "PAIRING_KEY",
    "SPEEDS_KEY",
    "STAGE_KEY_PREFIX",
    "STAYS_KEY",
    "ActivityFact",
    "Asking",
    "CharterFact",
    "Deletion",
    "Epoch",
    "LeavingFact",
    "LinkSpeed",
    "ModelsFact",
    "Newcomer",
    "NodeFacts",
    "PairingFact",
    "Placements",
    "SpeedsFact",
    "StageFact",
    "StayFact",
    "StaysFact",
    "Trouble",
    "Withdrawal",
    "activity_key",
    "stage_key",
]
