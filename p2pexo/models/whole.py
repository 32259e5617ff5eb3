"""The card of a model that can't be cut into stages: it counts as a single layer, told from its files and its config.

Architectures call the same things by different names; what none of the known names says is estimated, rather too large.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from p2pexo.models.architectures import text_config
from p2pexo.models.directory import ModelFilesError

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")
_WIDTH = ("hidden_size", "n_embd", "d_model", "model_dim", "hidden_dim", "dim")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "num_query_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads")
_HEAD_WIDTH = ("head_dim", "kv_channels")
_EXPANDED = ("deepseek_v2", "minicpm3", "youtu_llm")
"""Of the models that make keys and values from a compressed form, those of which mlx-lm keeps keys and values."""
_FP32_BYTES = 4


def width(config: Mapping[str, Any]) -> int:
    """Of its hidden states. Raises ModelFilesError."""
    return _needed(text_config(config), _WIDTH)


def cache_bytes_per_token(config: Mapping[str, Any]) -> int:
    """In fp32, as if all layers kept something of every token. Raises ModelFilesError."""
    told = text_config(config)
    values = _latent_values(told) if told.get("kv_lora_rank") else _values(told)
    return _FP32_BYTES * _needed(told, _LAYERS) * values


def _values(told: Mapping[str, Any]) -> int:
    """Keys and values of one token in one layer."""
    heads = _said(told, _HEADS) or 1
    kv_heads = _said(told, _KV_HEADS) or heads
    head_width = _said(told, _HEAD_WIDTH) or _needed(told, _WIDTH) // heads
    return 2 * kv_heads * head_width


def _latent_values(told: Mapping[str, Any]) -> int:
    """What keys and values are made from; twice that, as some have two attentions in a layer."""
    rotated = _said(told, ("qk_rope_head_dim",)) or 0
    if told.get("model_type") not in _EXPANDED:
        return 2 * (_needed(told, ("kv_lora_rank",)) + rotated)
    heads = _needed(told, _HEADS)
    value_width = _said(told, ("v_head_dim",)) or _needed(told, _WIDTH) // heads
    return heads * (_needed(told, ("qk_nope_head_dim",)) + rotated + value_width)


def _needed(config: Mapping[str, Any], names: Iterable[str]) -> int:
    value = _said(config, names)
    if value is None:
        raise ModelFilesError(f"config.json says none of {', '.join(names)}; a model needs one of them")
    return value


def _said(config: Mapping[str, Any], names: Iterable[str]) -> int | None:
    """The first number above 0 that goes by one of these names; the largest, if it is told by layer."""
    values = (_largest(config.get(name)) for name in names)
    return next((value for value in values if value > 0), None)


def _largest(value: object) -> int:
    if isinstance(value, list):
        return max(map(_largest, cast(list[object], value)), default=0)
    return value if isinstance(value, int) else 0
