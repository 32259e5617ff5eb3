"""Models that requests loaded and that leave when idle, on a real node."""

import threading
from datetime import UTC, datetime

import httpx
import ollama
import pytest
from end_to_end.cluster import RealCluster, wait_for
from end_to_end.scripted import MODEL, scripted_nodes

from p2pexo.ring.scripted import Line, Script

SCRIPT = Script(context_length=4096, says=(Line("slowly", "one word after another " * 20), Line("", "Yes.")))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory):
    with scripted_nodes(tmp_path_factory.mktemp("idle-models"), 1, SCRIPT, ("--keep-alive", "10m")) as cluster:
        yield cluster


def client(cluster: RealCluster) -> ollama.Client:
    return ollama.Client(cluster[0].url, timeout=60)


def is_gone(cluster: RealCluster) -> bool:
    return cluster[0].placement(MODEL) is None and not client(cluster).ps().models


def test_o1_a_loaded_model_leaves_after_its_keep_alive(node: RealCluster):
    assert client(node).generate(MODEL).done_reason == "load"
    (shown,) = client(node).ps().models
    assert shown.expires_at
    left = (shown.expires_at - datetime.now(UTC)).total_seconds()
    assert 500 < left <= 601, "the setting of the node is what holds without a keep_alive"
    assert client(node).chat(MODEL, [{"role": "user", "content": "Hi"}], keep_alive=1).message.content == "Yes."
    wait_for("the model has left", lambda: is_gone(node))
    wait_for("its process has ended", lambda: not any("stage" in " ".join(p.cmdline()) for p in node[0].children()))


def test_o1_a_model_with_an_endless_keep_alive_stays_until_it_is_unloaded(node: RealCluster):
    assert client(node).generate(MODEL, keep_alive=-1).done_reason == "load"
    wait_for(
        "it stays for ever", lambda: [m.expires_at and m.expires_at.year for m in client(node).ps().models] == [9999]
    )
    assert client(node).chat(MODEL, [], keep_alive=0).done_reason == "unload"
    assert is_gone(node)


def test_o1_a_keep_alive_of_nothing_answers_and_then_unloads(node: RealCluster):
    reply = client(node).generate(MODEL, "Are you there?", keep_alive=0)
    assert (reply.response, reply.done_reason) == ("Yes.", "stop")
    wait_for("the model has left", lambda: is_gone(node))


def test_o1_an_unload_ends_nobodys_answer(node: RealCluster):
    texts: list[str] = []

    def listen() -> None:
        stream = client(node).generate(MODEL, "slowly", stream=True)
        texts.extend(part.response or "" for part in stream)

    listener = threading.Thread(target=listen)
    listener.start()
    wait_for("the answer has begun", lambda: texts)
    assert client(node).generate(MODEL, keep_alive=0).done_reason == "unload"
    listener.join(60)
    assert "".join(texts).strip() == ("one word after another " * 20).strip()
    wait_for("the model has left", lambda: is_gone(node))


def test_requests_on_the_heels_of_an_unload_are_answered(node: RealCluster):
    for _ in range(3):
        body = {"model": MODEL, "prompt": "Hi", "stream": False, "keep_alive": 0}
        assert httpx.post(f"{node[0].url}/api/generate", json=body, timeout=60).json()["response"] == "Yes."
    wait_for("the model has left", lambda: is_gone(node))
