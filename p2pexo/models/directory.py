"""An mlx-lm model directory: its config, its weight files, and whether they are all there.

Nothing is loaded: the tensors' names, types and sizes come from the headers of the safetensors files, which are JSON.
"""

import json
import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from attrs import frozen

from p2pexo.models.architectures import ARCHITECTURES, text_config

_MAX_HEADER_BYTES = 100 * 1024 * 1024
"""The format's own limit."""

_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
"""By dtype; all others take one byte."""


class ModelFilesError(Exception):
    """A model's files are missing, cut short or contradict one another; the message names the file."""


@frozen
class Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * _BYTES.get(self.dtype, 1)


@frozen(slots=False)
class ModelDirectory:
    path: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        return read_json(self.path / "config.json")

    @cached_property
    def shards(self) -> tuple[str, ...]:
        """The weight files: those the index names, else the only one. Any other file beside them is not looked at."""
        index = self.path / "model.safetensors.index.json"
        if not index.exists():
            return ("model.safetensors",)
        names = read_json(index).get("weight_map")
        if not isinstance(names, Mapping) or not names:
            raise ModelFilesError(f"{index} has no weight_map")
        return tuple(sorted({_plain_name(index, name) for name in cast(Mapping[str, object], names).values()}))

    def check(self) -> None:
        """Raises ModelFilesError unless all weight files are there, whole, and hold what the index says."""
        _ = self.tensors

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the weight files. Raises ModelFilesError if one is missing or has the wrong length."""
        found = {tensor.name: tensor for shard in self.shards for tensor in _read_header(self.path / shard)}
        self._check_index(found)
        return found

    def _check_index(self, found: Mapping[str, Tensor]) -> None:
        index = self.path / "model.safetensors.index.json"
        if not index.exists():
            return
        for name, shard in cast(dict[str, str], read_json(index)["weight_map"]).items():
            if name not in found or found[name].file != shard:
                raise ModelFilesError(f"{self.path / shard} lacks the tensor {name!r} that the index says it holds")


_CONTEXT_NAMES = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "max_sequence_length",
    "max_context_length",
    "seq_length",
    "model_max_length",
)

_UNTOLD_CONTEXT = 8192
"""Tokens, for architectures of which no more is known than that mlx-lm has them: some, such as Mamba, know no limit and name
none. Raise it and longer texts are taken, whether the model is up to them or not."""


def context_length(config: Mapping[str, Any]) -> int:
    """Tokens, prompt and answer together. Raises ModelFilesError if the config does not say, under any of its names."""
    told = text_config(config)
    named = next((told[name] for name in _CONTEXT_NAMES if name in told), None)
    length = _UNTOLD_CONTEXT if named is None and config.get("model_type") not in ARCHITECTURES else named
    if not isinstance(length, int) or length < 1:
        raise ModelFilesError(
            f"config.json says max_position_embeddings is {length!r}; a model needs a positive number there"
        )
    return length


def read_json(path: Path) -> dict[str, Any]:
    """Raises ModelFilesError when the file is missing or not a JSON object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelFilesError(f"{path} is missing") from error
    except (ValueError, OSError) as error:
        raise ModelFilesError(f"{path} can't be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFilesError(f"{path} is not a JSON object")
    return cast(dict[str, Any], value)


def _plain_name(index: Path, name: object) -> str:
    if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
        raise ModelFilesError(f"{index} names {name!r}, which is not a safetensors file beside it")
    return name


def _read_header(path: Path) -> list[Tensor]:
    header, start = _header(path)
    tensors: list[Tensor] = []
    end = start
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            tensors.append(Tensor(name, str(entry["dtype"]), tuple(map(int, entry["shape"])), path.name))
            end = max(end, start + int(entry["data_offsets"][1]))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ModelFilesError(f"{path} has a broken header: {name!r} is {entry!r}") from error
    size = path.stat().st_size
    if size != end:
        raise ModelFilesError(f"{path} has {size} bytes instead of {end}; fetch it again")
    return tensors


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The JSON header of a safetensors file and the offset of the data behind it."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            text = file.read(length) if length <= _MAX_HEADER_BYTES else b""
    except FileNotFoundError as error:
        raise ModelFilesError(f"{path} is missing; the model is not complete") from error
    try:
        header = json.loads(text)
    except ValueError as error:
        raise ModelFilesError(f"{path} is cut short or no safetensors file: its header can't be read") from error
    if len(text) != length or not isinstance(header, dict):
        raise ModelFilesError(f"{path} is cut short or no safetensors file: its header can't be read")
    return cast(dict[str, Any], header), 8 + length
