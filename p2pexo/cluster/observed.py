"""The overlay's view, decoded: which nodes are there, what they tell, what is placed and how its stages do."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

import structlog
from attrs import field, frozen

from networking.membership import MemberState
from networking.view import Member, View
from p2pexo.cluster.facts import (
    ACTIVITY_KEY_PREFIX,
    LEAVING_KEY,
    MODELS_KEY,
    NODE_KEY,
    SPEEDS_KEY,
    STAGE_KEY_PREFIX,
    STAYS_KEY,
    ActivityFact,
    ModelsFact,
    NodeFacts,
    Placements,
    SpeedsFact,
    StageFact,
    StayFact,
    StaysFact,
)
from p2pexo.generation.codec import DecodeError, decode
from p2pexo.models.card import Card
from p2pexo.ring.activity import StageActivity
from p2pexo.ring.plan import Placement
from p2pexo.ring.stage import StagePhase

T = TypeVar("T")
log = structlog.get_logger(__name__)

LOADED = (StagePhase.LISTENING, StagePhase.LINKING, StagePhase.READY, StagePhase.BROKEN)

StageKey = tuple[str, str, int]
"""(peer, placement id, rank)"""


@frozen
class Cluster:
    me: str
    leader: str | None
    term: int
    members: Mapping[str, Member]
    """The live ones, the suspect among them included."""
    nodes: Mapping[str, NodeFacts]
    models: Mapping[str, ModelsFact]
    stages: Mapping[StageKey, StageFact]
    placements: Placements
    stays: Mapping[str, StaysFact] = field(factory=dict[str, StaysFact])
    leaving: frozenset[str] = frozenset()
    """Peers that are about to go; no stage is given to them any more."""
    speeds: Mapping[str, SpeedsFact] = field(factory=dict[str, SpeedsFact])
    activities: Mapping[StageKey, StageActivity] = field(factory=dict[StageKey, StageActivity])
    """What stages are busy with, as far as they have told."""

    @property
    def i_lead(self) -> bool:
        return self.leader == self.me

    def is_live(self, peer: str) -> bool:
        return peer in self.members

    def is_alive(self, peer: str) -> bool:
        """Live and not suspect."""
        return peer in self.members and self.members[peer].state is MemberState.ALIVE

    def name_of(self, peer: str) -> str:
        return self.nodes[peer].name if peer in self.nodes else peer[-8:]

    def stage(self, placement: Placement, rank: int) -> StageFact | None:
        """What the planned peer reports of a stage in the placement's present epoch; None while it reports nothing."""
        fact = self.stages.get((placement.stages[rank].peer, placement.id, rank))
        return fact if fact is not None and fact.placement.epoch == placement.epoch else None

    def stages_of(self, placement: Placement) -> list[StageFact | None]:
        """By rank."""
        return [self.stage(placement, rank) for rank in range(len(placement.stages))]

    def is_loaded(self, placement: Placement) -> bool:
        """Whether all stages have their layers in memory, linked or not."""
        return all(fact is not None and fact.status.phase in LOADED for fact in self.stages_of(placement))

    def is_ready(self, placement: Placement) -> bool:
        return all(self._stage_is_ready(placement, rank) for rank in range(len(placement.stages)))

    def _stage_is_ready(self, placement: Placement, rank: int) -> bool:
        fact = self.stage(placement, rank)
        return (
            self.is_live(placement.stages[rank].peer)
            and fact is not None
            and fact.status.phase is StagePhase.READY
            and fact.status.epoch == placement.epoch
        )

    def stay_of(self, placement: Placement) -> StayFact | None:
        """What the node of its stage 0 tells of how long it stays; None if it doesn't leave by itself."""
        told = self.stays.get(placement.first_peer, StaysFact())
        return next((each for each in told.stays if each.placement_id == placement.id), None)

    def reserved_on(self, peer: str, *, besides: str = "") -> int:
        """Bytes that placements other than ``besides`` have reserved on a peer."""
        return sum(
            stage.reserved_bytes
            for placement in self.placements.placements
            if placement.id != besides
            for stage in placement.stages
            if stage.peer == peer
        )

    def card_of(self, model: str) -> Card | None:
        cards = (card for fact in self.models.values() for card in fact.cards)
        return next((card for card in cards if card.id == model), None)


def observe(view: View) -> Cluster:
    """Decode what the live members tell. Facts that can't be read (a newer version's) are logged once and left out."""
    members = {str(member.peer): member for member in view.members}
    documents = {peer: view.facts.get(member.peer, {}) for peer, member in members.items()}
    return Cluster(
        me=str(view.me),
        leader=str(view.leader) if view.leader is not None else None,
        term=view.term,
        members=members,
        nodes=_one_of_each(documents, NODE_KEY, NodeFacts),
        models=_one_of_each(documents, MODELS_KEY, ModelsFact),
        stages={
            (peer, fact.placement.id, fact.rank): fact
            for peer, document in documents.items()
            for key, value in document.items()
            if key.startswith(STAGE_KEY_PREFIX) and (fact := read(value, StageFact)) is not None
        },
        placements=read_placements(view.payload),
        stays=_one_of_each(documents, STAYS_KEY, StaysFact),
        leaving=frozenset(peer for peer, document in documents.items() if LEAVING_KEY in document),
        speeds=_one_of_each(documents, SPEEDS_KEY, SpeedsFact),
        activities={
            (peer, fact.placement_id, fact.rank): fact.activity
            for peer, document in documents.items()
            for key, value in document.items()
            if key.startswith(ACTIVITY_KEY_PREFIX) and (fact := read(value, ActivityFact)) is not None
        },
    )


def read_placements(payload: bytes) -> Placements:
    """The leader's payload; empty if nothing was placed yet, or if it can't be read."""
    return (read(payload, Placements) if payload else None) or Placements()


@lru_cache(maxsize=1024)
def read(value: bytes, cls: type[T]) -> T | None:
    try:
        return decode(value, cls)
    except DecodeError as error:
        log.warning("a fact of another node can't be read", kind=cls.__name__, error=str(error))
        return None


def _one_of_each(documents: Mapping[str, Mapping[str, bytes]], key: str, cls: type[T]) -> dict[str, T]:
    read_facts: dict[str, Any] = {
        peer: read(document[key], cls) for peer, document in documents.items() if key in document
    }
    return {peer: fact for peer, fact in read_facts.items() if fact is not None}
