"""Real node processes for tests: started with homes and ports of their own, looked at over HTTP, ended by pid."""

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import httpx
import psutil
from attrs import define, field

from p2pexo.cli.fleet import free_ports
from p2pexo.cluster.snapshot import ClusterSnapshot, PlacementView
from p2pexo.generation.codec import decode

T = TypeVar("T")

EMBEDDED_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
PATIENCE_S = 90.0
"""For things that must happen but whose speed is not what is tested; a loaded machine may take long."""


def wait_for(what: str, look: Callable[[], T | None], timeout_s: float = PATIENCE_S) -> T:
    """Look again and again until there is something; what isn't there in time fails the test by its name."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {timeout_s:.0f} s: {what}")


@define(eq=False)
class RealNode:
    """One ``p2pexo node`` process."""

    name: str
    home: Path
    port: int
    api_port: int
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(factory=dict, repr=False)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.api_port}"

    @property
    def log(self) -> str:
        return (self.home.parent / f"{self.name}.log").read_text(errors="replace")

    @property
    def running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None, f"{self.name} was never started"
        return self.process

    @property
    def command(self) -> list[str]:
        command = [sys.executable, "-m", "p2pexo", "node", "--home", str(self.home), "--name", self.name]
        command += ["--no-mdns", "--api-port", str(self.api_port), *self.listening, *self.arguments]
        return command

    @property
    def listening(self) -> list[str]:
        return ["--loopback", "--listen", f"127.0.0.1:{self.port}"]

    def start(self) -> None:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("P2PEXO_")}
        with (self.home.parent / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                env=inherited | self.environment | {"P2PEXO_EXIT_WITH_PARENT": "1"},
                stdin=subprocess.PIPE,  # ends with this process, however that ends, and then so does the node
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_up(self) -> None:
        def answers() -> bool:
            code = self.running.poll()
            assert code is None, f"{self.name} ended with {code}:\n{self.log[-3000:]}"
            with suppress(httpx.TransportError):
                return httpx.get(f"{self.url}/health").status_code == 200
            return False

        wait_for(f"{self.name} answers", answers)

    def snapshot(self) -> ClusterSnapshot:
        response = httpx.get(f"{self.url}/v1/cluster", timeout=10)
        response.raise_for_status()
        return decode(response.content, ClusterSnapshot)

    def placement(self, model: str = EMBEDDED_MODEL) -> PlacementView | None:
        """The one that runs or comes up; else the one that failed, if it is still told of."""
        found = [each for each in self.snapshot().placements if each.model == model]
        return next(iter(sorted(found, key=lambda each: each.state == "failed")), None)

    def children(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.running.pid).children(recursive=True)
        return []

    def stage_processes(self) -> list[psutil.Process]:
        """Those of its children that run a stage; another one may wait for its turn. The latest comes last."""
        started = re.findall(r"stage process started\b.*?\bpid=(\d+)", self.log)
        children = {child.pid: child for child in self.children()}
        return [children[int(pid)] for pid in started if int(pid) in children]

    def send(self, number: signal.Signals) -> None:
        self.running.send_signal(number)

    def kill(self) -> None:
        """As if the power went: the node alone, its children are left to notice."""
        self.running.kill()
        self.running.wait()

    def end(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            children = self.children()
            self.kill()
            for child in children:
                with suppress(psutil.NoSuchProcess):
                    child.kill()


@define
class RealCluster:
    nodes: list[RealNode]

    def __getitem__(self, number: int) -> RealNode:
        return self.nodes[number]

    @property
    def alive(self) -> list[RealNode]:
        return [node for node in self.nodes if node.process is not None and node.process.poll() is None]

    def wait_until_together(self, timeout_s: float = PATIENCE_S) -> str:
        """All nodes that run see exactly one another and the same leader; its peer id."""

        def agreed() -> str | None:
            snapshots = [node.snapshot() for node in self.alive]
            leaders = {snapshot.leader for snapshot in snapshots}
            sizes = {len(snapshot.members) for snapshot in snapshots}
            return leaders.pop() if len(leaders) == 1 and sizes == {len(snapshots)} else None

        return wait_for("all nodes see one another and one leader", agreed, timeout_s)

    def leader(self) -> RealNode:
        peer = self.wait_until_together()
        return next(node for node in self.alive if node.snapshot().me == peer)

    def place(
        self, model: str = EMBEDDED_MODEL, min_stages: int = 1, *, split: Sequence[int] | None = None
    ) -> PlacementView:
        """``split``: how many layers each of the nodes gets, in their order."""
        node = self.alive[0]
        wish = {"min_stages": min_stages} if split is None else {"split": self.parts(split)}
        response = httpx.post(f"{node.url}/v1/placements", json={"model": model} | wish, timeout=30)
        assert response.status_code < 300, response.text
        return self.wait_until_ready(model)

    def parts(self, layers: Sequence[int]) -> str:
        """A split as a person writes it."""
        ends = accumulate(layers)
        return ",".join(
            f"{node.name}={end - count}-{end - 1}" for node, count, end in zip(self.alive, layers, ends, strict=False)
        )

    def wait_until_ready(self, model: str = EMBEDDED_MODEL, timeout_s: float = PATIENCE_S) -> PlacementView:
        def ready() -> PlacementView | None:
            views = [node.placement(model) for node in self.alive]
            return views[0] if all(view and view.state == "ready" for view in views) else None

        return wait_for(f"{model} is ready in every node's view", ready, timeout_s)

    def delete(self, model: str = EMBEDDED_MODEL) -> None:
        node = self.alive[0]
        placement = node.placement(model)
        if placement is None:
            return
        httpx.delete(f"{node.url}/v1/placements/{placement.id}", timeout=30).raise_for_status()
        wait_for(
            f"{model} is gone from every view and its processes too",
            lambda: all((view := node.placement(model)) is None or view.state == "failed" for node in self.alive),
        )

    def node_of(self, peer: str) -> RealNode:
        return next(node for node in self.alive if node.snapshot().me == peer)


@contextmanager
def real_cluster(
    folder: Path, count: int, arguments: Sequence[str] = (), *, memory: Sequence[str] = ()
) -> Generator[RealCluster]:
    """Nodes that have found one another, ended with the context. ``memory``: the budget of each, the first one leads."""
    ports = free_ports(2 * count)
    shared = {"P2PEXO_CLUSTER": f"test-{secrets.token_hex(4)}", "P2PEXO_SECRET": secrets.token_hex(16)}
    nodes = [
        RealNode(
            name=f"node-{number + 1}",
            home=folder / f"home-{number + 1}",
            port=ports[number],
            api_port=ports[count + number],
            arguments=(
                *arguments,
                *(("--peer", f"127.0.0.1:{ports[0]}") if number else ()),
                *(("--memory", memory[number]) if memory else ()),
            ),
            environment=shared,
        )
        for number in range(count)
    ]
    try:
        for node in nodes:
            node.start()
            if memory:  # one after the other, so that the first one leads
                node.wait_until_up()
                wait_for("somebody leads", lambda: node.snapshot().leader)  # noqa: B023
        for node in nodes:
            node.wait_until_up()
        cluster = RealCluster(nodes)
        cluster.wait_until_together()
        yield cluster
    finally:
        end_all(nodes)


def end_all(nodes: Sequence[RealNode]) -> None:
    """All are told before any is waited for."""
    for node in nodes:
        if node.process is not None and node.process.poll() is None:
            node.process.terminate()
    for node in nodes:
        node.end()
