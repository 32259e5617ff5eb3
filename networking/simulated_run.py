"""One run of a simulated cluster, from a seed: it settles, all kinds of things happen to it, it is healed, and must be as promised."""

import traceback
from random import Random
from typing import cast

import trio
from attrs import frozen

from networking.documents import DocumentSettings
from networking.overlay import OverlaySettings
from networking.peer import PeerSettings
from networking.simulated_faults import Faults, be_slow
from networking.simulated_network import NetworkConditions
from networking.simulated_truth import Truth
from networking.simulated_witness import BrokenError, Witness
from networking.simulation import SimulatedCluster, SimulatedNode, open_cluster, simulate
from networking.transport import PeerId
from networking.view import View

RUN_S = 60.0
"""A run takes so long in virtual time, at least."""
LOOK_EVERY_S = 0.25
CALM_S = 20.0
"""After so long without a fault, all that depends on being quiet must hold."""


@frozen
class Outcome:
    seed: int
    seconds: float
    """Of virtual time."""
    story: tuple[str, ...]
    complaint: str | None
    """What was broken; None if nothing."""

    @property
    def headline(self) -> str:
        return f"seed {self.seed}: {self.complaint}\n  to replay it: make simulate SEEDS={self.seed}"


def nodes_of(seed: int) -> int:
    return 3 + seed % 3


def run_seed(seed: int) -> Outcome:
    """Never raises for what goes wrong in the cluster."""
    run = Run(seed)
    try:
        simulate(run.main, seed=seed)
    except BaseExceptionGroup as group:
        if not group.subgroup(Exception):
            raise
        run.complaint = _describe(group)
    except Exception as error:
        run.complaint = _describe(error)
    return Outcome(seed, run.seconds, tuple(run.story), run.complaint)


class Run:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = Random(seed)
        self._witness = Witness()
        self._last_shown: dict[PeerId, str] = {}
        self.story: list[str] = []
        self.seconds = 0.0
        self.complaint: str | None = None

    async def main(self) -> None:
        try:
            await self._run()
        finally:
            self.seconds = trio.current_time()

    async def _run(self) -> None:
        async with open_cluster(
            nodes_of(self._seed),
            seed=self._seed,
            conditions=conditions_from(self._random),
            settings=settings_from(self._random),
            on_view=self._see,
        ) as cluster:
            truth = Truth(cluster)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, truth)
                faults = Faults(cluster, self._random, self._note)
                await faults.happen_until(RUN_S / 2)
                await self._rest_in_parts(truth)
                await self._calm_down(cluster, faults)
                await self._disturb_gently(cluster, faults)
                nursery.cancel_scope.cancel()

    async def _rest_in_parts(self, truth: Truth) -> None:
        if len(truth.parts()) > 1:
            await trio.sleep(CALM_S)
            self._witness.check_parts(truth)
            self._witness.raise_complaints()

    async def _calm_down(self, cluster: SimulatedCluster, faults: Faults) -> None:
        await faults.end()
        await trio.sleep(self._random.choice([0.1, 1.0, 10.0]))
        await faults.restart_all()
        await trio.sleep(CALM_S)
        self._witness.check_all(cluster.running, faults.written, CALM_S)
        self._witness.raise_complaints()

    async def _disturb_gently(self, cluster: SimulatedCluster, faults: Faults) -> None:
        """What must change no leader of a working cluster."""
        leader = cluster.leader
        self._witness.led_by = leader.peer
        follower = self._random.choice([node for node in cluster.running if node is not leader])
        gentle = self._random.choice(
            [self._let_one_join, self._restart_follower, self._slow_one_down, self._return_lone_machine]
        )
        await gentle(cluster, faults, follower)
        await trio.sleep(max(CALM_S, RUN_S - trio.current_time()))
        self._witness.leaderless.clear()
        self._witness.check_all(cluster.running, faults.written, CALM_S)
        self._witness.raise_complaints()

    async def _let_one_join(self, cluster: SimulatedCluster, faults: Faults, _follower: SimulatedNode) -> None:
        self._note("late joins")
        faults.written[PeerId("late")] = {}
        self._witness.leaderless.add(PeerId("late"))
        await cluster.add("late")

    async def _restart_follower(self, _cluster: SimulatedCluster, faults: Faults, follower: SimulatedNode) -> None:
        self._witness.leaderless.add(follower.peer)
        await self._random.choice([faults.crash, faults.lose_power, faults.leave])(follower)
        await trio.sleep(self._random.uniform(0, 8))
        await self._random.choice([faults.restart, faults.restart_empty])(follower)

    async def _slow_one_down(self, cluster: SimulatedCluster, _faults: Faults, _follower: SimulatedNode) -> None:
        slow = self._random.choice(cluster.running)
        self._note(f"{slow.peer} gets slow for a while")
        await be_slow(cluster, slow, self._random, 5)

    async def _return_lone_machine(self, cluster: SimulatedCluster, faults: Faults, follower: SimulatedNode) -> None:
        self._witness.leaderless.add(follower.peer)
        self._note(f"{follower.peer} is cut off from all others")
        cluster.partition([follower])
        await trio.sleep(self._random.uniform(2, 20))
        await faults.end()

    async def _watch(self, truth: Truth) -> None:
        while True:
            self._witness.look_round(truth)
            self._witness.raise_complaints()
            await trio.sleep(LOOK_EVERY_S)

    def _see(self, node: SimulatedNode, view: View) -> None:
        self._witness.see(node, view)
        members = " ".join(f"{each.peer}{'?' if each.state.value == 'suspect' else ''}" for each in view.members)
        shown = f"{members} | led by {view.leader}, term {view.term}"
        if self._last_shown.get(node.peer) != shown:
            self._last_shown[node.peer] = shown
            self._note(f"    {node.peer} sees {shown}")

    def _note(self, text: str) -> None:
        self.story.append(f"{trio.current_time():7.3f}  {text}")


def conditions_from(random: Random) -> NetworkConditions:
    return NetworkConditions(
        delay_s=random.choice([0.001, 0.02]),
        jitter_s=random.choice([0.002, 0.1]),
        frame_loss=random.choice([0.0, 0.01, 0.1]),
        broadcast_loss=random.choice([0.0, 0.2, 0.6]),
        broadcast_copies=random.choice([0.0, 0.3]),
        broadcast_strays=random.choice([0.0, 0.3]),
    )


def settings_from(random: Random) -> OverlaySettings:
    """Documents of the gone are kept for as long as usual, or so short that a run sees them go."""
    retention_s = random.choice([DocumentSettings().retention_s, CALM_S / 4])
    return OverlaySettings(peer=PeerSettings(documents=DocumentSettings(retention_s=retention_s)))


def _describe(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        parts = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return "; ".join(dict.fromkeys(map(_describe, parts)))
    if isinstance(error, BrokenError):
        return str(error)
    return "".join(traceback.format_exception(error)).strip()
