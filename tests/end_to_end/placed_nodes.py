"""Real nodes on machines of their own, which are network namespaces; each one's API is reached at its port of this machine, too."""

import ctypes
import os
import secrets
import socket
import threading
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from attrs import define, field
from end_to_end.cluster import RealCluster, RealNode, end_all
from end_to_end.namespaces import PORT, Machine

from p2pexo.cli.fleet import free_ports


@define(eq=False)
class PlacedNode(RealNode):
    machine: Machine = field(kw_only=True)

    @property
    def command(self) -> list[str]:
        return ["ip", "netns", "exec", self.machine.name, *super().command]

    @property
    def listening(self) -> list[str]:
        return ["--listen", f"{self.machine.host('ip4', 1)}:{self.port}"]


@contextmanager
def placed_cluster(folder: Path, machines: Sequence[Machine], arguments: Sequence[str]) -> Generator[RealCluster]:
    """A node on each machine, which have found one another over the first one's address."""
    shared = {"P2PEXO_CLUSTER": f"test-{secrets.token_hex(4)}", "P2PEXO_SECRET": secrets.token_hex(16)}
    first = f"{machines[0].host('ip4', 1)}:{PORT}"
    nodes: list[RealNode] = [
        PlacedNode(
            name=f"node-{machine.number}",
            home=folder / f"home-{machine.number}",
            port=PORT,
            api_port=api_port,
            arguments=(*arguments, *(() if machine is machines[0] else ("--peer", first))),
            environment=shared,
            machine=machine,
        )
        for machine, api_port in zip(machines, free_ports(len(machines)), strict=True)
    ]
    with ExitStack() as doors:
        try:
            for node, machine in zip(nodes, machines, strict=True):
                doors.enter_context(door(machine, node.api_port))
                node.start()
            for node in nodes:
                node.wait_until_up()
            cluster = RealCluster(nodes)
            cluster.wait_until_together()
            yield cluster
        finally:
            end_all(nodes)


@contextmanager
def door(machine: Machine, port: int) -> Generator[None]:
    """What connects to a loopback port here is connected to the same one of the machine. Sockets stay in the namespace in which
    they were made, whatever the thread that uses them moves to."""
    listener = socket.create_server(("127.0.0.1", port))
    threading.Thread(target=_be_doorkeeper, args=(machine, listener, port), daemon=True).start()
    try:
        yield
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # a bare close wouldn't wake the thread that accepts
        listener.close()


def _be_doorkeeper(machine: Machine, listener: socket.socket, port: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with machine.file.open() as file:
        if libc.setns(file.fileno(), 0):  # this thread alone
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    with suppress(OSError):
        while True:
            outside, _ = listener.accept()
            try:
                inside = socket.create_connection(("127.0.0.1", port))
            except OSError:
                outside.close()
                continue
            for source, target in ((outside, inside), (inside, outside)):
                threading.Thread(target=_carry, args=(source, target), daemon=True).start()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
