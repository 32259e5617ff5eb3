"""Faults of clusters that users of such systems really met (the case's number is in each name), seen over HTTP."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from end_to_end.cluster import RealCluster, RealNode, wait_for
from end_to_end.scripted import MODEL, scripted_nodes, scripted_ring

from p2pexo.cluster.snapshot import PlacementView
from p2pexo.ring.scripted import Script

A_DAY_S = 24 * 3600
SETTLED_AFTER_S = 10.0
QUIET_S = 120.0

TURN_CLOCK = """
import os, sys, time
if os.environ.get("TEST_CLOCK_OF", " ") in " ".join(sys.orig_argv):
    _path, _time, _time_ns = os.environ["TEST_CLOCK"], time.time, time.time_ns
    def _ahead():
        with open(_path) as file:
            return float(file.read() or 0)
    time.time = lambda: _time() + _ahead()
    time.time_ns = lambda: _time_ns() + int(_ahead() * 1e9)
"""
"""A ``sitecustomize`` for the processes of one node, with a wall clock that a test turns while they run."""


def chat(node: RealNode, text: str, timeout_s: float = 60) -> httpx.Response:
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 4, "temperature": 0}
    return httpx.post(f"{node.url}/v1/chat/completions", json=body, timeout=timeout_s)


def leader_and_follower(cluster: RealCluster) -> tuple[RealNode, RealNode]:
    leader = cluster.leader()
    return leader, next(node for node in cluster.nodes if node is not leader)


@pytest.mark.long
def test_e7_large_requests_are_answered_or_refused_and_cost_no_node(tmp_path: Path) -> None:
    with scripted_ring(tmp_path, 2, Script()) as cluster:
        term = cluster[0].snapshot().term
        for node in leader_and_follower(cluster):
            for size in (300_000, 900_000, 1_100_000, 5_000_000, 20_000_000):
                answer = chat(node, "x" * size)
                assert answer.status_code in (400, 413), (size, answer.status_code, answer.text[:200])
                assert answer.json()["error"]["message"]
            assert chat(node, "small").status_code == 200
        cluster.wait_until_together()
        assert cluster[0].snapshot().term == term


def test_e1_a_machine_that_died_or_left_gets_no_stage_and_one_that_restarts_counts_once(tmp_path: Path) -> None:
    with scripted_nodes(tmp_path, 3, Script()) as cluster:
        leader = cluster.leader()
        restless, other = (node for node in cluster.nodes if node is not leader)
        restless.kill()
        cluster.wait_until_together()
        ring = cluster.place(MODEL, min_stages=2)
        assert {stage.peer for stage in ring.stages} == {node.snapshot().me for node in (leader, other)}
        for _ in range(3):
            restless.start()
            restless.wait_until_up()
            restless.kill()
        restless.start()
        restless.wait_until_up()
        assert len(cluster.nodes) == 3 and cluster.wait_until_together() == leader.snapshot().me
        kept = leader.placement(MODEL)
        assert kept is not None and (kept.id, kept.epoch, kept.state) == (ring.id, ring.epoch, "ready")
        other.send(signal.SIGTERM)
        assert other.running.wait(15) == 0
        cluster.wait_until_together()
        staying = {node.snapshot().me for node in (leader, restless)}
        assert {stage.peer for stage in cluster.wait_until_ready(MODEL).stages} <= staying
        cluster.delete(MODEL)
        assert {stage.peer for stage in cluster.place(MODEL, min_stages=2).stages} == staying


def followed_to_its_end(cluster: RealCluster, id: str) -> PlacementView | None:
    found = next((each for each in cluster[0].snapshot().placements if each.id == id), None)
    return found if found is not None and found.state in ("ready", "failed") else None


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("count", [2, 3])
def test_e3_a_leader_that_is_back_at_once_settles_with_a_model_running_and_then_nothing_changes(
    tmp_path: Path, count: int
) -> None:
    with scripted_nodes(tmp_path, count, Script()) as cluster:
        leader, _ = leader_and_follower(cluster)
        cluster.place(MODEL, min_stages=2)
        leader.kill()
        leader.start()
        leader.wait_until_up()
        cluster.wait_until_together()
        cluster.wait_until_ready(MODEL)
        assert all(chat(node, "small").status_code == 200 for node in cluster.nodes)
        time.sleep(SETTLED_AFTER_S)
        seen: set[tuple[object, ...]] = set()
        quiet_until = time.monotonic() + QUIET_S
        while time.monotonic() < quiet_until:
            seen |= {gist(node) for node in cluster.nodes}
            time.sleep(1)
        assert len(seen) == 1, seen


def gist(node: RealNode) -> tuple[object, ...]:
    snapshot = node.snapshot()
    members = tuple(sorted(member.peer for member in snapshot.members))
    return snapshot.leader, snapshot.term, members, tuple((each.id, each.epoch) for each in snapshot.placements)


@pytest.mark.long
def test_e11_what_was_accepted_becomes_ready_or_says_why_not(tmp_path: Path) -> None:
    with scripted_nodes(tmp_path, 2, Script()) as cluster:
        two: dict[str, object] = {"model": MODEL, "min_stages": 2}
        for turn in range(20):
            with ThreadPoolExecutor(2) as pool:
                answers = list(pool.map(lambda node: place(node, two), (cluster[0], cluster[turn % 2])))
            ids = {answer.json()["id"] for answer in answers if answer.status_code < 300}
            assert len(ids) == 1, [answer.text for answer in answers]  # both want the same, and get it
            (id,) = ids
            view = wait_for("the placement is ready, or says why not", lambda: followed_to_its_end(cluster, id))  # noqa: B023
            assert (view.state, len(view.stages)) == ("ready", 2), view.reason
            cluster.delete(MODEL)
        refused = place(cluster[0], two | {"min_stages": 99})
        assert 400 <= refused.status_code < 500
        assert "99" in refused.text
        cluster.wait_until_together()


def place(node: RealNode, body: dict[str, object]) -> httpx.Response:
    return httpx.post(f"{node.url}/v1/placements", json=body, timeout=30)


def test_e10_a_node_with_a_wrong_wall_clock_that_jumps_serves_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(TURN_CLOCK)
    clock = tmp_path / "clock"
    clock.write_text(str(A_DAY_S))
    monkeypatch.setenv("TEST_CLOCK", str(clock))
    monkeypatch.setenv("TEST_CLOCK_OF", str(tmp_path / "home-2"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with scripted_ring(tmp_path, 2, Script()) as cluster:
        before = cluster[0].snapshot()
        for jump_s in (-A_DAY_S, 2 * A_DAY_S):
            clock.write_text(str(jump_s))
            for node, ahead_s in ((cluster[0], 0), (cluster[1], jump_s)):
                answer = chat(node, "what time is it?")
                assert answer.status_code == 200, answer.text
                assert abs(answer.json()["created"] - time.time() - ahead_s) < A_DAY_S / 2
        after = cluster[0].snapshot()
        assert (after.leader, after.term, len(after.members)) == (before.leader, before.term, 2)
