"""Against a small server that speaks as much of the Hub's language as is needed."""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from attrs import define, field
from huggingface_hub.errors import LocalEntryNotFoundError

from p2pexo.generation.errors import InvalidRequestError, ModelNotFoundError, UnavailableError
from p2pexo.models.directory import ModelDirectory, ModelFilesError
from p2pexo.models.hub import Hub, translate
from p2pexo.models.store import Store

REVISION = "a" * 40
CONFIG = {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2}


def shard(name: str) -> bytes:
    header = json.dumps({name: {"dtype": "F32", "shape": [8, 8], "data_offsets": [0, 256]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(256)


@define
class FakeHub:
    files: dict[str, bytes] = field(factory=dict)
    asked: list[str] = field(factory=list)
    url: str = ""

    @property
    def hub(self) -> Hub:
        return Hub(self.url)


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    state = FakeHub(
        {
            "config.json": json.dumps({**CONFIG, "max_position_embeddings": 64}).encode(),
            "model.safetensors": shard("model.layers.0.mlp.weight"),
            "tokenizer.json": b"{}",
            "evil.py": b"raise SystemExit",
            "weights.bin": b"pickle",
        }
    )

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            state.asked.append(path)
            if not path.startswith(("/api/models/owner/model", "/owner/model/")):
                self.answer(404, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})
            elif path.startswith("/api/") and "/tree/" in path:
                files = state.files.items()
                tree = [{"type": "file", "path": name, "size": len(data), "oid": "0" * 40} for name, data in files]
                self.answer(200, json.dumps(tree).encode(), {"Content-Type": "application/json"})
            elif path.startswith("/api/"):
                siblings = [{"rfilename": name} for name in state.files]
                info = {"id": "owner/model", "modelId": "owner/model", "sha": REVISION, "siblings": siblings}
                self.answer(200, json.dumps(info).encode(), {"Content-Type": "application/json"})
            else:
                self.file(path.rpartition("/")[2])

        def file(self, name: str) -> None:
            data = state.files.get(name)
            if data is None:
                self.answer(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": REVISION})
                return
            headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": REVISION}
            span = self.headers.get("Range")
            if span is None:
                self.answer(200, data, headers)
                return
            start, _, end = span.removeprefix("bytes=").partition("-")
            part = data[int(start) : int(end) + 1 if end else None]
            total = f"bytes {start}-{int(start) + len(part) - 1}/{len(data)}"
            self.answer(206, part, {**headers, "Content-Range": total})

        def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        server.shutdown()
        thread.join()


def test_a_card_is_made_from_the_config_and_the_headers_alone(fake: FakeHub) -> None:
    card = fake.hub.look_up("owner/model")
    assert (card.id, card.revision, card.source) == ("owner/model", REVISION, "hub")
    assert (card.layers, card.layer_bytes, card.context_length) == (1, 256, 64)
    assert not any("tokenizer" in path for path in fake.asked)


def test_a_fetched_model_is_complete_and_held_and_brings_no_code(fake: FakeHub, tmp_path: Path) -> None:
    store = Store(tmp_path, hub=fake.hub)
    shares: list[float] = []
    directory = store.fetch(store.look_up("owner/model"), shares.append)
    assert list(ModelDirectory(directory).tensors) == ["model.layers.0.mlp.weight"]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert store.held() == ("owner/model",)
    assert not (directory / "evil.py").exists()
    assert not (directory / "weights.bin").exists()
    asked = len(fake.asked)
    again = Store(tmp_path, hub=fake.hub)
    assert again.fetch(again.catalogue.resolve("MODEL")) == directory
    assert len(fake.asked) == asked


def test_a_request_for_an_unknown_model_asks_nobody(fake: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        Store(tmp_path, hub=fake.hub).catalogue.resolve("owner/model")
    assert fake.asked == []


def test_a_download_that_is_not_complete_is_not_held(fake: FakeHub, tmp_path: Path) -> None:
    store = Store(tmp_path, hub=fake.hub)
    card = store.look_up("owner/model")
    fake.files["model.safetensors"] = fake.files["model.safetensors"][:-1]
    with pytest.raises(ModelFilesError, match=r"model\.safetensors"):
        store.fetch(card)
    assert store.held() == ()


def test_an_unknown_repository_is_not_found(fake: FakeHub) -> None:
    with pytest.raises(ModelNotFoundError, match="'owner/other'"):
        fake.hub.look_up("owner/other")


def test_a_repository_without_safetensors_is_refused(fake: FakeHub) -> None:
    del fake.files["model.safetensors"]
    with pytest.raises(InvalidRequestError, match="'owner/model'"):
        fake.hub.look_up("owner/model")


def config(**changes: object) -> bytes:
    return json.dumps({**CONFIG, "max_position_embeddings": 64, **changes}).encode()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"model_type": "nonesuch", "num_hidden_layers": None},
            r"architecture 'nonesuch'.*supported on several machines are .*llama.*qwen3",
        ),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised by 'gptq'"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
    ],
)
def test_a_model_that_cannot_be_run_is_refused_before_its_weights_are_looked_at(
    fake: FakeHub, changes: dict[str, object], said: str
) -> None:
    fake.files["config.json"] = config(**changes)
    with pytest.raises(InvalidRequestError, match=f"'owner/model'.*{said}") as caught:
        fake.hub.look_up("owner/model")
    assert caught.value.param == "model"
    weights = [path for path in fake.asked if path.endswith(".safetensors")]
    assert not weights or "num_hidden_layers" in said


def test_what_mlx_lm_quantised_is_taken(fake: FakeHub) -> None:
    layout = {"group_size": 64, "bits": 4}
    fake.files["config.json"] = config(quantization=layout, quantization_config=layout)
    assert fake.hub.look_up("owner/model").layers == 1


def test_a_hub_that_cannot_be_reached_is_unavailable() -> None:
    with pytest.raises(UnavailableError, match="'owner/model'"):
        Hub("http://127.0.0.1:9").look_up("owner/model")
    assert isinstance(translate(LocalEntryNotFoundError("no connection"), "owner/model"), UnavailableError)


def test_errors_that_are_not_of_the_hub_are_left_alone() -> None:
    assert translate(KeyError("bug"), "owner/model") is None
