"""What a cluster holds over a week: of each node its memory, files, threads and children, and of all the disk and the documents."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
from attrs import define, field, frozen
from end_to_end.cluster import RealNode
from end_to_end.load.plateau import Plateau, plateau
from end_to_end.load.week_requests import Roster

YOUNG_S = 20.0
"""Since its start: the age at which restarted nodes are compared."""
FIGURES = ("rss_mb", "files", "threads", "children")
ALLOWED = {"rss_mb": (0.05, 5.0), "files": (0.0, 8.0), "threads": (0.0, 4.0), "children": (0.0, 2.0)}
"""(share, slack) by which each may grow: requests that are under way have files and threads, and placements children."""


@frozen
class Reading:
    """Of one node's process; ``age_s`` since its start."""

    node: str
    age_s: float
    rss_mb: float
    files: int
    threads: int
    children: int


@define
class Census:
    """Readings in the order in which they were made."""

    roster: Roster
    readings: list[Reading] = field(factory=list[Reading])
    disk_mb: list[float] = field(factory=list[float])
    told_kb: list[float] = field(factory=list[float])
    half: int = 0
    """How many readings there were when the second half began."""
    _children: set[psutil.Process] = field(factory=set[psutil.Process], init=False)
    """All that were ever seen."""

    def look(self) -> None:
        for node in self.roster.up:
            with suppress(psutil.Error):
                self.readings.append(self._read(node))
        self.disk_mb.append(sum(_bytes_in(node.home) for node in self.roster.cluster.nodes) / 1e6)
        with suppress(httpx.HTTPError, IndexError):
            seen = self.roster.up[-1].snapshot()
            self.told_kb.append(sum(member.told_bytes for member in seen.members) / 1e3)

    def begin_half(self) -> None:
        self.half = len(self.readings)

    def witnessed(self, node: RealNode) -> dict[str, Plateau]:
        """How the node that stayed did in its half."""
        stayed = [reading for reading in self.readings[self.half :] if reading.node == node.name]
        return {figure: plateau([getattr(reading, figure) for reading in stayed]) for figure in FIGURES}

    def young(self) -> dict[str, Plateau]:
        """Nodes just restarted, of the early and of the late restarts."""
        young = [reading for reading in self.readings if reading.age_s <= YOUNG_S]
        return {figure: plateau([getattr(reading, figure) for reading in young]) for figure in FIGURES}

    def orphans(self) -> list[str]:
        """Children of nodes that ended, and that are still there."""
        owned = {child for node in self.roster.cluster.alive for child in node.children()}
        return [" ".join(_command(child)) for child in self._children - owned if child.is_running()]

    def _read(self, node: RealNode) -> Reading:
        process = psutil.Process(node.running.pid)
        children = node.children()
        self._children.update(children)
        return Reading(
            node.name,
            time.time() - process.create_time(),
            process.memory_info().rss / 1e6,
            process.num_fds(),
            process.num_threads(),
            len(children),
        )


def idle_cpu(node: RealNode, seconds: float) -> float:
    """The share of a core that a node and its children take."""
    before = _cpu_s(node)
    time.sleep(seconds)
    return (_cpu_s(node) - before) / seconds


def _cpu_s(node: RealNode) -> float:
    times = [process.cpu_times() for process in (psutil.Process(node.running.pid), *node.children())]
    return sum(each.user + each.system for each in times)


def _bytes_in(folder: Path) -> int:
    return sum(_sizes(folder))


def _sizes(folder: Path) -> Iterator[int]:
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):
            yield file.lstat().st_size


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return ["?"]
