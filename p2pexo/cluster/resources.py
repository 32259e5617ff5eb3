"""What this machine has to give: memory, device, and the hosts on which others may reach its stages.

MLX itself is never imported here: it belongs in the stage processes alone.
"""

import ipaddress
import os
import platform
import socket
import subprocess
from functools import cache

import psutil

from p2pexo.cluster.facts import NodeFacts

LOOPBACK_HOSTS = ("127.0.0.1",)


def measure(name: str, *, version: str, api_url: str, memory_budget: int, link_hosts: tuple[str, ...]) -> NodeFacts:
    """The node's facts as they are now; ``memory_budget`` in bytes."""
    memory = psutil.virtual_memory()
    return NodeFacts(
        name=name,
        machine=machine(),
        version=version,
        device=device(),
        memory_total=memory.total,
        memory_budget=memory_budget,
        memory_free=memory.available,
        api_url=api_url,
        link_hosts=link_hosts,
        dense=device() == "cpu",
    )


def device() -> str:
    """What MLX will compute on: Metal exists on Apple silicon only."""
    return "gpu" if (platform.system(), platform.machine()) == ("Darwin", "arm64") else "cpu"


@cache
def machine() -> str:
    """Such as ``Apple M3 Max, 64 GB`` or ``Linux x86_64, 2 cores, 24 GB``."""
    memory = f"{psutil.virtual_memory().total / 2**30:.0f} GB"
    chip = _apple_chip() if platform.system() == "Darwin" else None
    if chip:
        return f"{chip}, {memory}"
    return f"{platform.system()} {platform.machine()}, {os.cpu_count() or 1} cores, {memory}"


def link_hosts() -> tuple[str, ...]:
    """Addresses to listen on: IPv4 first, then IPv6, no link-local ones; loopback if the machine has no others."""
    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    found = [
        ipaddress.ip_address(address.address)
        for name, addresses in sorted(psutil.net_if_addrs().items())
        for address in addresses
        if name in up and address.family in (socket.AF_INET, socket.AF_INET6) and "%" not in address.address
    ]
    usable = [each for each in found if not (each.is_loopback or each.is_link_local or each.is_unspecified)]
    hosts = tuple(str(each) for each in sorted(usable, key=lambda each: each.version))
    return hosts or LOOPBACK_HOSTS


def _apple_chip() -> str | None:
    try:
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None
