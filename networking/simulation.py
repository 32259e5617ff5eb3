"""The overlay on simulated machines in virtual time.

``simulate`` runs an async function so that one seed always gives the same run, in as little real time as its work takes.
``open_cluster`` gives it nodes that crash, restart, pause, sleep and leave on command.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from hashlib import blake2b
from random import Random
from typing import Any, TypeVar

import trio
import trio.testing
from trio._core import _run as trio_run  # pyright: ignore[reportPrivateUsage]

from networking.overlay import MemoryState, Overlay, OverlaySettings
from networking.simulated_network import NetworkConditions, SimulatedNetwork
from networking.simulated_transport import SimulatedTransport
from networking.transport import Address, PeerId, Sign
from networking.view import Member, View

T = TypeVar("T")


def simulate(main: Callable[[], Awaitable[T]], *, seed: int) -> T:
    """Run ``main`` in virtual time; all that is random in the scheduler comes from the seed."""
    with _seeded_scheduler(seed):
        return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@contextmanager
def _seeded_scheduler(seed: int) -> Generator[None]:
    # The switch that trio keeps for Hypothesis; there is no public one.
    scheduler: Any = trio_run
    was_deterministic, state = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate()
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
    scheduler._r.seed(seed)
    try:
        yield
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = was_deterministic
        scheduler._r.setstate(state)


def sign_as(peer: PeerId) -> Sign:
    """A stand-in for the peer's key: fast, and wrong for any other peer, but no secret."""
    return lambda data: blake2b(data, key=peer.encode()[:64], digest_size=16).digest()


def verify(peer: PeerId, data: bytes, signature: bytes) -> bool:
    return sign_as(peer)(data) == signature


def join_payloads(payloads: Sequence[bytes]) -> bytes:
    """The merge used unless a test brings its own: lines, each once, sorted."""
    return b"\n".join(sorted({line for payload in payloads for line in payload.split(b"\n") if line}))


class SimulatedNode:
    """A machine with a disk (``state``) on which an overlay runs, or doesn't."""

    def __init__(self, cluster: "SimulatedCluster", peer: PeerId, address: Address, *, may_lead: bool = True) -> None:
        self._cluster = cluster
        self._may_lead = may_lead
        self._slept_s = 0.0
        self._scope: trio.CancelScope | None = None
        self._transport: SimulatedTransport | None = None
        self._overlay: Overlay | None = None
        self.peer = peer
        self.address = address
        self.state = MemoryState()
        self.lives = 0
        """How often it was started."""
        self.is_leaving = False

    @property
    def overlay(self) -> Overlay:
        assert self._overlay is not None, f"{self.peer} was never started"
        return self._overlay

    @property
    def view(self) -> View:
        return self.overlay.view

    @property
    def is_running(self) -> bool:
        return self._scope is not None

    async def start(self) -> None:
        """Begin a new life; everybody running hears of the address, as by a discovery on the network."""
        cluster = self._cluster
        self.lives += 1
        self.is_leaving = False
        self._transport = SimulatedTransport(cluster.network, self.peer, self.address)
        self._overlay = Overlay(
            self._transport,
            sign=sign_as(self.peer),
            verify=verify,
            state=self.state,
            settings=cluster.settings,
            merge_payloads=cluster.merge_payloads,
            may_lead=self._may_lead,
            random=Random(f"{cluster.seed} {self.address} {self.lives}"),
            sleep=self._sleep,
            clock=self._clock,
        )
        if cluster.on_start is not None:
            cluster.on_start(self._overlay)
        await cluster.nursery.start(self._run, self._overlay)
        cluster.introduce(self)

    def crash(self, *, silently: bool = False) -> None:
        """End the process; ``silently``, as when the power is cut, its connections just fall silent."""
        assert self._scope is not None and self._transport is not None
        self._transport.vanished = silently
        self._scope.cancel()
        self._scope = None

    async def restart(self, *, with_state: bool = True) -> None:
        if not with_state:
            self.state = MemoryState()
        await self.start()

    async def leave(self) -> None:
        self.is_leaving = True
        await self.overlay.leave()
        self.crash()

    async def pause(self, seconds: float) -> None:
        """Stand still, as in a computation that lets nothing else run: its own clock shows the gap."""
        self._cluster.network.pause(self.address)
        await trio.sleep(seconds)
        self._cluster.network.resume(self.address)

    async def sleep(self, seconds: float) -> None:
        """As a machine whose lid is closed: its monotonic clock stands still, too."""
        self._cluster.network.pause(self.address)
        await trio.sleep(seconds)
        self._slept_s += seconds
        self._cluster.network.resume(self.address)

    async def _run(self, overlay: Overlay, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._show, overlay)
                await overlay.run(task_status=task_status)

    async def _show(self, overlay: Overlay) -> None:
        if self._cluster.on_view is not None:
            async for view in overlay.views():
                self._cluster.on_view(self, view)

    def _clock(self) -> float:
        return trio.current_time() - self._slept_s

    async def _sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)
        await self._cluster.network.awake(self.address)


