"""What may happen to a simulated cluster, at random: faults of machines and of the network, and what users do meanwhile."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import trio

from networking.documents import MAX_VALUE_BYTES
from networking.overlay import NotLeaderError
from networking.simulated_truth import names
from networking.simulation import SimulatedCluster, SimulatedNode
from networking.transport import PeerId

Happen = Callable[[SimulatedNode], Awaitable[None]]
Note = Callable[[str], None]

KEYS = 6
"""How many keys a node has at most."""
PACES_S = (0.01, 0.3, 1.0, 3.0, 7.0)
"""From one thing to the next."""


class Faults:
    """Only some kinds of faults happen in one run, so that each is also met without the others (Groce et al., Swarm Testing, 2012)."""

    def __init__(self, cluster: SimulatedCluster, random: Random, note: Note) -> None:
        """``note`` is told what happens."""
        self._cluster = cluster
        self._network = cluster.network
        self._random = random
        self._note = note
        self._lasting: trio.Nursery
        self._writes = 0
        self.written: dict[PeerId, dict[str, bytes]] = {node.peer: {} for node in cluster.nodes}
        """What each node has said in its present life and not taken back. Each value begins with a number that only rises."""
        of_machines = [self.crash, self.lose_power, self.leave, self.pause, self.be_slow]
        of_networks = [self.partition, self.cut, self.cut_one_way, self.heal]
        self._kinds = random.sample([*of_machines, *of_networks], k=random.randint(3, 9))
        if random.random() < 0.2:  # seldom, for it makes a run twice as long
            self._kinds.append(self.sleep)
        self._restarts: list[Happen] = random.choice(
            [[self.restart], [self.restart_empty], [self.restart, self.restart_empty]]
        )

    async def happen_until(self, deadline: float) -> None:
        """One thing after another, each to one node; returns when nobody stands still any more."""
        async with trio.open_nursery() as self._lasting:
            while trio.current_time() < deadline:
                node = self._random.choice(self._cluster.nodes)
                await self._random.choice(self._possible(node))(node)
                await trio.sleep(self._random.choice(PACES_S))

    async def end(self) -> None:
        """No more faults: links and machines are whole again, but for those that stand still for a while."""
        self._note("all is healed")
        self._network.heal()

    async def restart_all(self) -> None:
        """But sometimes one, which stays away for good."""
        down = [node for node in self._cluster.nodes if not node.is_running]
        if down and len(self._cluster.running) > 1 and self._random.random() < 0.5:
            self._note(f"{down.pop().peer} stays away")
        for node in down:
            await self.restart(node)

    def _possible(self, node: SimulatedNode) -> list[Happen]:
        by_users: list[Happen] = [self.write, self.write, self.write_large, self.write_often, self.delete, self.lead]
        if not node.is_running:
            return self._restarts
        if self._network.is_paused(node.address):
            return [each for each in self._kinds if each in (self.partition, self.cut, self.heal)] or [self.write]
        if len(self._cluster.running) > 1:
            return [*self._kinds, *self._kinds, *by_users]
        return by_users

    # Machines.

    async def crash(self, node: SimulatedNode) -> None:
        self._note(f"{node.peer} crashes")
        node.crash()

    async def lose_power(self, node: SimulatedNode) -> None:
        self._note(f"{node.peer} loses its power")
        node.crash(silently=True)

    async def leave(self, node: SimulatedNode) -> None:
        self._note(f"{node.peer} leaves")
        await node.leave()

    async def restart(self, node: SimulatedNode) -> None:
        self._note(f"{node.peer} starts again")
        self.written[node.peer] = {}
        await node.restart()

    async def restart_empty(self, node: SimulatedNode) -> None:
        self._note(f"{node.peer} starts again with an empty disk")
        self.written[node.peer] = {}
        await node.restart(with_state=False)

    async def pause(self, node: SimulatedNode) -> None:
        seconds = self._random.uniform(2.0, 12.0)
        self._note(f"{node.peer} stands still for {seconds:.1f} s")
        self._lasting.start_soon(node.pause, seconds)

    async def be_slow(self, node: SimulatedNode) -> None:
        self._note(f"{node.peer} gets slow for a while")
        self._lasting.start_soon(be_slow, self._cluster, node, self._random, self._random.randint(2, 5))

    async def sleep(self, node: SimulatedNode) -> None:
        seconds = self._random.uniform(5.0, 120.0)
        self._note(f"{node.peer} sleeps for {seconds:.1f} s")
        self._lasting.start_soon(node.sleep, seconds)

    # The network.

    async def partition(self, _node: SimulatedNode) -> None:
        nodes = list(self._cluster.nodes)
        self._random.shuffle(nodes)
        size = self._random.randrange(1, len(nodes))
        self._note(f"the network is parted: {names(nodes[:size])} | {names(nodes[size:])}")
        self._cluster.partition(nodes[:size], nodes[size:])

    async def cut(self, node: SimulatedNode) -> None:
        other = self._random.choice([each for each in self._cluster.nodes if each is not node])
        self._note(f"{node.peer} and {other.peer} are cut from each other")
        self._network.cut(node.address, other.address)

    async def cut_one_way(self, node: SimulatedNode) -> None:
        other = self._random.choice([each for each in self._cluster.nodes if each is not node])
        self._note(f"{other.peer} does not hear {node.peer} any more")
        self._network.cut_one_way(node.address, other.address)

    async def heal(self, _node: SimulatedNode) -> None:
        self._note("the network is healed")
        self._network.heal()

    # Users.

    async def write(self, node: SimulatedNode) -> None:
        self._set(node, f"key-{self._random.randrange(KEYS)}", volatile=self._random.random() < 0.3)

    async def write_large(self, node: SimulatedNode) -> None:
        self._set(node, "key-0", padding=self._random.randrange(MAX_VALUE_BYTES // 2))

    async def write_often(self, node: SimulatedNode) -> None:
        for _ in range(30):
            self._set(node, f"key-{self._random.randrange(KEYS)}")

    async def delete(self, node: SimulatedNode) -> None:
        key = f"key-{self._random.randrange(KEYS)}"
        node.overlay.delete_fact(key)
        self.written[node.peer].pop(key, None)

    async def lead(self, node: SimulatedNode) -> None:
        self._writes += 1
        with suppress(NotLeaderError):
            node.overlay.set_payload(str(self._writes).encode())

    def _set(self, node: SimulatedNode, key: str, *, volatile: bool = False, padding: int = 0) -> None:
        self._writes += 1
        value = f"{self._writes} ".encode() + b"." * padding
        node.overlay.set_fact(key, value, volatile=volatile)
        self.written[node.peer][key] = value


async def be_slow(cluster: SimulatedCluster, node: SimulatedNode, random: Random, times: int) -> None:
    """Stand still again and again, each time for no longer than a node may without being missed."""
    for _ in range(times):
        await trio.sleep(random.uniform(0.5, 4.0))
        if node.is_running and not cluster.network.is_paused(node.address):
            await node.pause(random.uniform(0.1, 2.0))


def number_of(value: bytes) -> int:
    """Of a value that ``Faults`` has written: which of all writes it was."""
    return int(value.split(b" ", 1)[0])
