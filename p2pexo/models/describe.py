"""Makes a model's card from its config and the headers of its weight files."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from p2pexo.models.architectures import SEES_KEY
from p2pexo.models.card import Card
from p2pexo.models.directory import ModelFilesError, Tensor, context_length

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_EMBEDDING = re.compile(r"(?:^|\.)embed_tokens\.")
_FP32_BYTES = 4


def describe(
    config: Mapping[str, Any],
    named: Mapping[str, Tensor],
    *,
    id: str,
    revision: str,
    source: str,
    description: str = "",
) -> Card:
    """``named``: all tensors of the weight files by name. Raises ModelFilesError when the config lacks what placing needs."""
    tensors = named.values()
    layers = _integer(config, "num_hidden_layers")
    embedding = sum(each.nbytes for each in tensors if _EMBEDDING.search(each.name))
    head = sum(each.nbytes for each in tensors if not _EMBEDDING.search(each.name) and not _LAYER.search(each.name))
    tied = not any(each.name.startswith("lm_head.") for each in tensors)
    return Card(
        id=id,
        revision=revision,
        architecture=str(config.get("model_type", "unknown")),
        layers=layers,
        hidden_size=_integer(config, "hidden_size"),
        context_length=context_length(config),
        layer_bytes=max(_by_layer(tensors).values(), default=0),
        embedding_bytes=embedding,
        head_bytes=head + (embedding if tied else 0),
        kv_bytes_per_token=_kv_bytes(config),
        dense_factor=_dense_factor(named, config.get("quantization") or {}),
        description=description,
        source=source,
        sees=config.get(SEES_KEY) is True,
    )


def _integer(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or value < 1:
        raise ModelFilesError(f"config.json says {name} is {value!r}; a model needs a positive number there")
    return value


def _by_layer(tensors: Iterable[Tensor]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for tensor in tensors:
        if match := _LAYER.search(tensor.name):
            sizes[match[1]] = sizes.get(match[1], 0) + tensor.nbytes
    return sizes


def _kv_bytes(config: Mapping[str, Any]) -> int:
    """Keys and values of one layer, counted in fp32: the widest that any machine computes in."""
    heads = _integer(config, "num_attention_heads")
    kv_heads: int = config.get("num_key_value_heads") or heads
    head_size: int = config.get("head_dim") or _integer(config, "hidden_size") // heads
    return 2 * kv_heads * head_size * _FP32_BYTES


def _dense_factor(named: Mapping[str, Tensor], quantization: Mapping[str, Any]) -> float:
    """How much larger the layers are in dense fp32. The embedding may be packed less tightly; the layers are the most."""
    layers = [tensor for tensor in named.values() if _LAYER.search(tensor.name)]
    stored = sum(tensor.nbytes for tensor in layers)
    dense = _FP32_BYTES * sum(_values(tensor, named, quantization) for tensor in layers)
    return round(dense / stored, 3) if stored else 1.0


def _values(tensor: Tensor, named: Mapping[str, Tensor], quantization: Mapping[str, Any]) -> int:
    """Weights that a tensor stands for: a packed one has as many as its scales say, the scales themselves none."""
    module, _, kind = tensor.name.rpartition(".")
    scales = named.get(f"{module}.scales")
    if scales is None:
        return math.prod(tensor.shape)
    if kind != "weight":
        return 0
    override = quantization.get(module)
    layout = cast(Mapping[str, Any], override) if isinstance(override, Mapping) else quantization
    return math.prod(scales.shape) * int(layout.get("group_size", 64))
