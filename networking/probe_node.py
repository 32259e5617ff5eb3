"""A process that runs an overlay and nothing else: told what to do by lines, tells by lines what it sees.

For tests and measurements with real processes; ``probe_processes`` starts it. It ends when its parent does. All times are of the
machine's monotonic clock, so those of several processes can be compared.
"""

import ctypes
import logging
import math
import os
import socket
import time
from collections.abc import AsyncGenerator
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from time import monotonic

import trio
from attrs import field, frozen

from networking.json_values import decode_value, encode_value
from networking.peers import open_peer
from networking.ticket import Cluster
from networking.transport import Address, PeerId
from networking.view import View

STAMP = "stamp"
"""The fact that changes; its value is when it was set."""


@frozen
class ProbeSettings:
    home: Path
    listen: Address
    cluster: Cluster
    wall_clock_ahead_s: float = 0.0
    """How wrong the wall clock is, as this process sees it."""
    network_namespace: Path | None = None
    """The file of the namespace that it lives in (Linux)."""
    protocol_ahead: int = 0
    """By how many versions of the protocol it is newer."""


@frozen
class Orders:
    """One line: each field that is set is done, in this order."""

    dial: Address | None = None
    change_every_s: float | None = None
    """Change a fact so often from now on; infinity for never."""
    change_times: int = 0
    """Change a fact so often at once."""
    turn_clock_s: float = 0.0
    """Set the wall clock forward, or back."""
    report: bool = False
    """Tell the delays of the changes of others since the last report."""
    leave: bool = False


@frozen
class Told:
    """One line: what a node sees, at each change of it, or what it was asked for."""

    at: float
    peer: PeerId
    addresses: tuple[Address, ...] = field(converter=tuple)
    members: tuple[PeerId, ...] = field(converter=tuple)
    leader: PeerId | None
    term: int
    suspects: int = 0
    warnings: tuple[str, ...] = field(default=(), converter=tuple)
    reached: tuple[Address, ...] = field(default=(), converter=tuple)
    """The far ends of its connections to the others, by peer id."""
    delays_ms: tuple[float, ...] | None = None


class ProbeNode:
    def __init__(self, settings: ProbeSettings, line: trio.SocketStream) -> None:
        self._line = line
        self._overlay = open_peer(settings.home, settings.cluster, listen=[settings.listen])
        self._change_every_s = math.inf
        self._reordered = trio.Event()
        self._stamps: dict[PeerId, bytes] = {}
        self._delays_ms: list[float] = []
        self._telling = trio.Lock()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self._overlay.run)
            nursery.start_soon(self._watch)
            nursery.start_soon(self._keep_changing)
            async for line in lines_of(self._line):
                await self._obey(decode_value(line, Orders))
            nursery.cancel_scope.cancel()

    async def _obey(self, orders: Orders) -> None:
        if orders.dial is not None:
            self._overlay.add_address(orders.dial)
        if orders.change_every_s is not None:
            self._change_every_s = orders.change_every_s
            self._reordered.set()
            self._reordered = trio.Event()
        for number in range(orders.change_times):
            self._change()
            if number % 16 == 0:
                await trio.lowlevel.checkpoint()
        _turn_wall_clock(orders.turn_clock_s)
        if orders.report:
            await self._tell(self._sees(self._overlay.view, tuple(self._delays_ms)))
            self._delays_ms.clear()
        if orders.leave:
            await self._overlay.leave()

    async def _watch(self) -> None:
        told: Told | None = None
        async for view in self._overlay.views():
            self._measure(view)
            seen = self._sees(view)
            if told is None or _gist(seen) != _gist(told):
                told = seen
                await self._tell(seen)

    def _measure(self, view: View) -> None:
        now = monotonic()
        for peer, facts in view.facts.items():
            stamp = facts.get(STAMP, b"")
            if stamp and peer != view.me and self._stamps.get(peer) != stamp:
                self._stamps[peer] = stamp
                self._delays_ms.append((now - float(stamp)) * 1e3)

    async def _keep_changing(self) -> None:
        random = Random()
        while True:
            with trio.move_on_after(self._change_every_s * random.uniform(0.9, 1.1)) as waited:
                await self._reordered.wait()
            if waited.cancelled_caught:
                self._change()

    def _change(self) -> None:
        self._overlay.set_fact(STAMP, repr(monotonic()).encode())

    def _sees(self, view: View, delays_ms: tuple[float, ...] | None = None) -> Told:
        return Told(
            monotonic(),
            view.me,
            next(member.addresses for member in view.members if member.peer == view.me),
            tuple(sorted(member.peer for member in view.members)),
            view.leader,
            view.term,
            sum(member.state.value == "suspect" for member in view.members),
            view.warnings,
            tuple(each.address for each in sorted(view.members, key=lambda each: each.peer) if each.address),
            delays_ms,
        )

    async def _tell(self, told: Told) -> None:
        async with self._telling:
            await self._line.send_all(encode_value(told, Told) + b"\n")


def run_probe(settings: ProbeSettings, line: Connection) -> None:
    """What the process does. Its log goes to a file beside its home."""
    settings.home.parent.mkdir(exist_ok=True)
    log = os.open(settings.home.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    _enter(settings.network_namespace)
    _turn_wall_clock(settings.wall_clock_ahead_s)
    _raise_protocol_version(settings.protocol_ahead)

    async def main() -> None:
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=os.dup(line.fileno()))))
        await ProbeNode(settings, stream).run()

    trio.run(main)


async def lines_of(stream: trio.abc.ReceiveStream) -> AsyncGenerator[bytes]:
    """Without their ends, until there are no more or the other side is gone."""
    rest = b""
    try:
        async for piece in stream:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line
    except trio.BrokenResourceError:
        return


def _gist(told: Told) -> tuple[object, ...]:
    return told.members, told.leader, told.term, told.suspects, told.warnings, told.reached


def _enter(namespace: Path | None) -> None:
    if namespace is not None:
        libc = ctypes.CDLL(None, use_errno=True)
        with namespace.open() as file:
            if libc.setns(file.fileno(), 0):
                raise OSError(ctypes.get_errno(), f"can't enter the network namespace {namespace}")


def _turn_wall_clock(seconds: float) -> None:
    if seconds:
        true_time, true_time_ns = time.time, time.time_ns
        time.time = lambda: true_time() + seconds
        time.time_ns = lambda: true_time_ns() + int(seconds * 1e9)


def _raise_protocol_version(versions: int) -> None:
    """As if the program were newer: in all modules that have taken the number over."""
    from networking import conversation, peer, view, wire

    version = wire.PROTOCOL_VERSION + versions
    for module in (conversation, peer, view, wire):
        setattr(module, "PROTOCOL_VERSION", version)  # noqa: B010 - a module's names are constants to a type checker
