"""Pictures on real nodes, from each dialect to the engine of stage 0, with an engine that tells what it was shown.

No model that can run here sees yet, so the scripted engine stands in for one.
"""

import json
import threading
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from end_to_end.cluster import RealCluster, RealNode, real_cluster
from end_to_end.dialects import DIALECTS, PATHS, text_of, told

from p2pexo.api.pictures import picture_of
from p2pexo.ring.scripted import Line, Script, sight_of

MODEL = "local/seer"
PNG = b"\x89PNG\r\n\x1a\n" + Random(7).randbytes(3_800_000)
PNG64 = b64encode(PNG).decode()
"""Some 5 MB."""
SIGHT = sight_of(picture_of(PNG, PNG64))
SEEN, NOT_SEEN = "I see it.", "I see nothing."


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Generator[RealCluster]:
    folder = tmp_path_factory.mktemp("seeing-nodes")
    model = folder / "seer"
    model.mkdir()
    Script(sees=True, says=(Line(f"{SIGHT}What is it?", SEEN), Line("", NOT_SEEN))).write(model)
    arguments = ("--engine", "scripted", "--model-dir", str(model), "--cache", str(folder / "cache"))
    with real_cluster(folder, 2, (*arguments, "--log-level", "debug")) as cluster:
        cluster.place(MODEL, min_stages=2)
        yield cluster


def asked(dialect: str, picture: str, stream: bool = False) -> dict[str, Any]:
    """What is it? ``picture``: an address, or base64."""
    is_address = picture.startswith("http")
    url = picture if is_address else f"data:image/png;base64,{picture}"
    body: dict[str, Any] = {"model": MODEL, "stream": stream}
    match dialect:
        case "chat":
            parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is it?"}]
        case "responses":
            parts = [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "What is it?"}]
            return body | {"input": [{"role": "user", "content": parts}]}
        case "claude":
            data = {"type": "base64", "media_type": "image/png", "data": picture}
            source = {"type": "url", "url": picture} if is_address else data
            parts = [{"type": "image", "source": source}, {"type": "text", "text": "What is it?"}]
            body |= {"max_tokens": 100}
        case _:
            return body | {"messages": [{"role": "user", "content": "What is it?", "images": [picture]}]}
    return body | {"messages": [{"role": "user", "content": parts}]}


def post(node: RealNode, dialect: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(node.url + PATHS[dialect], json=body, timeout=60)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_picture_of_5_mb_reaches_the_engine_whole(nodes: RealCluster, dialect: str, number: int) -> None:
    answer = post(nodes[number], dialect, asked(dialect, PNG64))
    assert answer.status_code == 200, answer.text
    assert text_of(dialect, answer.json()) == SEEN
    assert told(dialect, post(nodes[number], dialect, asked(dialect, PNG64, stream=True)).text).text == SEEN


def test_a_request_of_5_mb_leaves_less_than_2_kb_in_a_log_at_debug_level(nodes: RealCluster) -> None:
    before = len(nodes[0].log)
    assert post(nodes[0], "chat", asked("chat", PNG64)).status_code == 200
    told = nodes[0].log[before:]
    (line,) = [line for line in told.splitlines() if "a request goes to its ring" in line]
    assert len(line.encode()) < 2000
    assert f"Picture('{PNG64[:10]}'…)" in line
    assert PNG64[:11] not in told
    assert max(len(line) for line in told.splitlines()) < 2000


@contextmanager
def listening() -> Generator[tuple[str, list[str]]]:
    """The address of a picture on this machine, and what was asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(PNG)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/x.png", paths
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_h3_a_picture_in_here_is_not_fetched_for_anyone(nodes: RealCluster, dialect: str) -> None:
    with listening() as (address, paths):
        for forbidden in (address, address.replace("127.0.0.1", "localhost"), "http://169.254.169.254/"):
            answer = post(nodes[0], dialect, asked(dialect, forbidden))
            assert answer.status_code == 400
            assert "not on the public internet" in answer.json()["error"]["message"]
        assert paths == []


def test_h3_a_file_is_no_address(nodes: RealCluster) -> None:
    host = Path("/etc/hostname").read_text() if Path("/etc/hostname").exists() else ""
    for dialect in ("chat", "responses", "claude"):
        body = json.dumps(asked(dialect, "http://x")).replace("http://x", "file:///etc/hostname")
        answer = post(nodes[0], dialect, json.loads(body))
        assert answer.status_code == 400
        assert not host or host.strip() not in answer.text


def test_claude_goes_on_without_a_picture_that_cant_be_fetched(nodes: RealCluster) -> None:
    with listening() as (address, paths):
        before = len(nodes[0].log)
        answer = post(nodes[0], "claude", asked("claude", address))
        assert answer.status_code == 200
        assert text_of("claude", answer.json()) == NOT_SEEN
        assert paths == []
    told = nodes[0].log[before:]
    assert "a picture is left out" in told
    assert "Traceback (most recent call last)" in told
    assert "PictureFetchError" in told
