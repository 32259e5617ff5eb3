"""A network that is cut and heals, under real nodes with running models: each is a machine (a network namespace) on one switch."""

import json
import threading
import time
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest
from attrs import define, field
from end_to_end.cluster import RealCluster, RealNode, wait_for
from end_to_end.namespaces import Machine, Switch, switched_machines
from end_to_end.placed_nodes import PlacedNode, placed_cluster
from end_to_end.scripted import MODEL, scripted_arguments

from p2pexo.cluster.snapshot import PlacementView
from p2pexo.ring.scripted import Line, Script

WORDS = 80
QUIET_S = 120.0
STORY = " ".join(f"word{number}" for number in range(WORDS))
SCRIPT = Script(context_length=4096, says=(Line("a long story", STORY, token_s=0.05), Line("", "All is well.")))


@pytest.fixture
def switch() -> Generator[Switch]:
    with switched_machines(3) as switch:
        yield switch


@define
class Listener:
    """A client that listens to a long answer in a thread of its own."""

    node: RealNode
    text: str = ""
    finish: str | None = None
    thread: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self) -> None:
        body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "a long story"}]}
        with httpx.stream("POST", f"{self.node.url}/v1/chat/completions", json=body, timeout=60) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    choice = json.loads(line[6:])["choices"][0]
                    self.text += choice["delta"].get("content") or ""
                    self.finish = choice["finish_reason"] or self.finish


def says(node: RealNode, text: str = "Hello") -> httpx.Response:
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}]}
    return httpx.post(f"{node.url}/v1/chat/completions", json=body, timeout=60)


def the_rest(cluster: RealCluster, node: RealNode) -> RealCluster:
    return RealCluster([each for each in cluster.nodes if each is not node])


def ring_of_two(cluster: RealCluster) -> tuple[PlacementView, RealNode, RealNode, RealNode]:
    """The placement, and the nodes with its first stage, its last stage, and none."""
    view = cluster.place(MODEL, min_stages=2)
    first, last = (cluster.node_of(stage.peer) for stage in view.stages)
    (idle,) = (node for node in cluster.nodes if node not in (first, last))
    return view, first, last, idle


def one_state(cluster: RealCluster) -> PlacementView | None:
    """The one placement that all nodes see, in the same epoch."""
    seen = [node.snapshot().placements for node in cluster.nodes]
    views = [
        [(each.id, each.epoch, each.state) for each in placements if each.state != "failed"] for placements in seen
    ]
    agreed = all(each == views[0] for each in views) and len(views[0]) == 1 and views[0][0][2] == "ready"
    return next(each for each in seen[0] if each.state != "failed") if agreed else None


@pytest.mark.long
def test_e3_who_is_cut_off_disturbs_no_answer_and_gives_way_to_the_ring_that_serves(
    tmp_path: Path, switch: Switch
) -> None:
    with placed_cluster(tmp_path, switch.machines, scripted_arguments(tmp_path, SCRIPT)) as cluster:
        view, first, last, idle = ring_of_two(cluster)
        processes = [node.stage_processes()[-1].pid for node in (first, last)]
        listener = Listener(last)
        wait_for("the answer has begun", lambda: listener.text)
        switch.pull_plug(machine_of(idle))
        the_rest(cluster, idle).wait_until_together()
        RealCluster([idle]).place(MODEL)  # it knows nothing of the others' ring any more
        assert says(idle).status_code == 200
        switch.put_plug(machine_of(idle))
        cluster.wait_until_together()
        listener.thread.join(60)
        assert (listener.text, listener.finish) == (STORY, "stop")
        kept = wait_for("there is one ring in all views", lambda: one_state(cluster))
        assert (kept.id, kept.epoch) == (view.id, view.epoch)
        assert [node.stage_processes()[-1].pid for node in (first, last)] == processes
        assert [says(node).status_code for node in cluster.nodes] == [200, 200, 200]


@pytest.mark.long
@pytest.mark.timeout(400)
def test_e3_a_ring_that_is_cut_in_two_goes_on_with_the_majority_and_then_nothing_changes(
    tmp_path: Path, switch: Switch
) -> None:
    with placed_cluster(tmp_path, switch.machines, scripted_arguments(tmp_path, SCRIPT)) as cluster:
        _, first, last, _ = ring_of_two(cluster)
        listener = Listener(first)
        wait_for("the answer has begun", lambda: listener.text)
        switch.pull_plug(machine_of(last))
        the_rest(cluster, last).wait_until_together()
        listener.thread.join(60)
        assert (listener.text, listener.finish) == (STORY, "stop")
        switch.put_plug(machine_of(last))
        leader = cluster.wait_until_together()
        kept = wait_for("there is one ring in all views", lambda: one_state(cluster))
        term = first.snapshot().term
        end = time.monotonic() + QUIET_S
        while time.monotonic() < end:
            for node in cluster.nodes:
                snapshot = node.snapshot()
                assert (snapshot.leader, snapshot.term, len(snapshot.members)) == (leader, term, 3)
            assert one_state(cluster) == kept
            time.sleep(0.5)
        assert [says(node).status_code for node in cluster.nodes] == [200, 200, 200]


def machine_of(node: RealNode) -> Machine:
    assert isinstance(node, PlacedNode)
    return node.machine
