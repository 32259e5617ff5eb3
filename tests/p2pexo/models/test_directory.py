import json
import struct
from pathlib import Path
from typing import Any

import pytest

from p2pexo.models.directory import ModelDirectory, ModelFilesError


def write_shard(path: Path, **shapes: tuple[int, ...]) -> None:
    """A safetensors file of fp32 zeros."""
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    end = 0
    for name, shape in shapes.items():
        size = 4
        for side in shape:
            size *= side
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two shards and their index."""
    write_shard(tmp_path / "model-1.safetensors", a=(2, 3), b=(4,))
    write_shard(tmp_path / "model-2.safetensors", c=(5,))
    weights = {"a": "model-1.safetensors", "b": "model-1.safetensors", "c": "model-2.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def test_the_headers_tell_every_tensor(model: Path) -> None:
    tensors = ModelDirectory(model).tensors
    assert {name: (each.shape, each.nbytes, each.file) for name, each in tensors.items()} == {
        "a": ((2, 3), 24, "model-1.safetensors"),
        "b": ((4,), 16, "model-1.safetensors"),
        "c": ((5,), 20, "model-2.safetensors"),
    }


def test_without_an_index_there_is_one_file(tmp_path: Path) -> None:
    write_shard(tmp_path / "model.safetensors", a=(1,))
    assert list(ModelDirectory(tmp_path).tensors) == ["a"]


def test_a_stray_weight_file_is_not_looked_at(model: Path) -> None:
    (model / "model-9.safetensors").write_bytes(b"rubbish")
    assert len(ModelDirectory(model).tensors) == 3


def broken(model: Path) -> str:
    with pytest.raises(ModelFilesError) as caught:
        ModelDirectory(model).check()
    return str(caught.value)


def test_a_missing_shard_is_named(model: Path) -> None:
    (model / "model-2.safetensors").unlink()
    assert "model-2.safetensors is missing" in broken(model)


@pytest.mark.parametrize("keep", [0, 4, 8, 30, -10, -1])
def test_a_shard_that_is_cut_anywhere_is_named(model: Path, keep: int) -> None:
    shard = model / "model-2.safetensors"
    shard.write_bytes(shard.read_bytes()[:keep])
    assert "model-2.safetensors" in broken(model)


def test_a_shard_that_is_too_long_is_named(model: Path) -> None:
    shard = model / "model-1.safetensors"
    shard.write_bytes(shard.read_bytes() + b"x")
    assert "model-1.safetensors has" in broken(model)


def test_a_tensor_that_the_index_promises_in_vain_is_named(model: Path) -> None:
    write_shard(model / "model-2.safetensors", d=(5,))
    assert "model-2.safetensors lacks the tensor 'c'" in broken(model)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "weights.bin", 5])
def test_an_index_cannot_name_files_elsewhere(model: Path, name: object) -> None:
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    assert repr(name) in broken(model)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"weight_map": {}}', '{"weight_map": 3}'])
def test_an_index_that_makes_no_sense_is_named(model: Path, text: str) -> None:
    (model / "model.safetensors.index.json").write_text(text)
    assert "model.safetensors.index.json" in broken(model)


@pytest.mark.parametrize("entry", [{}, {"dtype": "F32", "shape": "x", "data_offsets": [0, 4]}, 7])
def test_a_header_that_makes_no_sense_is_named(model: Path, entry: object) -> None:
    text = json.dumps({"a": entry}).encode()
    (model / "model-1.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    assert "model-1.safetensors has a broken header" in broken(model)


def test_a_config_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFilesError, match=r"config\.json is missing"):
        assert ModelDirectory(tmp_path).config
