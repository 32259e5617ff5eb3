"""Makes a model's card from its config and the headers of its weight files."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from p2pexo.models.architectures import SEES_KEY, packing, text_config
from p2pexo.models.caches import cache_sizes, positive
from p2pexo.models.card import Card
from p2pexo.models.directory import Tensor, context_length
from p2pexo.models.experts import active_bytes, share_of_experts
from p2pexo.models.support import runs_whole
from p2pexo.models.whole import cache_bytes_per_token, width

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_EMBEDDING = re.compile(r"(?:^|\.)embed_tokens\.")
_HEAD = re.compile(r"(?:^|\.)lm_head\.")
_NOT_OF_TEXT = re.compile(
    r"(?:^|\.)(?:vision_tower|vision_model|vision_embedder|visual|audio_tower|embed_vision|embed_audio|"
    r"multi_modal_projector|mm_projector|mtp)\.|rotary_emb\.inv_freq$"
)
"""Parts that mlx-lm leaves in the files: what would see, what would guess several tokens ahead, what can be computed."""
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
    if runs_whole(config):
        return _describe_whole(config, named, id=id, revision=revision, source=source, description=description)
    told = text_config(config)
    layers = positive(told, "num_hidden_layers")
    tensors = {tensor.name: tensor for tensor in named.values() if _is_used(tensor.name, layers)}
    embedding = sum(each.nbytes for each in tensors.values() if _EMBEDDING.search(each.name))
    head = sum(
        each.nbytes for each in tensors.values() if not _EMBEDDING.search(each.name) and not _LAYER.search(each.name)
    )
    tied = not any(_HEAD.search(name) for name in tensors)
    by_layer = _by_layer(tensors.values(), layers)
    weights = tuple(sum(each.nbytes for each in layer) for layer in by_layer)
    caches = cache_sizes(config)
    return Card(
        id=id,
        revision=revision,
        architecture=str(config.get("model_type", "unknown")),
        layers=layers,
        hidden_size=positive(told, "hidden_size"),
        context_length=context_length(config),
        layer_bytes=max(weights),
        embedding_bytes=embedding,
        head_bytes=head + (embedding if tied else 0),
        kv_bytes_per_token=caches.token_bytes,
        dense_factor=_dense_factor(filter(_is_of_layer, tensors.values()), tensors, packing(config) or {}),
        description=description,
        source=source,
        layer_weights=_unless_alike(weights),
        tied=tied,
        cache_limits=caches.limits if any(caches.limits) else (),
        sees=config.get(SEES_KEY) is True,
        active_weights=_active(by_layer, config),
    )


def _describe_whole(
    config: Mapping[str, Any], named: Mapping[str, Tensor], *, id: str, revision: str, source: str, description: str
) -> Card:
    """Everything that mlx-lm keeps counts as one layer."""
    tensors = {name: tensor for name, tensor in named.items() if not _NOT_OF_TEXT.search(name)}
    return Card(
        id=id,
        revision=revision,
        architecture=str(config.get("model_type", "unknown")),
        layers=1,
        hidden_size=width(config),
        context_length=context_length(config),
        layer_bytes=sum(each.nbytes for each in tensors.values()),
        embedding_bytes=0,
        head_bytes=0,
        kv_bytes_per_token=cache_bytes_per_token(config),
        dense_factor=_dense_factor(tensors.values(), tensors, packing(config) or {}),
        description=description,
        source=source,
        whole=True,
        active_weights=_active([list(tensors.values())], config),
    )


def _is_used(name: str, layers: int) -> bool:
    """Models may have more layers in their files than they say: those that guess several tokens ahead."""
    layer = _LAYER.search(name)
    return not _NOT_OF_TEXT.search(name) and (layer is None or int(layer[1]) < layers)


def _by_layer(tensors: Iterable[Tensor], layers: int) -> list[list[Tensor]]:
    found: list[list[Tensor]] = [[] for _ in range(layers)]
    for tensor in tensors:
        if match := _LAYER.search(tensor.name):
            found[int(match[1])].append(tensor)
    return found


def _active(by_layer: Iterable[Iterable[Tensor]], config: Mapping[str, Any]) -> tuple[int, ...]:
    share = share_of_experts(config)
    return tuple(active_bytes(tensors, share) for tensors in by_layer) if share < 1 else ()


def _unless_alike(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return sizes if len(set(sizes)) > 1 else ()


def _is_of_layer(tensor: Tensor) -> bool:
    return _LAYER.search(tensor.name) is not None


def _dense_factor(counted: Iterable[Tensor], named: Mapping[str, Tensor], quantization: Mapping[str, Any]) -> float:
    """How much larger these are in dense fp32. The embedding may be packed less tightly; the layers are the most."""
    counted = list(counted)
    stored = sum(tensor.nbytes for tensor in counted)
    dense = _FP32_BYTES * sum(_values(tensor, named, quantization) for tensor in counted)
    return round(dense / stored, 3) if stored else 1.0


def _values(tensor: Tensor, named: Mapping[str, Tensor], quantization: Mapping[str, Any]) -> int:
    """Weights that a tensor stands for: a packed one has as many as its scales say, the scales themselves none."""
    if tensor.name.endswith("_blocks"):
        return 2 * math.prod(tensor.shape)
    if tensor.name.endswith("_scales") and tensor.name.removesuffix("scales") + "blocks" in named:
        return 0
    module, _, kind = tensor.name.rpartition(".")
    scales = named.get(f"{module}.scales")
    if scales is None:
        return math.prod(tensor.shape)
    if kind != "weight":
        return 0
    override = quantization.get(module)
    layout = cast(Mapping[str, Any], override) if isinstance(override, Mapping) else quantization
    return math.prod(scales.shape) * int(layout.get("group_size", 64))
