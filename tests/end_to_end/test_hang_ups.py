"""H9: clients that hang up in the middle of long answers, a hundred times, leave nothing behind."""

import re
import socket
from collections.abc import Generator, Iterator

import httpx
import orjson
import psutil
import pytest
from attrs import frozen
from end_to_end.cluster import RealCluster, RealNode, wait_for
from end_to_end.dialects import DIALECTS, PATHS, body, text_of
from end_to_end.scripted import MODEL, scripted_ring

from p2pexo.ring.scripted import Line, Script

TIMES = 100
WARM = 12
"""Hang-ups before the first look, for what grows once: each dialect at each node, with some to spare."""

TOKEN_S = 0.02
STORY = "Once upon a time there was a ship. " * 60
ANSWER = "At once."
SCRIPT = Script(context_length=4096, says=(Line("a long story", STORY, token_s=TOKEN_S), Line("", ANSWER)))
PATIENCE_S = 10.0
"""A story takes four times as long: whoever waits less was not waiting for its end. Usual are some hundredths of a second."""


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Generator[RealCluster]:
    with scripted_ring(tmp_path_factory.mktemp("hang-ups"), 2, SCRIPT) as cluster:
        yield cluster


def hang_up_after_five_tokens(node: RealNode, dialect: str) -> None:
    content = orjson.dumps(body(dialect, MODEL, "Tell me a long story", True))
    head = f"POST {PATHS[dialect]} HTTP/1.1\r\nhost: 127.0.0.1:{node.api_port}\r\ncontent-type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", node.api_port), timeout=60) as client:
        client.sendall(head.encode() + f"content-length: {len(content)}\r\n\r\n".encode() + content)
        seen = b""
        while sum(seen.count(b'"%c"' % letter) for letter in set(STORY[:5].encode())) < 5:
            more = client.recv(65536)
            assert more, seen
            seen += more


def answer_at_once(node: RealNode, dialect: str) -> None:
    content = body(dialect, MODEL, "Hello", stream=False)
    answer = httpx.post(node.url + PATHS[dialect], json=content, timeout=PATIENCE_S)
    assert text_of(dialect, answer.json()) == ANSWER


def requests_at_work(node: RealNode) -> float:
    figures = httpx.get(f"{node.url}/metrics").text
    return sum(map(float, re.findall(r"^p2pexo_requests_(?:running|queued)\{\S* (\S+)$", figures, re.M)))


def processes(ring: RealCluster) -> Iterator[psutil.Process]:
    for node in ring.nodes:
        yield psutil.Process(node.running.pid)
        yield from node.stage_processes()


@frozen
class Held:
    """What the processes of all nodes hold."""

    files: int
    threads: int
    memory: int

    @classmethod
    def by(cls, ring: RealCluster) -> "Held":
        all_of_them = list(processes(ring))
        return cls(
            sum(each.num_fds() for each in all_of_them),
            sum(each.num_threads() for each in all_of_them),
            sum(each.memory_info().rss for each in all_of_them),
        )

    def is_no_more_than(self, before: "Held") -> bool:
        """But for the odd one that happens to be open, and for what allocators keep."""
        return (
            self.files <= before.files + 4 and self.threads <= before.threads + 2 and self.memory < before.memory + 20e6
        )


@pytest.mark.timeout(600)  # half a minute where nothing else runs
def test_h9_a_hundred_hang_ups_leave_nothing_behind(ring: RealCluster) -> None:
    """Each time the ring's only slot is free again at once, and after all times the processes hold what they held."""
    leader = ring.leader()
    asked = [leader, next(node for node in ring.nodes if node is not leader)]
    pids = sorted(each.pid for each in processes(ring))
    before = Held.by(ring)
    for number in range(WARM + TIMES):
        if number == WARM:
            before = Held.by(ring)
        node, dialect = asked[number % 2], DIALECTS[number // 2 % len(DIALECTS)]
        hang_up_after_five_tokens(node, dialect)
        wait_for("the request has left the node", lambda node=node: requests_at_work(node) == 0, PATIENCE_S)
        answer_at_once(node, dialect)
    assert sorted(each.pid for each in processes(ring)) == pids
    wait_for("files and threads are as before", lambda: Held.by(ring).is_no_more_than(before), PATIENCE_S)
