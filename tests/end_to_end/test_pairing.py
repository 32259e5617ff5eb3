"""Fresh homes without a flag find one another, and become one cluster by approval only; who is removed stays out.

Ports, loopback and a name for mDNS are variables, since all nodes are on one machine here.
"""

import os
import pty
import secrets
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from itertools import permutations
from pathlib import Path

import httpx
import pytest
from attrs import define
from end_to_end.cluster import RealCluster, RealNode, end_all, wait_for

from networking.identity import Identity
from p2pexo.cli.fleet import free_ports
from p2pexo.cluster.snapshot import AskingView, NewcomerView

AT_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "p2pexo", "node"])
"""


@define
class FreshNode(RealNode):
    keyboard: int | None = None
    """Where somebody types who sits at the node; it may be at no terminal."""

    def start(self) -> None:
        with (self.home.parent / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "p2pexo", "node"],
                env=self.variables() | {"P2PEXO_EXIT_WITH_PARENT": "1"},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def start_at_terminal(self) -> None:
        """What it shows there is its log. It ends with this process, which holds the other end of the terminal."""
        self.keyboard, terminal = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", AT_TERMINAL],
            env=self.variables(),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        threading.Thread(target=self._keep_log, args=(self.keyboard,), daemon=True).start()

    def press(self, key: str) -> None:
        assert self.keyboard is not None, f"{self.name} is at no terminal"
        os.write(self.keyboard, key.encode())

    def variables(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("P2PEXO_")}
        own = {
            "P2PEXO_HOME": str(self.home),
            "P2PEXO_NAME": self.name,
            "P2PEXO_LOOPBACK": "1",
            "P2PEXO_LISTEN": f"127.0.0.1:{self.port}",
            "P2PEXO_API_PORT": str(self.api_port),
        }
        return inherited | self.environment | own

    def _keep_log(self, keyboard: int) -> None:
        with (self.home.parent / f"{self.name}.log").open("ab", buffering=0) as log, suppress(OSError):
            while shown := os.read(keyboard, 65536):  # an error says that the node has ended
                log.write(shown)
        os.close(keyboard)

    def newcomer(self, name: str) -> NewcomerView | None:
        return next((each for each in self.snapshot().newcomers if each.name == name), None)

    def post(self, path: str, **body: str) -> httpx.Response:
        return httpx.post(f"{self.url}/v1/{path}", json=body or None, timeout=30)


@contextmanager
def fresh_nodes(folder: Path, count: int) -> Generator[list[FreshNode]]:
    """Nodes that were never started, by their peer ids: the first is the one that the others will ask."""
    ports = free_ports(2 * count)
    shared = {
        "P2PEXO_MDNS_SERVICE": f"_p2x{secrets.token_hex(4)}._tcp.local.",
        "P2PEXO_CACHE": str(folder / "cache"),
    }
    homes = sorted((folder / f"home-{number}" for number in range(count)), key=lambda home: Identity.load(home).peer_id)
    nodes = [
        FreshNode(f"node-{number}", home, ports[number], ports[count + number], environment=shared)
        for number, home in enumerate(homes)
    ]
    try:
        yield nodes
    finally:
        end_all(nodes)


def start(nodes: Sequence[FreshNode]) -> None:
    for node in nodes:
        node.start()
    for node in nodes:
        node.wait_until_up()


def waits(newcomer: FreshNode, at: FreshNode) -> NewcomerView:
    """Once the newcomer shows the same code as the member that it asks."""

    def same_code() -> NewcomerView | None:
        seen, asking = at.newcomer(newcomer.name), newcomer.snapshot().asking
        return seen if seen and asking and seen.code == asking.code else None

    return wait_for(f"{newcomer.name} waits at {at.name}, and both show one code", same_code)


def approve(newcomer: FreshNode, at: FreshNode, *, by: FreshNode | None = None) -> None:
    seen = waits(newcomer, at)
    response = (by or at).post(f"newcomers/{seen.peer}/approve", code=seen.code)
    assert response.status_code == 200, response.text


def together(*nodes: FreshNode) -> None:
    RealCluster(list(nodes)).wait_until_together()
    assert len({node.snapshot().cluster for node in nodes}) == 1


def test_two_fresh_nodes_pair_by_one_key_at_the_terminal_of_the_one_that_is_asked(tmp_path: Path) -> None:
    with fresh_nodes(tmp_path, 2) as nodes:
        lower, higher = nodes
        lower.start_at_terminal()
        lower.wait_until_up()
        start([higher])
        seen, name = waits(higher, at=lower), lower.snapshot().cluster
        assert higher.snapshot().asking == AskingView(name, seen.code)
        wrong = lower.post(f"newcomers/{seen.peer}/approve", code="no code")
        assert (wrong.status_code, "another code" in wrong.json()["error"]["message"]) == (403, True)
        assert (len(lower.snapshot().members), len(higher.snapshot().members)) == (1, 1)
        assert f"Does it show the code {seen.code} as well?" in lower.log
        lower.press("a")
        together(lower, higher)
        assert lower.snapshot().leader == lower.snapshot().me, "the one that was asked leads on"
        assert f"{higher.name} is let in." in lower.log
        assert (higher.snapshot().cluster, higher.snapshot().asking, lower.snapshot().newcomers) == (name, None, ())


@pytest.mark.timeout(240)
def test_three_fresh_nodes_pair_and_one_that_is_removed_stays_out(tmp_path: Path) -> None:
    with fresh_nodes(tmp_path, 3) as nodes:
        lowest, middle, highest = nodes
        start([highest])
        start([middle])
        approve(highest, at=middle)
        together(middle, highest)
        start([lowest])  # alone among fresh nodes it would wait to be asked; a cluster is asked whatever its peer ids
        door = wait_for("somebody is asked", lambda: lowest.snapshot().asking and asked_by(lowest, middle, highest))
        approve(lowest, at=door, by=middle if door is highest else highest)
        together(*nodes)

        # One is removed while another is away: that one comes back by itself, the removed one doesn't.
        peer = highest.snapshot().me
        lowest.end()
        wait_for("its going is noticed", lambda: len(middle.snapshot().members) == 2)
        response = httpx.delete(f"{middle.url}/v1/members/{peer}", timeout=30)
        assert response.json()["behind"] == []
        wait_for("it is out", lambda: len(middle.snapshot().members) == 1 == len(highest.snapshot().members))
        wait_for("it says so", lambda: any("no longer let into" in line for line in highest.snapshot().warnings))
        lowest.start()
        lowest.wait_until_up()
        together(lowest, middle)
        assert peer not in {member.peer for node in (lowest, middle) for member in node.snapshot().members}
        assert httpx.delete(f"{lowest.url}/v1/members/nobody", timeout=30).status_code == 404


@pytest.mark.long
def test_a_machine_that_is_removed_while_it_is_away_is_told_so_when_it_is_back_and_knows_it_when_it_starts_anew(
    tmp_path: Path,
) -> None:
    with fresh_nodes(tmp_path, 2) as nodes:
        lower, higher = nodes
        start(nodes)
        approve(higher, at=lower)
        together(*nodes)
        peer = higher.snapshot().me
        higher.end()
        wait_for("its going is noticed", lambda: len(lower.snapshot().members) == 1)
        httpx.delete(f"{lower.url}/v1/members/{peer}", timeout=30).raise_for_status()
        start([higher])
        wait_for(
            "it is told", lambda: any("was removed from the cluster" in line for line in higher.snapshot().warnings)
        )
        lower.end()
        higher.end()
        start([higher])
        assert any("was removed from the cluster" in line for line in higher.snapshot().warnings)
        assert [member.name for member in higher.snapshot().members] == [higher.name]


@pytest.mark.long
@pytest.mark.parametrize("at_once", [False, True], ids=["one after the other", "at once"])
@pytest.mark.parametrize("order", [*permutations(range(2)), *permutations(range(3))], ids=str)
def test_fresh_nodes_become_one_cluster_by_approval_in_any_order_of_starting(
    tmp_path: Path, order: tuple[int, ...], at_once: bool
) -> None:
    with fresh_nodes(tmp_path, len(order)) as nodes:
        for number in order:
            nodes[number].start()
            if not at_once:
                nodes[number].wait_until_up()
        for node in nodes:
            node.wait_until_up()
        wait_for("somebody waits", lambda: any(node.snapshot().newcomers for node in nodes))
        assert all(len(node.snapshot().members) == 1 for node in nodes)
        wait_for("all are one cluster", lambda: approve_who_waits(nodes) or are_one(nodes))
        together(*nodes)


def approve_who_waits(nodes: Sequence[FreshNode]) -> None:
    for newcomer in nodes:
        door, asking = asked_by(newcomer, *nodes), newcomer.snapshot().asking
        seen = door.newcomer(newcomer.name) if door else None
        if door and seen and asking and seen.code == asking.code:
            door.post(f"newcomers/{seen.peer}/approve", code=seen.code)


def are_one(nodes: Sequence[FreshNode]) -> bool:
    return all(len(node.snapshot().members) == len(nodes) for node in nodes)


def asked_by(newcomer: FreshNode, *members: FreshNode) -> FreshNode | None:
    return next((each for each in members if (seen := each.newcomer(newcomer.name)) and seen.at == each.name), None)
