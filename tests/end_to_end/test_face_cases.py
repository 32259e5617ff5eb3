"""Faults that users of such systems really met (the case's number is in each name): what a node lets in over HTTP."""

import gzip
import http.client
import json
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from end_to_end.cluster import RealCluster
from end_to_end.dialects import DIALECTS, PATHS, body, text_of
from end_to_end.scripted import MODEL, scripted_ring

from p2pexo.ring.scripted import Line, Script

ANSWER = "Yes."
SCRIPT = Script(context_length=4096, poisons=(("poison", 5),), says=(Line("", ANSWER),))
FIVE_MB = "ship " * 1_000_000

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Generator[RealCluster]:
    with scripted_ring(tmp_path_factory.mktemp("face"), 2, SCRIPT, ("--log-level", "debug")) as cluster:
        yield cluster


def question(dialect: str = "chat", prompt: str = "Well?", **more: Any) -> dict[str, Any]:
    return body(dialect, MODEL, prompt, stream=False, **more)


def send(ring: RealCluster, method: str, target: str, **headers: str) -> tuple[int, bytes]:
    """The target as it stands, which clients would tidy up."""
    connection = http.client.HTTPConnection("127.0.0.1", ring[0].api_port, timeout=30)
    connection.putrequest(method, target, skip_host="host" in headers)
    content = json.dumps({"model": target.rpartition("/")[2]}).encode()
    for name, value in {"content-length": str(len(content)), **headers}.items():
        connection.putheader(name, value)
    connection.endheaders(content)
    with connection.getresponse() as response:
        return response.status, response.read()


class TestH1Preflights:
    ASKED = "authorization, content-type, x-api-key, anthropic-version, x-stainless-timeout, x-unknown-1"

    @pytest.mark.parametrize("path", [*PATHS.values(), "/v1/models", "/v1/completions", "/api/tags", "/v1/cluster"])
    def test_h1_pages_of_this_machine_may_ask_with_any_header(self, ring: RealCluster, path: str) -> None:
        asked = {"access-control-request-method": "POST", "access-control-request-headers": self.ASKED}
        answer = httpx.options(ring[0].url + path, headers={"origin": "http://localhost:5173", **asked})
        assert answer.status_code in (200, 204)
        assert answer.headers["access-control-allow-origin"] == "http://localhost:5173"
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert answer.headers["access-control-allow-headers"] == self.ASKED

    @pytest.mark.parametrize("more", [{}, {"temperature": "hot"}, {"stream": True}], ids=["answer", "400", "stream"])
    def test_h1_answers_errors_and_streams_can_be_read_by_them_alone(
        self, ring: RealCluster, more: dict[str, Any]
    ) -> None:
        for origin, allowed in (("http://localhost:5173", "http://localhost:5173"), ("https://evil.example", None)):
            headers = {"origin": origin}
            answer = httpx.post(ring[0].url + PATHS["chat"], json=question() | more, headers=headers, timeout=30)
            assert answer.headers.get("access-control-allow-origin") == allowed
            assert (answer.status_code == 403) is (allowed is None)


class TestH2Hosts:
    @pytest.mark.parametrize("name", ["host", "origin"])
    @pytest.mark.parametrize(("method", "target"), [("GET", "/v1/models"), ("DELETE", "/v1/placements/{id}")])
    def test_h2_a_foreign_name_gets_nowhere(self, ring: RealCluster, method: str, target: str, name: str) -> None:
        placement = ring.wait_until_ready(MODEL)
        value = f"evil.example:{ring[0].api_port}" if name == "host" else "http://evil.example"
        status, _ = send(ring, method, target.format(id=placement.id), **{name: value})
        assert status == 403
        kept = ring.wait_until_ready(MODEL)
        assert (kept.id, kept.epoch) == (placement.id, placement.epoch)

    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
    def test_h2_our_own_names_do(self, ring: RealCluster, host: str) -> None:
        assert send(ring, "GET", "/v1/models", host=f"{host}:{ring[0].api_port}")[0] == 200


