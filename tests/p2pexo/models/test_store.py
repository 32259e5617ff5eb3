import json
import shutil
import threading
from pathlib import Path

import pytest
from attrs import evolve

from p2pexo.generation.errors import InvalidRequestError, ModelNotFoundError
from p2pexo.models.card import Card
from p2pexo.models.catalogue import EMBEDDED
from p2pexo.models.describe import describe
from p2pexo.models.directory import ModelDirectory, ModelFilesError, Tensor
from p2pexo.models.hub import Hub
from p2pexo.models.store import Progress, Store


def test_a_new_store_knows_the_embedded_model_and_holds_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.cards() == (EMBEDDED,)
    assert store.held() == ()
    assert store.catalogue.resolve("smollm2-135m-instruct") is EMBEDDED
    assert list(tmp_path.iterdir()) == []


def test_the_embedded_models_card_is_that_of_its_files(imported: Path) -> None:
    files = ModelDirectory(imported)
    card = describe(
        files.config,
        files.tensors,
        id=EMBEDDED.id,
        revision=EMBEDDED.revision,
        source=EMBEDDED.source,
        description=EMBEDDED.description,
    )
    assert card == EMBEDDED


def test_fetching_makes_a_model_held_also_for_the_next_start(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shares: list[float] = []
    directory = store.fetch(EMBEDDED, shares.append)
    assert shares[-1] == 1.0
    assert (directory / "model.safetensors").is_file()
    assert store.held() == (EMBEDDED.id,)
    assert Store(tmp_path).held() == (EMBEDDED.id,)
    assert store.fetch(EMBEDDED) == directory


def test_fetches_at_once_end_with_one_directory(tmp_path: Path) -> None:
    stores = [Store(tmp_path), Store(tmp_path)]
    threads = [threading.Thread(target=store.fetch, args=(EMBEDDED,)) for store in stores for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (directory,) = (tmp_path / "models").iterdir()
    assert ModelDirectory(directory).tensors
    assert not list(directory.glob("*.json.*"))
    assert [store.held() for store in stores] == [(EMBEDDED.id,)] * 2


def test_a_slow_fetch_holds_up_no_other_model(tmp_path: Path, imported: Path) -> None:
    slow_began, other_is_there = threading.Event(), threading.Event()

    class SlowHub(Hub):
        def download(self, card: Card, directory: Path, progress: Progress) -> None:
            if card.id == "owner/slow":
                slow_began.set()
                assert other_is_there.wait(30)
            shutil.copytree(imported, directory)

    store = Store(tmp_path, hub=SlowHub())
    slow = threading.Thread(target=store.fetch, args=(evolve(EMBEDDED, id="owner/slow", source="hub"),))
    slow.start()
    assert slow_began.wait(30)
    store.fetch(evolve(EMBEDDED, id="owner/other", source="hub"))
    other_is_there.set()
    slow.join()
    assert {"owner/slow", "owner/other"} <= set(store.held())


def test_what_progress_raises_ends_the_fetch_and_the_next_one_succeeds(tmp_path: Path) -> None:
    def refuse(share: float) -> None:
        raise KeyError("nobody waits")

    store = Store(tmp_path)
    with pytest.raises(KeyError):
        store.fetch(EMBEDDED, refuse)
    assert store.held() == ()
    store.fetch(EMBEDDED)


def test_a_folder_without_a_card_is_not_held_and_one_with_a_broken_card_is_fetched_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    directory = store.fetch(EMBEDDED)
    (directory / "p2pexo-card.json").write_text("{")
    assert Store(tmp_path).held() == ()
    assert Store(tmp_path).fetch(EMBEDDED) == directory


@pytest.fixture
def local(imported: Path, tmp_path: Path) -> Path:
    """A user's copy of the model, with half the context."""
    directory = tmp_path / "My model, short"
    shutil.copytree(imported, directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 512}))
    return directory


def test_a_users_directory_is_offered_by_its_name_and_used_in_place(local: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "cache", [local])
    card = store.catalogue.resolve("my-model-short")
    assert (card.id, card.context_length, card.layers) == ("local/My-model-short", 512, 30)
    assert store.held() == (card.id,)
    assert store.fetch(card) == local.resolve() == store.directory(card)


def test_an_incomplete_directory_is_refused_at_once_by_the_file(local: Path, tmp_path: Path) -> None:
    (local / "model.safetensors").unlink()
    with pytest.raises(ModelFilesError, match=r"model\.safetensors is missing"):
        Store(tmp_path / "cache", [local])


def test_two_directories_of_one_name_are_refused(local: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFilesError, match="same name"):
        Store(tmp_path / "cache", [local, local])


def test_another_machines_directory_cannot_be_fetched_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    card = evolve(EMBEDDED, id="local/there", source="directory:/there", revision="local")
    with pytest.raises(ModelFilesError, match="--model-dir PATH"):
        Store(tmp_path).fetch(card)


@pytest.mark.parametrize("id", ["..", "../..", "%2e%2e", ".", "", "/etc", "a/../b"])
def test_a_name_never_becomes_a_path(tmp_path: Path, id: str) -> None:
    canary = tmp_path / "canary"
    canary.write_text("alive")
    store = Store(tmp_path / "cache")
    with pytest.raises(ModelNotFoundError):
        store.catalogue.resolve(id)
    with pytest.raises(InvalidRequestError):
        store.look_up(id)
    for card in (evolve(EMBEDDED, id=id), evolve(EMBEDDED, revision=f"x/{id}")):
        with pytest.raises(InvalidRequestError):
            store.fetch(card)
    assert canary.read_text() == "alive"


def test_a_card_counts_what_sits_where() -> None:
    shapes = {
        "model.embed_tokens.weight": ("BF16", (100, 8)),
        "model.layers.0.mlp.weight": ("BF16", (8, 8)),
        "model.layers.1.mlp.weight": ("BF16", (8, 16)),
        "model.norm.weight": ("BF16", (8,)),
        "lm_head.weight": ("BF16", (100, 8)),
    }
    tensors = {name: Tensor(name, dtype, shape, "model.safetensors") for name, (dtype, shape) in shapes.items()}
    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
    }
    card = describe(config, tensors, id="a/b", revision="r", source="hub")
    assert (card.layer_bytes, card.embedding_bytes, card.head_bytes) == (256, 1600, 1616)
    assert (card.kv_bytes_per_token, card.dense_factor, card.context_length) == (64, 2.0, 64)


@pytest.mark.parametrize(
    "missing", ["num_hidden_layers", "hidden_size", "num_attention_heads", "max_position_embeddings"]
)
def test_a_config_without_what_placing_needs_is_refused_by_the_name(missing: str) -> None:
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "max_position_embeddings")
    config = {"model_type": "llama", **{name: 8 for name in names if name != missing}}
    with pytest.raises(ModelFilesError, match=missing):
        describe(config, {}, id="a/b", revision="r", source="hub")
