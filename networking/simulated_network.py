"""What lies between simulated machines: delay, loss, partitions, cut links, and machines that stand still."""

from collections.abc import Iterable
from itertools import count
from random import Random
from typing import Protocol

import trio
from attrs import frozen

from networking.dialling import Signal
from networking.transport import Address, PeerId


@frozen
class NetworkConditions:
    delay_s: float = 0.002
    """One way, at least."""
    jitter_s: float = 0.003
    """Added to it, evenly distributed."""
    broadcast_loss: float = 0.0
    """Share of broadcasts that a receiver does not get."""


class Machine(Protocol):
    """What the network knows of a transport."""

    @property
    def address(self) -> Address: ...
    @property
    def me(self) -> PeerId: ...
    def topology_changed(self) -> None: ...


class SimulatedNetwork:
    """All machines by their addresses, and who reaches whom."""

    def __init__(self, seed: int = 0, conditions: NetworkConditions | None = None) -> None:
        self.conditions = conditions or NetworkConditions()
        self.changed = Signal()
        """Notified when the topology changed, or a machine was paused or resumed."""
        self._random = Random(seed)
        self._order = count()
        self._machines: dict[Address, Machine] = {}
        self._group_of: dict[Address, int] = {}
        self._cut: set[frozenset[Address]] = set()
        self._paused: set[Address] = set()

    def partition(self, *groups: Iterable[Address]) -> None:
        """Only machines of one group reach each other; those named in no group form one more. Connections fall silent, none closes."""
        self._group_of = {address: number for number, group in enumerate(groups) for address in group}
        self._notify()

    def cut(self, one: Address, other: Address) -> None:
        """Break the link between two machines."""
        self._cut.add(frozenset((one, other)))
        self._notify()

    def heal(self) -> None:
        """End all partitions and cuts; what was held up arrives."""
        self._group_of = {}
        self._cut.clear()
        self._notify()

    def pause(self, address: Address) -> None:
        """Stop a machine as SIGSTOP does: it neither sends nor reads nor lets time pass."""
        self._paused.add(address)
        self._notify()

    def resume(self, address: Address) -> None:
        self._paused.discard(address)
        self._notify()

    def delivers(self, sender: Address, receiver: Address) -> bool:
        """Whether what one sends gets to the other now, and is read there."""
        return receiver not in self._paused and self.reaches(sender, receiver)

    def reaches(self, one: Address, other: Address) -> bool:
        same_group = self._group_of.get(one, -1) == self._group_of.get(other, -1)
        return same_group and frozenset((one, other)) not in self._cut

    async def awake(self, address: Address) -> None:
        """Return unless the machine is paused; else when it is resumed."""
        while address in self._paused:
            await self.changed.wait()

    async def delivered(self, sender: Address, receiver: Address) -> None:
        """Wait as long as one message takes."""
        await trio.sleep_until(self.arrival())
        while not self.delivers(sender, receiver):
            await self.changed.wait()

    def arrival(self) -> float:
        """When something sent now arrives."""
        return trio.current_time() + self.conditions.delay_s + self._random.uniform(0, self.conditions.jitter_s)

    def loses_broadcast(self) -> bool:
        return self._random.random() < self.conditions.broadcast_loss

    def next_in_order(self) -> int:
        return next(self._order)

    def at(self, address: Address) -> Machine | None:
        return self._machines.get(address)

    def enter(self, machine: Machine) -> None:
        self._machines[machine.address] = machine

    def leave(self, machine: Machine) -> None:
        if self._machines.get(machine.address) is machine:
            del self._machines[machine.address]

    def _notify(self) -> None:
        self.changed.notify()
        for machine in list(self._machines.values()):
            machine.topology_changed()
