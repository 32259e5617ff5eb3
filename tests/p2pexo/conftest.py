"""Whole nodes over a simulated network in virtual time: real overlays, real duties, stages that only pretend."""

from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from attrs import evolve

from networking.overlay import MemoryState, Overlay, OverlaySettings
from networking.simulated_network import SimulatedNetwork
from networking.simulated_transport import SimulatedTransport
from networking.simulation import simulate
from networking.transport import Address, PeerId
from p2pexo.cluster.control import Control
from p2pexo.cluster.facts import NodeFacts
from p2pexo.cluster.gauge import Gauge
from p2pexo.cluster.idle_rings import IdleRings
from p2pexo.cluster.keeper import Surroundings
from p2pexo.cluster.leader import Leader
from p2pexo.cluster.leaving import Departure
from p2pexo.cluster.placements import merge_payloads
from p2pexo.cluster.reporter import Reporter
from p2pexo.cluster.snapshot import PlacementView
from p2pexo.cluster.worker import Worker
from p2pexo.engine.speeds import ComputeSpeed
from p2pexo.generation.errors import ModelNotFoundError, RingBrokenError
from p2pexo.generation.events import Delta, Event, Failed, Finished, FinishReason, Started, Usage
from p2pexo.generation.request import Request
from p2pexo.models.card import Card
from p2pexo.ring.activity import StageActivity
from p2pexo.ring.stage import Endpoint, Neighbours, StagePhase, StageSpec, StageStatus
from p2pexo.serving.host import Host
from p2pexo.serving.router import Router
from p2pexo.serving.settings import RouterSettings

CARD = Card("owner/model", "r1", "llama", 30, 576, 4096, 100, 300, 320, 1)
HUB_CARD = evolve(CARD, id="hub/model", source="hub")
TOKEN_S = 0.1


class PretendedStage:
    """Goes through the phases of a stage process. A link of it breaks when the stage at its other end is gone."""

    def __init__(self, spec: StageSpec, rehearsal: "Rehearsal", node: str) -> None:
        self.spec = spec
        self.node = node
        self.requests: list[Request] = []
        self.cancelled: list[str] = []
        self.neighbours: Neighbours | None = None
        self.status = StageStatus(StagePhase.STARTING)
        self.ended = False
        self._rehearsal = rehearsal
        self._crashed = trio.Event()
        self._changed = trio.Event()
        rehearsal.stages.append(self)
        self._number = len(rehearsal.stages)

    async def statuses(self) -> AsyncIterator[StageStatus]:
        shown = None
        while True:
            if self.status != shown:
                shown = self.status
                yield shown
            elif self.ended:
                return
            else:
                await self._changed.wait()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        reason = "it was stopped"
        try:
            for tenth in range(10):
                self._set(phase=StagePhase.LOADING, progress=tenth / 10)
                await trio.sleep(self._rehearsal.load_s / 10)
            if self.node in self._rehearsal.unable:
                reason = self._rehearsal.reason
                return
            self._set(
                phase=StagePhase.LISTENING,
                progress=1.0,
                certificate=f"certificate {self._number}",
                endpoints=tuple(Endpoint(host, self._number) for host in self.spec.listen_hosts),
            )
            await self._crashed.wait()
            reason = "killed by SIGKILL"
        finally:
            self.ended = True
            self._set(phase=StagePhase.FAILED, reason=reason)
            self._rehearsal.break_links_to(self.status.certificate)

    async def join(self, neighbours: Neighbours) -> None:
        epoch = neighbours.epoch
        if self.status.epoch is None or epoch > self.status.epoch:
            self.neighbours = neighbours
            self._set(phase=StagePhase.LINKING, epoch=epoch, reason="")
            await trio.sleep(0.05)
            self._set(phase=StagePhase.READY)

    @asynccontextmanager
    async def generate(self, request: Request) -> AsyncGenerator[trio.MemoryReceiveChannel[Event]]:
        """Ten tokens, one each tenth of a second, but for those replayed, unless the ring breaks."""
        self.requests.append(request)
        send, receive = trio.open_memory_channel[Event](100)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer, send, len(request.replayed_tokens))
            try:
                yield receive
            except BaseException:
                self.cancelled.append(request.id)
                raise
            finally:
                nursery.cancel_scope.cancel()

    async def _answer(self, send: trio.MemorySendChannel[Event], first: int) -> None:
        async with send:
            await send.send(Started(5)) if self.status.phase is StagePhase.READY else None
            await trio.sleep(self._rehearsal.prefill_s)
            for index in range(first, 10):
                if self._rehearsal.deadly_token == index:
                    self.crash()
                    await trio.sleep(TOKEN_S)
                if self.status.phase is not StagePhase.READY:
                    await send.send(Failed(RingBrokenError(self.status.reason).report()))
                    return
                await send.send(Delta(index, (index,), f"{index} "))
                await trio.sleep(TOKEN_S)
            await send.send(Finished(FinishReason.LENGTH, Usage(5, 10)))

    def crash(self) -> None:
        self._crashed.set()

    def be_busy(self, activity: StageActivity) -> None:
        self._set(activity=activity)

    def lose_link(self) -> None:
        self._set(phase=StagePhase.BROKEN, reason="connection reset")

    def _set(self, **changes: Any) -> None:
        self.status = evolve(self.status, **changes)
        self._changed.set()
        self._changed = trio.Event()


