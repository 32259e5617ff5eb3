"""X1 and X2: runners and nodes killed, amid long streams on each surface and while idle; what clients, the state and the survivors show."""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from end_to_end.cluster import RealCluster, RealNode, wait_for
from end_to_end.dialects import DIALECTS, PATHS, body, told
from end_to_end.faults.answers import Heard, Question
from end_to_end.faults.faults import Ring
from end_to_end.faults.harness import Stage, parts
from end_to_end.scripted import MODEL, scripted_nodes

from p2pexo.cluster.snapshot import PlacementView
from p2pexo.ring.scripted import Script

WITHIN_S = 10.0
"""The case's own limit for whatever a client waits for."""
TOKENS, STRUCK_AT = 500, 50
LOOK_S = 2.0
IDLE_SHARE = 0.25
"""Of one core. Usual are some hundredths; who spins takes all of it."""

VICTIMS: dict[str, Callable[[Ring], None]] = {
    "a follower's runner": lambda ring: ring.by_rank[-1].stage_processes()[-1].kill(),
    "a follower's node": lambda ring: ring.by_rank[-1].kill(),
    "the leader's runner": lambda ring: ring.leader.stage_processes()[-1].kill(),
}


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", VICTIMS)
def test_x1_streams_on_each_surface_outlive(stage: Stage, victim: str) -> None:
    """And the survivors fall idle when they have ended."""
    ring = led_ring(stage)
    for heard in hear_all(stage, ring.asked, lambda: VICTIMS[victim](ring)):
        assert max(heard.gaps) < WITHIN_S
        outcome = told(heard.dialect, heard.raw)
        assert outcome.is_complete, outcome.error
        assert len(outcome.text) == TOKENS  # the script says a letter for each
    wait_for("all survivors are idle", lambda: all(share < IDLE_SHARE for share in busy_shares(stage.cluster)), 60)
    assert stage.ask(ring.asked, Question("chat", stream=False)).status_code == 200


def led_ring(stage: Stage) -> Ring:
    """Of the leader and one more; the third one, which has no part in it, is asked."""
    stage.set_up()
    leader = stage.cluster.leader()
    follower, asked = (node for node in stage.cluster.nodes if node is not leader)
    layers = stage.cluster.wait_until_ready(stage.model).stages[-1].end_layer
    stage.cluster.delete(stage.model)
    RealCluster([leader, follower]).place(stage.model, split=parts(layers, 2))
    placement = stage.cluster.wait_until_ready(stage.model)
    assert placement.stages[0].peer == leader.snapshot().me
    return Ring(asked, leader, (leader, follower), placement.epoch)


def hear_all(stage: Stage, node: RealNode, strike: Callable[[], None]) -> list[Heard]:
    """A stream in each dialect; it strikes when all of them are far enough."""
    meeting = threading.Barrier(len(DIALECTS), action=strike, timeout=60)

    def hear(dialect: str) -> Heard:
        return stage.listen(node, Question(dialect, stream=True, max_tokens=TOKENS), STRUCK_AT, meeting.wait)

    with ThreadPoolExecutor(len(DIALECTS)) as pool:
        return list(pool.map(hear, DIALECTS))


def busy_shares(cluster: RealCluster) -> list[float]:
    """Of one core, for each process of all nodes, over LOOK_S; those that came or went meanwhile are left out."""
    before = {process: used(process) for process in processes(cluster)}
    time.sleep(LOOK_S)
    return [(used(process) - before[process]) / LOOK_S for process in processes(cluster) if process in before]


def processes(cluster: RealCluster) -> Iterator[psutil.Process]:
    for node in cluster.alive:
        yield psutil.Process(node.running.pid)
        yield from node.children()


def used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def test_x2_an_idle_runner_that_is_killed_shows_at_once_and_holds_no_request_up(stage: Stage) -> None:
    stage.set_up()
    placement = stage.cluster.wait_until_ready(stage.model)
    runner = stage.cluster.node_of(placement.stages[-1].peer).stage_processes()[-1]
    asked = stage.cluster[0]
    runner.kill()
    with ThreadPoolExecutor(10) as pool:
        answers = [pool.submit(ask, asked) for _ in range(10)]
        wait_for("the state shows it", lambda: is_another(asked.placement(MODEL), placement), 2)
        for answer in answers:
            assert answer.result().status_code == 200 or is_turned_away(answer.result())
    stage.cluster.wait_until_ready(MODEL)
    assert ask(asked).status_code == 200


def ask(node: RealNode) -> httpx.Response:
    """Raises httpx.TimeoutException for an answer that takes too long."""
    content = body("chat", MODEL, "Hello", stream=False, max_tokens=8)
    return httpx.post(node.url + PATHS["chat"], json=content, timeout=WITHIN_S)


def is_turned_away(answer: httpx.Response) -> bool:
    return answer.status_code == 503 and bool(answer.json()["error"]["message"])


def is_another(now: PlacementView | None, before: PlacementView) -> bool:
    return now is None or now.state != "ready" or now.epoch != before.epoch


@pytest.fixture
def lone(tmp_path: Path) -> Generator[RealNode]:
    with scripted_nodes(tmp_path, 1, Script()) as cluster:
        cluster.place(MODEL)
        yield cluster[0]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_x2_a_runner_that_is_killed_again_and_again_is_given_up_and_the_reason_is_told(lone: RealNode) -> None:
    killed: set[int] = set()

    def given_up() -> PlacementView | None:
        found = lone.placement(MODEL)
        if found is not None and found.state == "ready":  # one that dies before isn't started again anyway
            for process in lone.stage_processes():
                killed.add(process.pid)
                process.kill()
        return found if found is not None and found.state == "failed" else None

    failed = wait_for("the placement has failed", given_up, 120)
    assert "SIGKILL" in failed.reason
    assert 4 <= len(killed) <= 20
    pauses = lone.log.count("pause_s=0.5"), lone.log.count("pause_s=2.0")
    assert min(pauses) >= 1, "restarts are backed off"