class SimulatedCluster:
    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        seed: int = 0,
        conditions: NetworkConditions | None = None,
        settings: OverlaySettings | None = None,
        merge_payloads: Callable[[Sequence[bytes]], bytes] = join_payloads,
        on_start: Callable[[Overlay], None] | None = None,
        on_view: "Callable[[SimulatedNode, View], None] | None" = None,
    ) -> None:
        """``on_start`` gets each overlay before it runs, to register its handlers; ``on_view`` all that any node ever shows."""
        self.nursery = nursery
        self.seed = seed
        self.on_start = on_start
        self.on_view = on_view
        self.settings = settings or OverlaySettings()
        self.merge_payloads = merge_payloads
        self.network = SimulatedNetwork(seed, conditions)
        self.nodes: list[SimulatedNode] = []

    @property
    def running(self) -> list[SimulatedNode]:
        return [node for node in self.nodes if node.is_running]

    @property
    def overlays(self) -> list[Overlay]:
        return [node.overlay for node in self.running]

    def node(self, peer: PeerId | str | None) -> SimulatedNode:
        return next(node for node in self.nodes if node.peer == peer)

    @property
    def leader(self) -> SimulatedNode:
        """The node that the first running one takes for the leader."""
        return self.node(self.running[0].view.leader)

    async def add(
        self, peer: str, *, host: str | None = None, may_lead: bool = True, cut_from: Sequence[SimulatedNode] = ()
    ) -> SimulatedNode:
        """Start one more node; ``host`` sets the machine apart if two have one peer id, ``cut_from`` it can't reach."""
        node = SimulatedNode(self, PeerId(peer), Address(f"/dns/{host or peer}/tcp/1"), may_lead=may_lead)
        for other in cut_from:
            self.network.cut(node.address, other.address)
        self.nodes.append(node)
        await node.start()
        return node

    def introduce(self, newcomer: SimulatedNode) -> None:
        for node in self.running:
            if node is not newcomer:
                node.overlay.add_address(newcomer.address, newcomer.peer)
                newcomer.overlay.add_address(node.address, node.peer)

    def partition(self, *groups: Sequence[SimulatedNode]) -> None:
        self.network.partition(*([node.address for node in group] for group in groups))

    def is_settled(self, nodes: Sequence[SimulatedNode] | None = None) -> bool:
        """Whether these nodes (all running ones by default) see exactly each other, one leader, and the same facts."""
        nodes = self.running if nodes is None else nodes
        views = [node.view for node in nodes]
        peers = {node.peer for node in nodes}
        shared = [(view.leader, view.term, view.payload, as_all_see_them(view), view.facts) for view in views]
        return (
            {each.peer for each in views[0].members} == peers
            and views[0].leader is not None
            and all(each == shared[0] for each in shared)
        )

    async def settled(self, nodes: Sequence[SimulatedNode] | None = None, *, within_s: float = 15.0) -> float:
        """Wait until ``is_settled``; returns how long it took. Raises trio.TooSlowError."""
        return await self.until(lambda: self.is_settled(nodes), within_s=within_s)

    async def until(self, condition: Callable[[], bool], *, within_s: float = 15.0) -> float:
        """Wait for a condition in virtual time; returns how long it took. Raises trio.TooSlowError."""
        began_at = trio.current_time()
        with trio.fail_after(within_s):
            while not condition():  # noqa: ASYNC110 - it may depend on anything, and virtual time costs nothing
                await trio.sleep(0.05)
        return trio.current_time() - began_at


def as_all_see_them(view: View) -> list[Member]:
    """Without what each knows of its own connections."""
    return [Member(each.peer, each.state, each.seniority, each.addresses) for each in view.members]


@asynccontextmanager
async def open_cluster(
    count: int,
    *,
    seed: int = 0,
    conditions: NetworkConditions | None = None,
    settings: OverlaySettings | None = None,
    merge_payloads: Callable[[Sequence[bytes]], bytes] = join_payloads,
    on_start: Callable[[Overlay], None] | None = None,
    on_view: Callable[[SimulatedNode, View], None] | None = None,
) -> AsyncGenerator[SimulatedCluster]:
    """``count`` nodes that have found each other and a leader; all end with the block.

    ``on_start`` gets each overlay before it runs, to register its handlers; ``on_view`` all that any node ever shows.
    """
    async with trio.open_nursery() as nursery:
        cluster = SimulatedCluster(
            nursery,
            seed=seed,
            conditions=conditions,
            settings=settings,
            merge_payloads=merge_payloads,
            on_start=on_start,
            on_view=on_view,
        )
        for number in range(count):
            await cluster.add(f"peer-{number + 1}")
        if count:
            await cluster.settled()
        yield cluster
        nursery.cancel_scope.cancel()


__all__ = [
    "NetworkConditions",
    "SimulatedCluster",
    "SimulatedNetwork",
    "SimulatedNode",
    "SimulatedTransport",
    "as_all_see_them",
    "join_payloads",
    "open_cluster",
    "sign_as",
    "simulate",
    "verify",
]
