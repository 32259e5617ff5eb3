"""Overlays as processes of their own, as their parent sees them: each change of what each one tells, with its time.

A server that has everything imported forks them, so one more costs milliseconds, not seconds.
"""

import math
import multiprocessing
import os
import socket
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
import trio
from attrs import define, evolve, field

from networking.dialling import Signal
from networking.json_values import decode_value, encode_value
from networking.probe_node import Orders, ProbeSettings, Told, lines_of, run_probe
from networking.ticket import Cluster
from networking.transport import Address

ANY_PORT = Address("/ip4/127.0.0.1/tcp/0")
PATIENCE_S = 100.0
"""For what must happen, but whose speed isn't measured."""

_forking = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(["networking.probe_node"])


@define(eq=False)
class Probe:
    """One node. Started again it keeps home and port."""

    settings: ProbeSettings
    changed: Signal
    """Notified whenever a node has told something, or ended."""
    process: BaseProcess | None = None
    told: list[Told] = field(factory=list[Told], repr=False)
    """In this life."""
    _line: trio.SocketStream | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None and self.process.pid is not None, "it was never started"
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive()

    @property
    def sees(self) -> Told:
        return self.told[-1]

    @property
    def address(self) -> Address:
        return self.settings.listen

    @property
    def log(self) -> str:
        return self.settings.home.with_suffix(".log").read_text()

    async def start(self, nursery: trio.Nursery) -> None:
        """Returns once it has told something for the first time."""
        self.told.clear()
        here, there = _forking.Pipe()
        process = self.process = _forking.Process(target=run_probe, args=(self.settings, there))
        await trio.to_thread.run_sync(process.start)
        there.close()
        self._line = trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=os.dup(here.fileno()))))
        here.close()
        nursery.start_soon(self._listen, self._line)
        await wait_for(self.changed, lambda: bool(self.told) or not self.is_running)
        if not self.told:
            raise RuntimeError(f"a probe didn't come up:\n{self.log[-3000:]}")
        self.settings = evolve(self.settings, listen=self.sees.addresses[0])

    async def order(self, orders: Orders) -> None:
        assert self._line is not None
        with suppress(trio.BrokenResourceError):
            await self._line.send_all(encode_value(orders, Orders) + b"\n")

    async def report(self) -> list[float]:
        """Milliseconds that the changes of others took to be seen here, since the last report."""
        reports = self._reports
        await self.order(Orders(report=True))
        await wait_for(self.changed, lambda: self._reports > reports, within_s=10 * PATIENCE_S)
        return list(next(told.delays_ms for told in reversed(self.told) if told.delays_ms is not None) or ())

    async def kill(self) -> None:
        """As if the power went."""
        assert self.process is not None
        self.process.kill()
        await trio.to_thread.run_sync(self.process.join)

    def cpu_s(self) -> float:
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system

    def resident_mb(self) -> float:
        return psutil.Process(self.pid).memory_info().rss / 1e6

    @property
    def _reports(self) -> int:
        return sum(told.delays_ms is not None for told in self.told)

    async def _listen(self, line: trio.SocketStream) -> None:
        async for text in lines_of(line):
            self.told.append(decode_value(text, Told))
            self.changed.notify()
        await line.aclose()
        self.changed.notify()


async def wait_for(changed: Signal, condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Raises trio.TooSlowError."""
    with trio.fail_after(within_s):
        while not condition():
            await changed.wait()


def is_settled(probes: Iterable[Probe]) -> bool:
    """Whether they see exactly one another, and one leader."""
    probes = list(probes)
    everyone = tuple(sorted(probe.sees.peer for probe in probes))
    leaders = {(probe.sees.leader, probe.sees.term) for probe in probes}
    return len(leaders) == 1 and leaders.pop()[0] in everyone and all(each.sees.members == everyone for each in probes)


def first_time(probe: Probe, since: float, condition: Callable[[Told], bool]) -> float:
    """When it first told something of the kind; infinity if it never did."""
    return next((told.at for told in probe.told if told.at >= since and condition(told)), math.inf)


@asynccontextmanager
async def running(folder: Path, *clusters: Cluster) -> AsyncGenerator[tuple[list[Probe], trio.Nursery]]:
    """One probe for each cluster named, running and strangers to one another; ended with the context.

    In the nursery others may be started, and these again.
    """
    settings = [ProbeSettings(folder / f"probe-{number}", ANY_PORT, each) for number, each in enumerate(clusters, 1)]
    async with _running(settings) as probes_and_nursery:
        yield probes_and_nursery


@asynccontextmanager
async def placed(folder: Path, cluster: Cluster, places: Iterable[tuple[Path, Address]]) -> AsyncGenerator[list[Probe]]:
    """Likewise, in network namespaces: (the namespace's file, where it listens)."""
    settings = [
        ProbeSettings(folder / f"probe-{number}", listen, cluster, network_namespace=namespace)
        for number, (namespace, listen) in enumerate(places, 1)
    ]
    async with _running(settings) as (probes, _):
        yield probes


@asynccontextmanager
async def _running(settings: Iterable[ProbeSettings]) -> AsyncGenerator[tuple[list[Probe], trio.Nursery]]:
    changed = Signal()
    probes = [Probe(each, changed) for each in settings]
    async with trio.open_nursery() as nursery:
        try:
            async with trio.open_nursery() as starts:
                for probe in probes:
                    starts.start_soon(probe.start, nursery)
            yield probes, nursery
        finally:
            for probe in probes:
                if probe.process is not None and probe.is_running:
                    probe.process.kill()
            nursery.cancel_scope.cancel()


async def bring_together(probes: list[Probe]) -> None:
    """Let all dial the first, and wait until they are one cluster. Raises trio.TooSlowError."""
    for probe in probes[1:]:
        await probe.order(Orders(dial=probes[0].address))
    await wait_for(probes[0].changed, lambda: is_settled(probes))


__all__ = [
    "Orders",
    "Probe",
    "Told",
    "bring_together",
    "first_time",
    "is_settled",
    "placed",
    "running",
    "wait_for",
]
