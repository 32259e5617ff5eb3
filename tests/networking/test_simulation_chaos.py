"""Whatever happens: crashes, restarts, partitions, pauses and writes at random, then calm, and all must agree."""

from contextlib import suppress
from random import Random

import pytest
import trio

from networking.overlay import NotLeaderError
from networking.simulation import NetworkConditions, open_cluster, simulate


def leadership(view):
    return view.leader, view.term


@pytest.mark.parametrize("seed", range(24))
def test_whatever_happens_in_the_end_all_agree(seed):
    async def story(cluster):
        chaos = Chaos(cluster, seed)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(chaos.watch_terms)
            for _ in range(12):
                await chaos.step(nursery)
            cluster.network.heal()
            await trio.sleep(10)
            await chaos.restart_all()
            await cluster.settled(within_s=30)
            calm = leadership(cluster.leader.view)
            await trio.sleep(20)
            assert cluster.is_settled() and leadership(cluster.leader.view) == calm
            assert {peer: dict(facts) for peer, facts in cluster.leader.view.facts.items()} == chaos.written
            assert not any(node.view.warnings for node in cluster.nodes)
            nursery.cancel_scope.cancel()

    random = Random(seed)
    conditions = NetworkConditions(
        delay_s=random.choice([0.001, 0.02]),
        jitter_s=random.choice([0.002, 0.1]),
        broadcast_loss=random.choice([0.0, 0.2, 0.5]),
    )

    async def main():
        async with open_cluster(4, seed=seed, conditions=conditions) as cluster:
            await story(cluster)

    simulate(main, seed=seed)


class Chaos:
    """Does things to a cluster at random, and keeps note of what each node has written in its present life."""

    def __init__(self, cluster, seed):
        self.cluster = cluster
        self.random = Random(seed)
        self.written = {node.peer: {} for node in cluster.nodes}
        self.steps = 0

    async def step(self, nursery):
        self.steps += 1
        node = self.random.choice(self.cluster.nodes)
        doable = [self.partition, self.heal, self.cut]
        if node.is_running:
            doable += [self.write, self.write, self.delete, self.lead]
        if not node.is_running:
            doable += [self.restart, self.restart_empty]
        elif len(self.cluster.running) > 1:
            doable += [self.crash, self.vanish, self.leave]
        if node.is_running and self.random.random() < 0.2:
            nursery.start_soon(node.pause, self.random.uniform(0.5, 9.0))
        await self.random.choice(doable)(node)
        await trio.sleep(self.random.choice([0.01, 0.3, 1.0, 3.0, 7.0]))

    async def restart_all(self):
        for node in self.cluster.nodes:
            if not node.is_running:
                await self.restart(node)

    async def watch_terms(self):
        """The highest term that a node knows of only rises in its life."""
        highest = {}
        while True:
            for node in self.cluster.running:
                peer = node.overlay._peer
                assert peer._election.highest_term >= highest.get(id(peer), 0)
                highest[id(peer)] = peer._election.highest_term
            await trio.sleep(0.1)

    async def crash(self, node):
        node.crash()

    async def vanish(self, node):
        node.crash(silently=True)

    async def leave(self, node):
        await node.leave()

    async def restart(self, node):
        self.written[node.peer] = {}
        await node.restart()

    async def restart_empty(self, node):
        self.written[node.peer] = {}
        await node.restart(with_state=False)

    async def partition(self, _node):
        nodes = list(self.cluster.nodes)
        self.random.shuffle(nodes)
        size = self.random.randrange(1, len(nodes))
        self.cluster.partition(nodes[:size], nodes[size:])

    async def heal(self, _node):
        self.cluster.network.heal()

    async def cut(self, node):
        self.cluster.network.cut(node.address, self.random.choice(self.cluster.nodes).address)

    async def write(self, node):
        key, value = f"key-{self.random.randrange(4)}", str(self.steps).encode()
        node.overlay.set_fact(key, value, volatile=self.random.random() < 0.3)
        self.written[node.peer][key] = value

    async def delete(self, node):
        key = f"key-{self.random.randrange(4)}"
        node.overlay.delete_fact(key)
        self.written[node.peer].pop(key, None)

    async def lead(self, node):
        with suppress(NotLeaderError):
            node.overlay.set_payload(node.view.payload + f"\n{self.steps}".encode())
