"""A placement: which machines run which layers of a model, in which order."""

from attrs import field, frozen

from p2pexo.models.card import Card


@frozen(order=True)
class Epoch:
    """Orders the lives of a placement: whoever leads raises ``count``; a later term beats an earlier one (DESIGN 9.2)."""

    term: int
    count: int
    leader: str

    def __str__(self) -> str:
        return f"{self.term}.{self.count}.{self.leader[-6:]}"


@frozen
class StagePlan:
    """One stage. Rank 0 also holds the embedding, the last rank the final norm and the head."""

    peer: str
    first_layer: int
    end_layer: int
    """Exclusive."""
    reserved_bytes: int = 0
    """Weights, embedding or head where they sit here, and the KV cache reserve."""
    cache_tokens: int = 0
    """Tokens of conversation that the reserve has room for, counted in fp32; 0 if nothing is said of it."""


@frozen
class Placement:
    id: str
    model: str
    revision: str
    epoch: Epoch
    stages: tuple[StagePlan, ...] = field(converter=tuple)
    precision: str = "auto"
    by_user: bool = False
    """True if a person asked for it; automatic ones may be evicted when idle."""
    card: Card | None = None
    """What the model needs: any later leader plans with it, and every worker fetches by it."""

    @property
    def first_peer(self) -> str:
        """The peer of stage 0, to which requests go."""
        return self.stages[0].peer

    @property
    def cache_tokens(self) -> int:
        """Tokens of conversation for which every stage has room; 0 if nothing is said of it."""
        return min(stage.cache_tokens for stage in self.stages)

    def ranks_of(self, peer: str) -> tuple[int, ...]:
        return tuple(rank for rank, stage in enumerate(self.stages) if stage.peer == peer)