class TestH3Pictures:
    @pytest.fixture
    def listener(self) -> Iterator[socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.settimeout(0.2)
            yield listening

    @every_dialect
    def test_h3_nothing_is_fetched_from_inside(self, ring: RealCluster, dialect: str, listener: socket.socket) -> None:
        port = listener.getsockname()[1]
        for address in (f"http://127.0.0.1:{port}/x.png", "http://169.254.169.254/", "file:///etc/passwd"):
            answer = httpx.post(ring[0].url + PATHS[dialect], json=showing(dialect, address), timeout=30)
            assert 400 <= answer.status_code < 500, answer.text
            assert "root:" not in answer.text
        with pytest.raises(TimeoutError):
            listener.accept()
        assert not any("root:x" in node.log for node in ring.nodes)


def showing(dialect: str, address: str) -> dict[str, Any]:
    """A request with the picture that is said to be there."""
    parts: dict[str, Any] = {
        "chat": {"type": "image_url", "image_url": {"url": address}},
        "responses": {"type": "input_image", "image_url": address},
        "claude": {"type": "image", "source": {"type": "url", "url": address}},
    }
    if dialect == "ollama":
        return question(dialect, messages=[{"role": "user", "content": "This?", "images": [address]}])
    turns: Any = [{"role": "user", "content": [parts[dialect]]}]
    return question(dialect, **{"input" if dialect == "responses" else "messages": turns})


class TestH5Deleting:
    NAMES = ("..", "../..", "%2e%2e", "%2e%2e%2f%2e%2e", ".", "", "/etc", "%2Fetc", "..%5c..")

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize(
        "prefix", ["/api/delete", "/api/delete/", "/v1/models/", "/v1/placements/", "/v1/responses/", "/api/models/"]
    )
    def test_h5_no_name_leads_out_of_the_models_folder(self, ring: RealCluster, prefix: str, name: str) -> None:
        canary = ring[0].home.parent / "cache" / "canary"
        canary.parent.mkdir(exist_ok=True)
        canary.write_text("alive")
        held = sorted(path for path in ring[0].home.parent.rglob("*") if path.is_file() and not is_passing(path))
        target = prefix if prefix == "/api/delete" else prefix + name
        status, _ = send(ring, "DELETE", target)
        assert 400 <= status < 500 or status == 501
        assert [path for path in held if not path.exists()] == []

    @pytest.mark.parametrize("name", ["..", "../..", "%2e%2e", ".", "", "/etc", None, 7])
    def test_h5_ollamas_delete_takes_no_name_for_a_path(self, ring: RealCluster, name: object) -> None:
        answer = httpx.request("DELETE", f"{ring[0].url}/api/delete", json={"model": name, "name": name})
        assert 400 <= answer.status_code < 500 or answer.status_code == 501
        assert isinstance(answer.json()["error"], str)
        assert ring.wait_until_ready(MODEL)


def is_passing(path: Path) -> bool:
    """Whether a file may go by itself: a draft on its way to its name."""
    return path.suffix not in (".json", ".safetensors", ".log", "")


class TestH8Bodies:
    def post(self, ring: RealCluster, content: Any, **headers: str) -> httpx.Response:
        kind = {"content-type": "application/json"}
        return httpx.post(ring[0].url + PATHS["chat"], content=content, headers=kind | headers, timeout=60)

    @pytest.mark.parametrize(
        ("packing", "cut", "status"), [("gzip", None, 200), ("gzip", -9, 400), ("zstd", None, 415), ("br", None, 415)]
    )
    def test_h8_gzip_is_read_and_other_packings_are_refused(
        self, ring: RealCluster, packing: str, cut: int | None, status: int
    ) -> None:
        packed = gzip.compress(json.dumps(question()).encode())[:cut]
        answer = self.post(ring, packed, **{"content-encoding": packing})
        assert answer.status_code == status, answer.text
        assert "error" in answer.json() or text_of("chat", answer.json()) == ANSWER

    def test_h8_a_large_body_is_taken(self, ring: RealCluster) -> None:
        large = question(metadata={"picture": "x" * (25 << 20)})
        assert text_of("chat", self.post(ring, json.dumps(large).encode()).json()) == ANSWER

    def test_h8_what_is_too_large_packed_or_in_chunks_is_stopped_while_it_grows(self, ring: RealCluster) -> None:
        bomb = gzip.compress(bytes(1 << 30), compresslevel=1)
        with watched_memory(ring[0].running.pid) as most:
            answers = [
                self.post(ring, bomb, **{"content-encoding": "gzip"}),
                self.post(ring, (bytes(1 << 20) for _ in range(200))),
            ]
        for answer in answers:
            assert answer.status_code == 413
            assert answer.json()["error"]["code"] == "request_too_large"
        assert most[0] < 400 << 20, "more than what a body may have, and a copy of it"


@contextmanager
def watched_memory(pid: int) -> Generator[list[int]]:
    """The most bytes that the process has held at any look above what it held first."""
    process, ended = psutil.Process(pid), threading.Event()
    first, most = process.memory_info().rss, [0]

    def look() -> None:
        while not ended.wait(0.02):
            most[0] = max(most[0], process.memory_info().rss - first)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()


@every_dialect
@pytest.mark.parametrize("prompt", [FIVE_MB, "Well?", "poison"], ids=["too long", "answered", "failed by a stage"])
def test_a_request_of_five_megabytes_leaves_next_to_nothing_in_the_logs(
    ring: RealCluster, dialect: str, prompt: str
) -> None:
    """At debug level, in the log of the node that is asked and of the other one, which hold those of their stages, too."""
    for node in ring.nodes:
        before = [len(each.log) for each in ring.nodes]
        asked = question(dialect, prompt, tools=[large_tool(dialect)])
        answer = httpx.post(node.url + PATHS[dialect], json=asked, timeout=60)
        assert (answer.status_code == 200) is (prompt == "Well?")
        httpx.get(f"{node.url}/health")
        grown = [len(each.log) - start for each, start in zip(ring.nodes, before, strict=True)]
        assert max(grown) < 3000, [each.log[start:] for each, start in zip(ring.nodes, before, strict=True)]


def large_tool(dialect: str) -> dict[str, Any]:
    tool = {"name": "ship", "description": FIVE_MB}
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    match dialect:
        case "claude":
            return tool | {"input_schema": schema}
        case "responses":
            return tool | {"type": "function", "parameters": schema}
        case _:
            return {"type": "function", "function": tool | {"parameters": schema}}
