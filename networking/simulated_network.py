"""What lies between simulated machines: delay, loss, partitions, cut links, and machines that stand still.

Faults happen where the contract of ``networking.transport`` lets them. Streams are ordered and reliable there, as TCP makes them: a
lost frame is one that comes late and holds up all behind it, and a cut link is silence until it is healed. Broadcasts promise
nothing: they get lost, come twice, late, and in any order.
"""

from collections.abc import Iterable
from itertools import count
from random import Random
from typing import Protocol

import trio
from attrs import frozen

from networking.dialling import Signal
from networking.transport import Address, PeerId

RESEND_S = (0.2, 1.0)
"""How late a frame is that TCP had to send again."""
STRAY_S = 3.0
"""How late a stray broadcast may be."""


@frozen
class NetworkConditions:
    delay_s: float = 0.002
    """One way, at least."""
    jitter_s: float = 0.003
    """Added to it, evenly distributed."""
    frame_loss: float = 0.0
    """Share of what travels on connections that has to be sent again."""
    broadcast_loss: float = 0.0
    """Share of broadcasts that a receiver does not get."""
    broadcast_copies: float = 0.0
    """Share of broadcasts of which a receiver gets a copy more, somewhat later."""
    broadcast_strays: float = 0.0
    """Share of broadcasts that come late, after newer ones."""


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
        self.frames = 0
        """How many were sent on connections and as broadcasts, and how many bytes they had."""
        self.bytes = 0
        self._random = Random(seed)
        self._order = count()
        self._machines: dict[Address, Machine] = {}
        self._group_of: dict[Address, int] = {}
        self._cut: set[tuple[Address, Address]] = set()
        self._paused: set[Address] = set()

    def partition(self, *groups: Iterable[Address]) -> None:
        """Only machines of one group reach each other; those named in no group form one more. Connections fall silent, none closes."""
        self._group_of = {address: number for number, group in enumerate(groups) for address in group}
        self._notify()

    def cut(self, one: Address, other: Address) -> None:
        """Break the link between two machines."""
        self._cut |= {(one, other), (other, one)}
        self._notify()

    def cut_one_way(self, sender: Address, receiver: Address) -> None:
        """What one sends does not get to the other. TCP would soon fall silent the other way, too; to go on there is harder."""
        self._cut.add((sender, receiver))
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

    def is_paused(self, address: Address) -> bool:
        return address in self._paused

    def delivers(self, sender: Address, receiver: Address) -> bool:
        """Whether what one sends gets to the other now, and is read there."""
        return receiver not in self._paused and self.reaches(sender, receiver)

    def reaches(self, sender: Address, receiver: Address) -> bool:
        same_group = self._group_of.get(sender, -1) == self._group_of.get(receiver, -1)
        return same_group and (sender, receiver) not in self._cut

    def connects(self, one: Address, other: Address) -> bool:
        """Whether each reaches the other."""
        return self.reaches(one, other) and self.reaches(other, one)

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
        """When something sent now on a connection arrives."""
        resent_s = self._random.uniform(*RESEND_S) if self._random.random() < self.conditions.frame_loss else 0.0
        return self._straight() + resent_s

    def arrivals(self) -> list[float]:
        """When the copies of a broadcast sent now arrive at one receiver."""
        conditions, random = self.conditions, self._random
        copies = (random.random() >= conditions.broadcast_loss) + (random.random() < conditions.broadcast_copies)
        return [self._straight() + self._strayed_s() for _ in range(copies)]

    def count(self, data: bytes) -> None:
        self.frames += 1
        self.bytes += len(data)

    def next_in_order(self) -> int:
        return next(self._order)

    def at(self, address: Address) -> Machine | None:
        return self._machines.get(address)

    def enter(self, machine: Machine) -> None:
        self._machines[machine.address] = machine

    def leave(self, machine: Machine) -> None:
        if self._machines.get(machine.address) is machine:
            del self._machines[machine.address]

    def _straight(self) -> float:
        return trio.current_time() + self.conditions.delay_s + self._random.uniform(0, self.conditions.jitter_s)

    def _strayed_s(self) -> float:
        strays = self._random.random() < self.conditions.broadcast_strays
        return self._random.uniform(0, STRAY_S) if strays else 0.0

    def _notify(self) -> None:
        self.changed.notify()
        for machine in list(self._machines.values()):
            machine.topology_changed()
