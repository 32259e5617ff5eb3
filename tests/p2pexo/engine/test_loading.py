"""Files that are missing, cut or wrong: loading fails at once, and names the file."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from p2pexo.engine.stage import StageEngine
from p2pexo.models.directory import ModelFilesError


@pytest.fixture
def sharded(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny model in two shards: layers 0 and 1 with the embedding, and the rest."""
    weights: Any = mx.load(str(tiny_model / "model.safetensors"))
    late = {name: each for name, each in weights.items() if ".layers.2." in name or ".layers.3." in name}
    early = {name: each for name, each in weights.items() if name not in late}
    places: dict[str, str] = {}
    for file, part in {"model-1.safetensors": early, "model-2.safetensors": late}.items():
        mx.save_safetensors(str(tmp_path / file), part)
        places |= dict.fromkeys(part, file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    shutil.copy(tiny_model / "config.json", tmp_path)
    return tmp_path


def load(directory: Path, first: int = 0, end: int = 4) -> StageEngine:
    return StageEngine.load(directory, first_layer=first, end_layer=end)


def cut(keep: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda shard: shard.write_bytes(keep(shard.read_bytes()))


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        cut(lambda data: data[:-1]),
        cut(lambda data: data[: len(data) // 2]),
        cut(lambda data: b""),
    ],
    ids=["missing", "cut by a byte", "cut in half", "empty"],
)
@pytest.mark.parametrize("layers", [(0, 4), (0, 2), (2, 4)])
def test_a_damaged_shard_stops_every_stage_and_is_named(sharded: Path, damage, layers: tuple[int, int]) -> None:
    damage(sharded / "model-2.safetensors")
    with pytest.raises(ModelFilesError, match=r"model-2\.safetensors"):
        load(sharded, *layers)


def test_a_stray_weight_file_changes_nothing(sharded: Path) -> None:
    expected = load(sharded).weight_bytes
    shutil.copy(sharded / "model-1.safetensors", sharded / "model-3.safetensors")
    (sharded / "model.safetensors").write_bytes(b"half a download")
    assert load(sharded).weight_bytes == expected


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"intermediate_size": 97}, r"model-1\.safetensors.*mlp.*97"),
        ({"vocab_size": 321}, r"model-1\.safetensors.*embed_tokens.*321"),
        ({"num_hidden_layers": 5}, r"layers\.4\."),
    ],
)
def test_a_config_that_does_not_fit_the_weights_is_refused(sharded: Path, change: dict[str, int], named: str) -> None:
    config = json.loads((sharded / "config.json").read_text())
    (sharded / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(ModelFilesError, match=named):
        load(sharded, 0, config["num_hidden_layers"] + (1 if "num_hidden_layers" in change else 0))


def test_a_stage_process_stays_light() -> None:
    heavy = ("transformers", "numpy", "torch", "huggingface_hub", "trio", "libp2p")
    code = f"import sys, p2pexo.engine.stage, p2pexo.engine.text; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_stage_takes_the_memory_of_its_layers(real_model: Path) -> None:
    code = (
        "import sys, psutil, pathlib; from p2pexo.engine.stage import StageEngine\n"
        "before = psutil.Process().memory_info().rss\n"
        f"stage = StageEngine.load(pathlib.Path({str(real_model)!r}), first_layer=10, end_layer=20, precision='keep')\n"
        "print(psutil.Process().memory_info().rss - before, stage.weight_bytes)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    added, weights = map(int, done.stdout.split())
    assert weights < 30e6
    assert added < weights + 40e6
