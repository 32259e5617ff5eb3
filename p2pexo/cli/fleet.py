"""Node processes that the demo starts and owns: a cluster of their own, on loopback, gone with whoever started them."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from attrs import define, frozen

from p2pexo.cli.errors import CommandError

LOOPBACK = "127.0.0.1"
STOP_S = 10.0
"""How long nodes may take to end before they are killed."""

LOG_TAIL_LINES = 20
_INHERITED = ("P2PEXO_CACHE", "P2PEXO_BLAS", "P2PEXO_PRECISION", "P2PEXO_MEMORY", "P2PEXO_LOG_LEVEL")
"""Settings of the person's own that say something about this machine; all others belong to another cluster."""


@frozen
class NodePlan:
    name: str
    home: Path
    port: int
    api_port: int
    peers: tuple[str, ...]

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.api_port}"

    @property
    def log(self) -> Path:
        return self.home / "node.log"

    def command(self) -> list[str]:
        options = [("--home", self.home), ("--name", self.name), ("--listen", f"{LOOPBACK}:{self.port}")]
        options += [("--api-port", self.api_port)] + [("--peer", peer) for peer in self.peers]
        flags = [str(part) for option in options for part in option]
        return [sys.executable, "-m", "p2pexo", "node", "--loopback", "--no-mdns", *flags]


def plan_nodes(count: int, api_port: int, folder: Path) -> tuple[NodePlan, ...]:
    """Nodes that all know the address of the first; its API is on ``api_port``, those of the others on free ports."""
    ports = free_ports(2 * count)
    first = f"{LOOPBACK}:{ports[0]}"
    return tuple(
        NodePlan(
            name=f"node-{number + 1}",
            home=folder / f"node-{number + 1}",
            port=ports[number],
            api_port=ports[count + number] if number else api_port,
            peers=(first,) if number else (),
        )
        for number in range(count)
    )


def node_environment(inherited: Mapping[str, str], cluster: str, secret: str) -> dict[str, str]:
    """The variables of every node. The secret travels here since a command line can be read by everyone on the machine."""
    kept = {key: value for key, value in inherited.items() if not key.startswith("P2PEXO_") or key in _INHERITED}
    own = {"P2PEXO_CLUSTER": cluster, "P2PEXO_SECRET": secret, "P2PEXO_EXIT_WITH_PARENT": "1", "NO_COLOR": "1"}
    return kept | own


@define
class _Running:
    plan: NodePlan
    process: subprocess.Popen[bytes]


class Fleet:
    """The processes. ``stop`` or ``kill`` must be called; if neither can, the nodes end when their stdin does."""

    def __init__(self) -> None:
        self._running: list[_Running] = []

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        return [node.process for node in self._running]

    def start(self, plans: tuple[NodePlan, ...]) -> None:
        cluster, secret = f"demo-{secrets.token_hex(3)}", secrets.token_hex(32)
        environment = node_environment(os.environ, cluster, secret)
        for plan in plans:
            plan.home.mkdir(parents=True, mode=0o700)
            with plan.log.open("wb") as log:
                # A session of its own, so that Ctrl-C reaches the demo only, which then stops them in good order.
                process = subprocess.Popen(
                    plan.command(),
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self._running.append(_Running(plan, process))

    def check(self) -> None:
        """Raises CommandError, with the end of its log, if a node has ended."""
        for plan, ending in self.ended():
            raise CommandError(f"{plan.name} ended ({ending})", log_tail(plan))

    def ended(self) -> list[tuple[NodePlan, str]]:
        """The nodes that have ended, and how."""
        polled = [(node.plan, node.process.poll()) for node in self._running]
        return [(plan, _ending(code)) for plan, code in polled if code is not None]

    def log_tails(self) -> str:
        return "\n".join(log_tail(node.plan) for node in self._running)

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Ask all to end, and kill those that haven't after ``timeout_s``."""
        for node in self._running:
            node.process.terminate()
        deadline = time.monotonic() + timeout_s
        for node in self._running:
            with suppress(subprocess.TimeoutExpired):
                node.process.wait(max(0.0, deadline - time.monotonic()))
        self.kill()

    def kill(self) -> None:
        """End all at once, their stage processes included."""
        for node in self._running:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(node.process.pid, signal.SIGKILL)
        for node in self._running:
            node.process.wait()
            if node.process.stdin is not None:
                node.process.stdin.close()
        self._running.clear()


def log_tail(plan: NodePlan) -> str:
    """The last lines of a node's log, under a heading."""
    try:
        lines = plan.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    except OSError as error:
        lines = [f"(its log can't be read: {error})"]
    return "\n".join([f"--- the end of {plan.name}'s log", *(lines or ["(it is empty)"])])


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"by {signal.Signals(-code).name}"
    return f"by signal {-code}"


def free_ports(count: int) -> tuple[int, ...]:
    """Ports of the loopback address that were free a moment ago, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return tuple(each.getsockname()[1] for each in sockets)
    finally:
        for each in sockets:
            each.close()


def is_free(port: int) -> bool:
    """Whether a server could listen on a port of the loopback address."""
    with socket.socket() as probe:
        # As servers do, so that connections of an earlier run that are still closing don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
