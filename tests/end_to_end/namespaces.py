"""Machines with several networks, as network namespaces of this one. Needs Linux, iproute2 and root."""

import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import frozen

PORT = 7071


@frozen
class Machine:
    name: str
    number: int

    @property
    def file(self) -> Path:
        return Path("/run/netns") / self.name

    def ip(self, *arguments: str) -> None:
        _ip("-netns", self.name, *arguments)

    def host(self, family: str, network: int) -> str:
        """Its address on one of the networks that both machines are on."""
        return f"10.71.{network}.{self.number}" if family == "ip4" else f"fd71:{network}::{self.number}"


@contextmanager
def two_machines(family: str) -> Generator[tuple[Machine, Machine]]:
    """Both on networks 1 and 2, over interfaces ``net1`` and ``net2``.

    Each has more addresses that lead nowhere, or back to whoever dials them: of a bridge for containers, the same on both; of a
    VPN that isn't up; and a link-local one.
    """
    problem = _why_not()
    if problem:
        pytest.skip(f"network namespaces can't be made here: {problem}")
    left, right = Machine(f"p2pexo-{os.getpid()}-a", 1), Machine(f"p2pexo-{os.getpid()}-b", 2)
    made: list[Machine] = []
    try:
        for machine in (left, right):
            _ip("netns", "add", machine.name)
            made.append(machine)
            machine.ip("link", "set", "lo", "up")
            _add_addresses_that_mislead(machine, family)
        for network in (1, 2):
            left.ip(
                "link", "add", f"net{network}", "type", "veth", "peer", "name", f"net{network}", "netns", right.name
            )
            for machine in (left, right):
                _add(machine, f"net{network}", machine.host(family, network))
        yield left, right
    finally:
        for machine in made:
            _ip("netns", "delete", machine.name)


@frozen
class Switch:
    """What machines are plugged into: a namespace of its own, with a bridge."""

    name: str
    machines: tuple[Machine, ...]

    def pull_plug(self, machine: Machine) -> None:
        _ip("-netns", self.name, "link", "set", f"port{machine.number}", "down")

    def put_plug(self, machine: Machine) -> None:
        _ip("-netns", self.name, "link", "set", f"port{machine.number}", "up")


@contextmanager
def switched_machines(count: int) -> Generator[Switch]:
    """All on network 1, whose cables can be pulled one by one."""
    problem = _why_not()
    if problem:
        pytest.skip(f"network namespaces can't be made here: {problem}")
    name = f"p2pexo-{os.getpid()}"
    switch = Switch(f"{name}-0", tuple(Machine(f"{name}-{number}", number) for number in range(1, count + 1)))
    made: list[str] = []
    try:
        for each in (switch.name, *(machine.name for machine in switch.machines)):
            _ip("netns", "add", each)
            made.append(each)
            _ip("-netns", each, "link", "set", "lo", "up")
        _ip("-netns", switch.name, "link", "add", "switch", "type", "bridge")
        _ip("-netns", switch.name, "link", "set", "switch", "up")
        for machine in switch.machines:
            port = f"port{machine.number}"
            machine.ip("link", "add", "net1", "type", "veth", "peer", "name", port, "netns", switch.name)
            _ip("-netns", switch.name, "link", "set", port, "master", "switch", "up")
            _add(machine, "net1", machine.host("ip4", 1))
        yield switch
    finally:
        for each in made:
            _ip("netns", "delete", each)


def _add_addresses_that_mislead(machine: Machine, family: str) -> None:
    misleading = {
        "ip4": ("172.30.0.1", f"10.99.0.{machine.number}", f"169.254.7.{machine.number}"),
        "ip6": ("fd30::1", f"fd99::{machine.number}", f"fe80::7:{machine.number}"),
    }[family]
    for name, host in zip(("containers", "vpn", "cable"), misleading, strict=True):
        machine.ip("link", "add", name, "type", "bridge")
        _add(machine, name, host)


def _add(machine: Machine, interface: str, host: str) -> None:
    machine.ip(
        "address", "add", f"{host}/{64 if ':' in host else 24}", "dev", interface, *(("nodad",) if ":" in host else ())
    )
    machine.ip("link", "set", interface, "up")


def _why_not() -> str:
    if sys.platform != "linux" or shutil.which("ip") is None:
        return "no iproute2"
    if os.geteuid() != 0:
        return "not root"
    name = f"p2pexo-{os.getpid()}-try"
    added = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if added.returncode:
        return added.stderr.strip()
    linked = subprocess.run(
        ["ip", "-netns", name, "link", "add", "try", "type", "bridge"], capture_output=True, text=True, check=False
    )
    _ip("netns", "delete", name)
    return linked.stderr.strip() if linked.returncode else ""


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