class PretendedStore:
    def __init__(self) -> None:
        self.fetched: list[str] = []
        self.known: tuple[Card, ...] = (CARD,)

    def cards(self) -> tuple[Card, ...]:
        return self.known

    def held(self) -> tuple[str, ...]:
        return tuple(self.fetched)

    def look_up(self, id: str) -> Card:
        if id != HUB_CARD.id:
            raise ModelNotFoundError(f"the Hub has no {id}", param="model")
        return HUB_CARD

    def fetch(self, card: Card, progress: Callable[[float], None]) -> Path:
        raise NotImplementedError

    async def fetch_slowly(self, card: Card, progress: Callable[[float], None]) -> Path:
        progress(0.5)
        await trio.sleep(0.1)
        self.fetched.append(card.id)
        return Path("/nowhere")


class Node:
    """One node, with everything but HTTP."""

    def __init__(self, name: str, rehearsal: "Rehearsal", settings: RouterSettings, budget: int) -> None:
        self.name = name
        self.peer = PeerId(f"peer-{name}")
        self.transport = SimulatedTransport(rehearsal.network, self.peer, Address(f"/dns/{name}/tcp/1"))
        self.store = PretendedStore()
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self._facts = NodeFacts(name, "pretended", "1", "cpu", budget, budget, budget, "", ("127.0.0.1",))
        self.overlay = Overlay(
            self.transport,
            sign=self._sign,
            verify=_verify,
            state=rehearsal.states[name],
            settings=OverlaySettings(),
            merge_payloads=merge_payloads,
            random=Random(name),
        )
        self.reporter = Reporter(self.overlay, lambda: self._facts, self.store)
        around = Surroundings(
            overlay=self.overlay,
            fetch=self.store.fetch_slowly,
            start_stage=lambda spec: rehearsal.start_stage(spec, name),
            sign=self._sign,
            link_hosts=lambda: tuple(rehearsal.hosts),
            models_changed=self.reporter.models_changed,
        )
        self.worker = Worker(around, _verify)
        self.leader = Leader(self.overlay, lambda: {card.id: card for card in self.store.cards()})
        self.control = Control(self.overlay, self.store, cluster_name="desk", open_cluster=False)
        self.idle_rings = IdleRings(self.overlay)
        self.host = Host(self.overlay, self.worker.first_stage, self.idle_rings)
        self.router = Router(self.overlay, self.control, settings)
        self.departure = Departure(self.overlay, self.router)
        gauge = Gauge(self.overlay, rehearsal.measure_compute)
        self._duties = (self.reporter.run, self.worker.run, self.leader.run, self.idle_rings.run)
        if rehearsal.speed is not None:
            self._duties += (gauge.run,)

    async def run(self) -> None:
        with self.scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.overlay.run)
                for duty in self._duties:
                    nursery.start_soon(duty)
        self.ended.set()

    async def kill(self) -> None:
        self.scope.cancel()
        await self.ended.wait()

    def placement(self) -> PlacementView | None:
        return next(iter(self.control.snapshot().placements), None)

    def _sign(self, data: bytes) -> bytes:
        return sha256(self.peer.encode() + data).digest()


def _verify(peer: PeerId, data: bytes, signature: bytes) -> bool:
    return sha256(peer.encode() + data).digest() == signature


