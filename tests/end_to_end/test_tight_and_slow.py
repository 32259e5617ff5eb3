"""X5: machines that are too small for a model, and one that stands still for a while."""

import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from end_to_end.cluster import EMBEDDED_MODEL, RealCluster, RealNode, real_cluster, wait_for
from end_to_end.dialects import DIALECTS, PATHS, body, told
from end_to_end.faults.answers import Question
from end_to_end.scripted import MODEL, scripted_nodes

from p2pexo.ring.scripted import Script

PAUSE_S = 8.0
TOKENS = 300


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, cache: Path, embedded_directory: Path) -> Generator[RealCluster]:
    arguments = ("--cache", str(cache), "--memory", "40MB")
    with real_cluster(tmp_path_factory.mktemp("small"), 2, arguments) as cluster:
        yield cluster


def test_x5_a_model_that_fits_nowhere_is_refused_with_what_is_needed_and_free_on_each_machine(
    small: RealCluster,
) -> None:
    answers = [httpx.post(f"{node.url}/v1/placements", json={"model": EMBEDDED_MODEL}) for node in small.nodes]
    for dialect in DIALECTS:
        content = body(dialect, EMBEDDED_MODEL, "Hello", stream=False)
        answers.append(httpx.post(small[0].url + PATHS[dialect], json=content, timeout=60))
    for answer in answers:
        assert 400 <= answer.status_code < 500 or answer.status_code in (503, 529), answer.text
        for node in small.nodes:
            assert f"{node.name}: needs " in answer.text
        assert "MB free" in answer.text
        assert "--memory" in answer.text
    assert not any(node.stage_processes() for node in small.nodes)


@contextmanager
def stopped(node: RealNode) -> Generator[None]:
    processes = [psutil.Process(node.running.pid), *node.children()]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


@pytest.mark.long
@pytest.mark.parametrize("dialect", DIALECTS)
def test_x5_an_answer_goes_on_when_a_machine_of_its_ring_stands_still(tmp_path: Path, dialect: str) -> None:
    with scripted_nodes(tmp_path, 2, Script(context_length=1024, batch_s=0.003)) as cluster:
        leader = cluster.leader()
        (other,) = (node for node in cluster.nodes if node is not leader)
        cluster.place(MODEL, min_stages=2)
        content = Question(dialect, stream=True, max_tokens=TOKENS).body(MODEL)
        lines: list[str] = []

        def listen() -> None:
            with httpx.stream("POST", leader.url + PATHS[dialect], json=content, timeout=120) as response:
                for line in response.iter_lines():
                    lines.append(line)

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        wait_for("the answer is under way", lambda: len(lines) > 50)
        with stopped(other):
            time.sleep(PAUSE_S)
        thread.join(120)
        outcome = told(dialect, "\n".join(lines) + "\n")
        assert outcome.is_complete, outcome.error
        assert len(outcome.text) == TOKENS  # the script says a letter for each
        cluster.wait_until_together()
        cluster.wait_until_ready(MODEL)
        content = Question(dialect, stream=False, max_tokens=8).body(MODEL)
        for node in cluster.nodes:
            answer = httpx.post(node.url + PATHS[dialect], json=content, timeout=60)
            assert answer.status_code == 200, answer.text
