"""What users see when machines and processes go away."""

import json
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import httpx
import pytest
from end_to_end.cluster import EMBEDDED_MODEL, RealCluster, RealNode, real_cluster, wait_for
from end_to_end.scripted import MODEL, scripted_ring

from p2pexo.ring.scripted import Script

STORY = "Tell me a long story about a ship."


def stream_lines(node: RealNode, model: str = EMBEDDED_MODEL, max_tokens: int = 300) -> Iterator[str]:
    """A long stream."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": STORY}],
        "temperature": 0,
        "max_tokens": max_tokens,
        "stream": True,
    }
    with httpx.stream("POST", f"{node.url}/v1/chat/completions", json=body, timeout=60) as response:
        assert response.status_code == 200
        yield from response.iter_lines()


def pieces(lines: Iterator[str]) -> Iterator[str]:
    """The text of a stream, which must come to its end."""
    data = [""]
    for line in lines:
        if line.startswith("data: {"):
            chunk = json.loads(line.removeprefix("data: "))
            assert "error" not in chunk, chunk
            yield from (choice["delta"].get("content") or "" for choice in chunk["choices"])
        data.append(line)
    assert "data: [DONE]" in data


def ask(node: RealNode, model: str = EMBEDDED_MODEL) -> str:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0,
        "max_tokens": 8,
    }
    response = httpx.post(f"{node.url}/v1/chat/completions", json=body, timeout=90)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


def placed_on_followers_only(cluster: RealCluster, stages: int) -> RealNode:
    """A ring that the leader takes no part in, however the planner chooses; the leader."""
    leader = cluster.leader()
    placement = cluster.place(min_stages=stages)
    if any(cluster.node_of(stage.peer) is leader for stage in placement.stages):
        raise AssertionError("the leader holds a stage; give it less memory than the others")
    return leader


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Generator[RealCluster]:
    """Where what is told of a fault counts, and not which model it met."""
    script = Script(context_length=4096, batch_s=0.002)
    with scripted_ring(tmp_path_factory.mktemp("faults"), 3, script) as cluster:
        yield cluster


@pytest.fixture
def whole(scripted: RealCluster) -> RealCluster:
    """With all its nodes, whatever an earlier test has done to them, and one ring over them."""
    for node in scripted.nodes:
        if node not in scripted.alive:
            node.start()
            node.wait_until_up()
    scripted.wait_until_together()
    if len({stage.peer for stage in scripted.wait_until_ready(MODEL).stages}) < len(scripted.nodes):
        scripted.delete(MODEL)
        scripted.place(MODEL, min_stages=len(scripted.nodes))
    return scripted


@pytest.mark.parametrize("rank", ["first", "later"])
def test_an_answer_goes_on_when_a_node_is_killed_in_its_middle(whole: RealCluster, rank: str) -> None:
    placement = whole.wait_until_ready(MODEL)
    by_rank = [whole.node_of(stage.peer) for stage in placement.stages]
    asked = by_rank[2]
    victim = by_rank[0] if rank == "first" else by_rank[1]
    expected = ask(asked, MODEL)
    undisturbed = "".join(pieces(stream_lines(asked, MODEL)))
    told = ""
    for number, piece in enumerate(pieces(stream_lines(asked, MODEL)), start=1):
        told += piece
        if number == 5:
            victim.kill()
    assert told == undisturbed
    survivors = whole.wait_until_ready(MODEL).stages
    assert all(whole.node_of(stage.peer) is not victim for stage in survivors)
    assert ask(asked, MODEL) == expected


@pytest.mark.parametrize("rank", [0, 1])
def test_an_answer_goes_on_when_a_node_of_its_ring_leaves_and_one_of_its_own_clients_ends_first(
    whole: RealCluster, rank: int
) -> None:
    by_rank = [whole.node_of(stage.peer) for stage in whole.wait_until_ready(MODEL).stages]
    asked, leaver = by_rank[2], by_rank[rank]
    undisturbed = "".join(pieces(stream_lines(asked, MODEL)))
    own = stream_lines(leaver, MODEL, max_tokens=40)
    told = ""
    for number, piece in enumerate(pieces(stream_lines(asked, MODEL)), start=1):
        told += piece
        if number == 5:
            next(own)
            leaver.send(signal.SIGTERM)
    assert told == undisturbed
    assert undisturbed.startswith("".join(pieces(own)))
    assert leaver.running.wait(15) == 0


def test_an_answer_that_outlasts_its_leaving_node_ends_with_an_error_and_the_node_in_time(whole: RealCluster) -> None:
    leaver = whole.leader()
    lines = stream_lines(leaver, MODEL, max_tokens=3000)
    next(lines)
    leaver.send(signal.SIGTERM)
    told = [line for line in lines if line.startswith("data: ")]
    assert "this node is stopping" in told[-2]
    assert told[-1] == "data: [DONE]"
    assert leaver.running.wait(5) == 0


def test_a_leader_without_a_stage_killed_while_idle_is_replaced_and_nothing_is_reloaded(
    cache: Path, tmp_path: Path
) -> None:
    with real_cluster(tmp_path, 3, ("--cache", str(cache)), memory=("200MB", "8GB", "8GB")) as cluster:
        leader = placed_on_followers_only(cluster, stages=2)
        others = [node for node in cluster.nodes if node is not leader]
        expected = ask(others[0])
        stage_pids = [[child.pid for child in node.stage_processes()] for node in others]
        old_epoch = cluster.wait_until_ready().epoch
        term = others[0].snapshot().term
        leader.kill()
        wait_for(
            "the others have a new leader and see the old one gone",
            lambda: all(
                snapshot.leader and snapshot.term > term and len(snapshot.members) == 2
                for snapshot in (node.snapshot() for node in others)
            ),
            timeout_s=10,
        )
        placement = cluster.wait_until_ready()
        assert placement.epoch == old_epoch
        assert [[child.pid for child in node.stage_processes()] for node in others] == stage_pids
        assert ask(others[0]) == expected
        assert ask(others[1]) == expected


def test_a_killed_stage_process_is_replaced(cache: Path, tmp_path: Path) -> None:
    with real_cluster(tmp_path, 2, ("--cache", str(cache))) as cluster:
        placement = cluster.place(min_stages=2)
        expected = ask(cluster[0])
        node = cluster.node_of(placement.stages[1].peer)
        (child,) = node.stage_processes()
        child.send_signal(signal.SIGKILL)
        wait_for("the stage shows as not ready", lambda: (view := cluster[0].placement()) and view.state != "ready", 10)
        assert ask(cluster[0]) == expected