class Rehearsal:
    """Nodes join one after another, so that the first one leads."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.network = SimulatedNetwork(seed=1)
        self.nodes: dict[str, Node] = {}
        self.states: defaultdict[str, MemoryState] = defaultdict(MemoryState)
        """What the nodes keep on disk, over restarts."""
        self.stages: list[PretendedStage] = []
        self.hosts = ["127.0.0.1"]
        """Where stages can listen at the moment."""
        self.load_s = 1.0
        self.prefill_s = 0.0
        """Between the start of an answer and its first token."""
        self.deadly_token: int | None = None
        """The process of stage 0 dies before it has produced this one."""
        self.unable: set[str] = set()
        """Names of nodes on which no stage can be loaded, for this ``reason``."""
        self.reason = "model.safetensors is cut short"
        self.unstartable: set[str] = set()
        """Names of nodes on which no stage process can even be started."""
        self.speed: ComputeSpeed | None = None
        """Of every node that is added from now on; None: nothing is measured."""
        self.measure_s = 1.0
        """How long it takes to measure how fast a node computes."""
        self.gauged = [0, 0]
        """How often a node's computing began to be measured, and how often it came to an end."""
        self._nursery = nursery

    async def measure_compute(self) -> ComputeSpeed | None:
        self.gauged[0] += 1
        await trio.sleep(self.measure_s)
        self.gauged[1] += 1
        return self.speed

    def start_stage(self, spec: StageSpec, node: str) -> PretendedStage:
        if node in self.unstartable:
            raise PermissionError("the temporary folder is somebody else's")
        return PretendedStage(spec, self, node)

    async def add(self, *names: str, settings: RouterSettings | None = None, **budgets: int) -> None:
        for name in names:
            node = Node(name, self, settings or RouterSettings(), budgets.get(name, 10**9))
            others = list(self.nodes.values())
            self.nodes[name] = node
            self._nursery.start_soon(node.run)
            for other in others:
                node.overlay.add_address(other.transport.address)
            await self.until(lambda node=node: node.overlay.view.leader is not None)
            await self.until(self._all_know_all)

    async def remove(self, name: str) -> None:
        await self.nodes.pop(name).kill()

    async def until(self, condition: Callable[[], Any], within_s: float = 60.0) -> None:
        with trio.fail_after(within_s):
            while not condition():  # noqa: ASYNC110 virtual time costs nothing, and the conditions span several nodes
                await trio.sleep(0.05)

    async def until_ready(self, *on: str, within_s: float = 60.0) -> None:
        """Until every node sees the ring ready, its stages on these nodes in any order."""

        def is_ready(node: Node) -> bool:
            seen = node.placement()
            return seen is not None and seen.state == "ready" and {stage.node for stage in seen.stages} == set(on)

        await self.until(lambda: all(is_ready(node) for node in self.nodes.values()), within_s)

    def leader(self) -> Node:
        return next(node for node in self.nodes.values() if node.overlay.view.leader == node.peer)

    def running(self) -> list[PretendedStage]:
        return [stage for stage in self.stages if not stage.ended]

    def stage_on(self, name: str) -> PretendedStage:
        return next(stage for stage in self.running() if stage.node == name)

    def break_links_to(self, certificate: str) -> None:
        for stage in self.running():
            beside = stage.neighbours
            linked = stage.status.phase in (StagePhase.READY, StagePhase.LINKING)
            if linked and beside and certificate in (beside.previous_certificate, beside.next_certificate):
                stage.lose_link()

    def _all_know_all(self) -> bool:
        peers = {node.peer for node in self.nodes.values()}
        return all(
            {member.peer for member in node.overlay.view.members} == peers
            and all("node" in node.overlay.view.facts.get(peer, {}) for peer in peers)
            for node in self.nodes.values()
        )


@pytest.fixture
def rehearse() -> Callable[[Callable[[Rehearsal], Awaitable[None]]], None]:
    """Runs a story told on a rehearsal in virtual time; all nodes are ended afterwards."""

    def run(story: Callable[[Rehearsal], Awaitable[None]]) -> None:
        async def main() -> None:
            async with trio.open_nursery() as nursery:
                await story(Rehearsal(nursery))
                nursery.cancel_scope.cancel()

        simulate(main, seed=1)

    return run
