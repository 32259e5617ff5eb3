"""Two rings of one model, and what their clients see when one of them is lost."""

import re
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import httpx
import pytest
from end_to_end.cluster import RealCluster, RealNode, wait_for
from end_to_end.dialects import body
from end_to_end.scripted import MODEL, scripted_nodes

from p2pexo.client import Client, EndedRequest
from p2pexo.ring.scripted import Script

REQUESTS = 8
TOKENS = 150
FAULT_AT = 20
"""The token of one answer at which a stage is killed."""


@pytest.fixture
def two_rings(tmp_path) -> Generator[RealCluster]:
    """Each on a node of its own."""
    with scripted_nodes(tmp_path, 2, Script(batch_s=0.002)) as cluster:
        response = httpx.post(f"{cluster[0].url}/v1/placements", json={"model": MODEL, "replicas": 2}, timeout=30)
        assert response.status_code == 201, response.text
        wait_for("both rings are ready in every view", lambda: all(ready(node) == 2 for node in cluster.nodes))
        yield cluster


def ready(node: RealNode) -> int:
    return sum(each.state == "ready" for each in node.snapshot().placements)


def stream(node: RealNode, number: int, tokens_reached: Event | None = None) -> str:
    """An answer to the question of this number, which must come to its end."""
    content = body("chat", MODEL, f"Question {number}", True, max_tokens=TOKENS)
    text = line = ""
    with httpx.stream("POST", f"{node.url}/v1/chat/completions", json=content, timeout=60) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            assert '"error"' not in line, line
            text += "".join(re.findall(r'"content":"([^"]*)"', line))
            if tokens_reached and len(text) >= FAULT_AT:
                tokens_reached.set()
    assert line == "" or line == "data: [DONE]"
    return text


def all_at_once(node: RealNode, tokens_reached: Event | None = None) -> list[str]:
    with ThreadPoolExecutor(REQUESTS) as pool:
        return [
            each.result() for each in [pool.submit(stream, node, number, tokens_reached) for number in range(REQUESTS)]
        ]


def newest(node: RealNode) -> tuple[EndedRequest, ...]:
    with Client(node.url, discover=False) as client:
        return client.requests()[:REQUESTS]


def test_requests_at_once_use_both_rings_and_all_answers_go_on_when_one_ring_is_lost(two_rings: RealCluster) -> None:
    asked, other = two_rings.nodes
    undisturbed = all_at_once(asked)
    assert [len(text) for text in undisturbed] == [TOKENS] * REQUESTS
    by_ring = [each.node for each in newest(asked)]
    assert (by_ring.count(asked.name), by_ring.count(other.name)) == (REQUESTS // 2, REQUESTS // 2)

    under_way = Event()
    with ThreadPoolExecutor(1) as pool:
        disturbed = pool.submit(all_at_once, asked, under_way)
        assert under_way.wait(30)
        other.stage_processes()[-1].kill()
        assert disturbed.result() == undisturbed
    ended = newest(asked)
    assert {each.outcome for each in ended} == {"length"}
    assert sorted(each.rings for each in ended) == [1] * (REQUESTS // 2) + [2] * (REQUESTS // 2)
    assert asked.log.count("request ended") == 2 * REQUESTS
    assert "Question" not in asked.log

    wait_for("the lost ring is formed anew", lambda: ready(asked) == 2)
    all_at_once(asked)
    assert {each.node for each in newest(asked)} == {asked.name, other.name}
