"""What can be done to a cluster in the middle of an answer, and to whom, drawn from a seed."""

import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import TypeVar

import psutil
from attrs import frozen
from end_to_end.cluster import RealNode

T = TypeVar("T")

KILLED = ("stage", "node", "leader", "two stages")
SILENT = ("silent node", "silent stage")
LEAVING = "leaving node"
BYSTANDER = "leader beside"
"""A leader that takes no part in the ring."""
KINDS = (*KILLED, *SILENT, LEAVING, BYSTANDER)
LEADERS = ("leader", BYSTANDER)


@frozen
class Fault:
    kind: str
    """One of KINDS."""
    token: int
    """It strikes when so many tokens of the answer have come."""
    pick: int
    """Which of those that it can strike."""


@frozen
class Ring:
    """Who runs what when a fault strikes; the asked node is spared, since an answer ends with it."""

    asked: RealNode
    leader: RealNode
    by_rank: tuple[RealNode, ...]
    epoch: str

    @property
    def others(self) -> list[RealNode]:
        """Nodes of the ring that may be lost."""
        return [node for node in dict.fromkeys(self.by_rank) if node is not self.asked]


def draw_faults(seed: int, count: int, kinds: Sequence[str], tokens: int) -> list[Fault]:
    """As many faults of each kind as of any other, as far as that goes; tokens in the middle of answers of ``tokens``."""
    random = Random(seed)
    wanted = [kinds[number % len(kinds)] for number in range(count)]
    random.shuffle(wanted)
    return [Fault(kind, random.randrange(1, tokens - 1), random.randrange(1 << 16)) for kind in wanted]


def strike(fault: Fault, ring: Ring) -> Callable[[], None]:
    """Do it; what brings it to an end."""
    processes = [process for node in dict.fromkeys(ring.by_rank) for process in node.stage_processes()]
    match fault.kind:
        case "node":
            _pick(ring.others, fault).kill()
        case "leaving node":
            return _send_away(_pick(ring.others, fault))
        case str(kind) if kind in LEADERS:
            ring.leader.kill()
        case "silent node":
            return _silence(_with_children(_pick(ring.others, fault)))
        case "silent stage":
            return _silence([_pick(processes, fault)])
        case "two stages":
            for process in processes[:2]:
                process.kill()
        case _:
            _pick(processes, fault).kill()
    return lambda: None


def _pick(several: Sequence[T], fault: Fault) -> T:
    return several[fault.pick % len(several)]


def _with_children(node: RealNode) -> list[psutil.Process]:
    return [psutil.Process(node.running.pid), *node.children()]


def _send_away(node: RealNode) -> Callable[[], None]:
    node.send(signal.SIGTERM)

    def see_off() -> None:
        node.running.wait(30)

    return see_off


def _silence(processes: Sequence[psutil.Process]) -> Callable[[], None]:
    for process in processes:
        process.send_signal(signal.SIGSTOP)

    def wake() -> None:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)

    return wake
