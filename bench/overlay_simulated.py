"""What bench/overlay.py tells of the overlay in larger clusters and longer times than one machine can hold: simulated, from seeds.

A fifth of the machines is slow: they stand still for up to two seconds, again and again, as in long computations.
"""

import logging
import os
import statistics
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from random import Random
from typing import TypeVar

import trio
from attrs import frozen

from networking.simulated_network import NetworkConditions
from networking.simulation import SimulatedCluster, SimulatedNode, open_cluster, simulate
from networking.transport import PeerId
from networking.view import View

T = TypeVar("T")

WIRELESS = NetworkConditions(delay_s=0.002, jitter_s=0.03, frame_loss=0.01, broadcast_loss=0.05)
SLOW_SHARE = 0.2
NODE_DAY_S = 86400.0
STRETCH_S = 1350.0
"""Of virtual time that one process simulates at a stretch: an eighth of a node-day at 8 nodes."""


@frozen
class SimulatedFigures:
    detection_8_s: float
    """From a machine's losing its power until none of the others counts it as a member any more; the median of some trials."""
    detection_16_s: float
    detection_32_s: float
    detection_worst_s: float
    """Of all trials."""
    false_deaths_per_node_day: float
    """At 8 nodes: how often some node took another for dead that was only slow, or not even that."""
    node_days: float
    """For how long that was simulated."""
    bytes_per_second_8: float
    """That one node sends, one of its facts changing each 10 s and a volatile one each second; without what TCP and Noise add."""
    bytes_per_second_16: float
    bytes_growth: float
    """The one divided by the other."""


def measure(*, node_days: float = 0.5, processes: int | None = None) -> SimulatedFigures:
    """About a minute on two cores, and one more for each further node-day. The same arguments give the same figures."""
    stretches = max(round(node_days * NODE_DAY_S / (STRETCH_S * 8)), 1)
    with ProcessPoolExecutor(processes or os.cpu_count(), initializer=logging.disable) as pool:
        detections = {
            nodes: pool.submit(detection_times, nodes, trials) for nodes, trials in ((32, 3), (16, 7), (8, 11))
        }
        deaths = [pool.submit(false_deaths, 8, STRETCH_S, seed) for seed in range(stretches)]
        traffic = {nodes: pool.submit(bytes_per_second, nodes) for nodes in (8, 16)}
        times = {nodes: each.result() for nodes, each in detections.items()}
        simulated_days = stretches * STRETCH_S * 8 / NODE_DAY_S
        few, many = traffic[8].result(), traffic[16].result()
        return SimulatedFigures(
            detection_8_s=statistics.median(times[8]),
            detection_16_s=statistics.median(times[16]),
            detection_32_s=statistics.median(times[32]),
            detection_worst_s=max(max(each) for each in times.values()),
            false_deaths_per_node_day=sum(each.result() for each in deaths) / simulated_days,
            node_days=simulated_days,
            bytes_per_second_8=few,
            bytes_per_second_16=many,
            bytes_growth=many / few,
        )


def detection_times(nodes: int, trials: int) -> list[float]:
    """Seconds from a loss of power to the last node that notices, in one cluster, one machine after another."""

    async def story(cluster: SimulatedCluster) -> list[float]:
        quick = cluster.nodes[round(nodes * SLOW_SHARE) :]
        return [await _lose(cluster, quick[trial % len(quick)]) for trial in range(trials)]

    return _in_slow_cluster(nodes, story)


def false_deaths(nodes: int, seconds: float, seed: int) -> int:
    """How often a node took another for dead, while all of them lived."""
    members: dict[PeerId, frozenset[PeerId]] = {}
    lost = 0

    def see(node: SimulatedNode, view: View) -> None:
        nonlocal lost
        now = frozenset(each.peer for each in view.members)
        lost += len(members.get(node.peer, now) - now)
        members[node.peer] = now

    async def story(_cluster: SimulatedCluster) -> int:
        await trio.sleep(seconds)
        return lost

    return _in_slow_cluster(nodes, story, seed=seed, on_view=see)


def bytes_per_second(nodes: int, seconds: float = 60.0) -> float:
    """That one node sends on an average."""

    async def story(cluster: SimulatedCluster) -> float:
        await trio.sleep(10)
        before = cluster.network.bytes
        for second in range(round(seconds)):
            for number, node in enumerate(cluster.nodes):
                node.overlay.set_fact("load", str(second).encode(), volatile=True)
                if (second + number) % 10 == 0:
                    node.overlay.set_fact("state", f"it is {second}".encode())
            await trio.sleep(1)
        return (cluster.network.bytes - before) / seconds / nodes

    return _in_slow_cluster(nodes, story)


def _in_slow_cluster(
    nodes: int,
    story: Callable[[SimulatedCluster], Awaitable[T]],
    *,
    seed: int = 0,
    on_view: Callable[[SimulatedNode, View], None] | None = None,
) -> T:
    async def main() -> T:
        async with open_cluster(nodes, seed=seed, conditions=WIRELESS, on_view=on_view) as cluster:
            for number in range(round(nodes * SLOW_SHARE)):
                cluster.nursery.start_soon(_be_slow, cluster.nodes[number], Random(f"{seed} {number}"))
            return await story(cluster)

    return simulate(main, seed=seed)


async def _be_slow(node: SimulatedNode, random: Random) -> None:
    while True:
        await trio.sleep(random.uniform(1.0, 8.0))
        await node.pause(random.uniform(0.1, 2.0))


async def _lose(cluster: SimulatedCluster, lost: SimulatedNode) -> float:
    """Take a machine's power away, and give it back when all have noticed."""
    await trio.sleep(7.3)  # not in step with the heartbeats
    lost.crash(silently=True)
    noticed_s = await cluster.until(
        lambda: not any(each.view.member(lost.peer) for each in cluster.running), within_s=60
    )
    await lost.restart()
    await cluster.until(lambda: all(each.view.member(lost.peer) for each in cluster.running), within_s=60)
    return noticed_s


__all__ = ["SimulatedFigures", "measure"]
