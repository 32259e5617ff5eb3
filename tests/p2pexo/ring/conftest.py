"""Rings of real stage processes on loopback, with the scripted engine unless a test brings another."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from attrs import define, evolve

from networking.transport import PeerId
from p2pexo.cluster.assignments import Assignment, neighbours
from p2pexo.cluster.facts import Placements, StageFact
from p2pexo.cluster.observed import Cluster
from p2pexo.engine.limits import Limits
from p2pexo.generation.events import Delta, Event
from p2pexo.generation.request import Message, Request, Role, Sampling
from p2pexo.ring.engines import SCRIPTED_ENGINE
from p2pexo.ring.plan import Epoch, Placement, StagePlan
from p2pexo.ring.scripted import Script
from p2pexo.ring.stage import Neighbours, StagePhase, StageSpec, StageStatus
from p2pexo.ring.step_clock import Patience
from p2pexo.ring.supervisor import StageProcess


def epoch(count: int) -> Epoch:
    return Epoch(1, count, "leader")


def make_placement(layers: int, stages: int, *, precision: str = "auto") -> Placement:
    cuts = [round(layers * rank / stages) for rank in range(stages + 1)]
    plans = tuple(StagePlan("peer", first, end) for first, end in pairwise(cuts))
    return Placement("p1", "test/model", "r1", epoch(1), plans, precision=precision)


def neighbours_among(statuses: list[StageStatus], assignment: Assignment) -> Neighbours:
    """As a worker finds them among what other nodes tell; here all is told by one, and believed."""
    placement = assignment.placement
    facts = (StageFact(placement, rank, status, signature="") for rank, status in enumerate(statuses))
    stages = {(placement.stages[fact.rank].peer, placement.id, fact.rank): fact for fact in facts}
    found = neighbours(assignment, Cluster("me", None, 0, {}, {}, {}, stages, Placements()), believe)
    assert found is not None
    return found


def believe(peer: PeerId, data: bytes, signature: bytes) -> bool:
    return True


@define
class Ring:
    processes: list[StageProcess]
    nursery: trio.Nursery

    @property
    def first(self) -> StageProcess:
        return self.processes[0]

    async def start(self, rank: int) -> None:
        await self.nursery.start(self.processes[rank].run)

    async def replace(self, rank: int, engine: str = SCRIPTED_ENGINE) -> None:
        """A fresh process in the place of one that is gone."""
        self.processes[rank] = StageProcess(self.processes[rank].spec, name=f"stage {rank}", engine=engine)
        await self.start(rank)

    async def wait(self, rank: int, *phases: StagePhase, count: int | None = None) -> StageStatus:
        """Until the stage is in one of the phases, and in the epoch of that count if one is given."""
        with trio.fail_after(30):
            async for status in self.processes[rank].statuses():
                if status.phase in phases and count in (None, status.epoch and status.epoch.count):
                    return status
        raise AssertionError(f"the stage ended before it was {phases}: {self.processes[rank].status}")

    async def tell(self, count: int, *ranks: int) -> None:
        """Tell these stages their neighbours in an epoch, once all are loaded."""
        loaded = (StagePhase.LISTENING, StagePhase.LINKING, StagePhase.READY, StagePhase.BROKEN)
        statuses = [await self.wait(rank, *loaded) for rank in range(len(self.processes))]
        placement = evolve(self.first.spec.placement, epoch=epoch(count))
        for rank in ranks:
            await self.processes[rank].join(neighbours_among(statuses, Assignment(placement, rank)))

    async def form(self, count: int) -> None:
        """Tell all stages their neighbours in an epoch; wait until all are ready."""
        ranks = range(len(self.processes))
        await self.tell(count, *ranks)
        for rank in ranks:
            await self.wait(rank, StagePhase.READY, count=count)

    async def ask(self, request: Request) -> list[Event]:
        with trio.fail_after(30):
            async with self.first.generate(request) as events:
                return [event async for event in events]


RingOf = Callable[..., AbstractAsyncContextManager[Ring]]


@pytest.fixture
def ring_of(tmp_path: Path) -> RingOf:
    """``async with ring_of(3) as ring``: that many stages, formed in epoch 1."""

    @asynccontextmanager
    async def ring_of(
        stages: int,
        script: Script | None = None,
        *,
        form: bool = True,
        limits: Limits | None = None,
        patience: Patience | None = None,
    ) -> AsyncGenerator[Ring]:
        script = script or Script()
        script.write(tmp_path)
        placement = make_placement(script.layers, stages)
        async with running_ring(placement, tmp_path, SCRIPTED_ENGINE, limits=limits, patience=patience) as ring:
            if form:
                await ring.form(1)
            yield ring

    return ring_of


@asynccontextmanager
async def running_ring(
    placement: Placement,
    directory: Path,
    engine: str,
    environment: dict[str, str] | None = None,
    *,
    limits: Limits | None = None,
    patience: Patience | None = None,
) -> AsyncGenerator[Ring]:
    processes = [
        StageProcess(
            StageSpec(placement, rank, directory, ("127.0.0.1",)),
            environment=environment,
            name=f"stage {rank}",
            engine=engine,
            limits=limits,
            patience=patience,
        )
        for rank in range(len(placement.stages))
    ]
    async with trio.open_nursery() as nursery:
        ring = Ring(processes, nursery)
        for rank in range(len(processes)):
            await ring.start(rank)
        yield ring
        nursery.cancel_scope.cancel()


@pytest.fixture
def run_ring() -> Callable[..., AbstractAsyncContextManager[Ring]]:
    return running_ring


@pytest.fixture
def placement_of() -> Callable[..., Placement]:
    return make_placement


@pytest.fixture
def request_for() -> Callable[..., Request]:
    def request_for(content: str, *, id: str = "r1", max_tokens: int | None = 20, **changes: object) -> Request:
        changes.setdefault("sampling", Sampling(temperature=0.0))
        return Request(id, "test/model", (Message(Role.USER, content),), max_tokens=max_tokens, **changes)  # type: ignore[arg-type]

    return request_for


@pytest.fixture
def tokens_in() -> Callable[[list[Event]], list[int]]:
    return lambda events: [token for event in events if isinstance(event, Delta) for token in event.tokens]
