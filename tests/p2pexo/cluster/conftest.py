"""A cluster as the pure decisions see it, put together by hand."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from attrs import evolve, frozen

from networking.membership import MemberState
from networking.transport import Address, PeerId
from networking.view import Member
from p2pexo.cluster.facts import ModelsFact, NodeFacts, Placements, StageFact
from p2pexo.cluster.observed import Cluster
from p2pexo.models.card import Card
from p2pexo.ring.plan import Epoch, Placement, StagePlan
from p2pexo.ring.stage import Endpoint, StagePhase, StageStatus


@frozen
class Scene:
    card: Card
    epoch: Epoch

    def placement(self, *peers: str, epoch: Epoch | None = None, id: str = "p1") -> Placement:
        size = self.card.layers // len(peers)
        stages = [
            StagePlan(peer, rank * size, self.card.layers if rank == len(peers) - 1 else (rank + 1) * size, 1000)
            for rank, peer in enumerate(peers)
        ]
        return Placement(id, self.card.id, self.card.revision, epoch or self.epoch, stages, card=self.card)

    def fact(self, placement: Placement, rank: int, phase: StagePhase = StagePhase.READY, **status: Any) -> StageFact:
        joined = phase in (StagePhase.READY, StagePhase.LINKING, StagePhase.BROKEN)
        told: dict[str, Any] = {
            "epoch": placement.epoch if joined else None,
            "certificate": f"certificate {rank}",
            "endpoints": (Endpoint("127.0.0.1", 4000 + rank),),
        }
        return StageFact(placement, rank, StageStatus(phase, **(told | status)), "")

    def cluster(
        self,
        live: str,
        placements: Placements | None = None,
        facts: Iterable[StageFact] = (),
        *,
        me: str = "a",
        suspect: str = "",
        budgets: Mapping[str, int] | None = None,
        held: str = "",
        gpus: str = "",
    ) -> Cluster:
        """``live``, ``suspect``, ``held`` and ``gpus`` name peers by one letter each; a suspect one is live too."""
        node = NodeFacts("", "", "1", "cpu", 10**6, 10**6, 10**6, "", ("127.0.0.1",))
        states = {peer: MemberState.SUSPECT if peer in suspect else MemberState.ALIVE for peer in live}
        return Cluster(
            me=me,
            leader="a",
            term=4,
            members={
                peer: Member(PeerId(peer), state, index, (Address("/ip4/10.0.0.1/tcp/1"),))
                for index, (peer, state) in enumerate(states.items())
            },
            nodes={
                peer: evolve(
                    node,
                    name=f"mac-{peer}",
                    memory_budget=(budgets or {}).get(peer, 10**6),
                    device="gpu" if peer in gpus else "cpu",
                )
                for peer in live
            },
            models={peer: ModelsFact((self.card.id,), (self.card,)) for peer in held},
            stages={(fact.placement.stages[fact.rank].peer, fact.placement.id, fact.rank): fact for fact in facts},
            placements=placements or Placements(),
        )


@pytest.fixture
def scene() -> Scene:
    return Scene(Card("owner/model", "r1", "llama", 30, 576, 4, 100, 300, 320, 5), Epoch(1, 1, "a"))
