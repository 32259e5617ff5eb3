"""What the caches of a model take, layer by layer, told from its config as mlx-lm makes them. Counted in fp32: the
widest that any machine computes in."""

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

from attrs import frozen

from p2pexo.models.architectures import ARCHITECTURES, Caching, text_config
from p2pexo.models.directory import ModelFilesError

_FP32_BYTES = 4


@frozen
class CacheSizes:
    token_bytes: int
    """Of one token in one layer that keeps every token."""
    limits: tuple[int, ...]
    """By layer: the tokens beyond which its cache grows no more, 0 if it always grows. A state of fixed size counts as
    the tokens that would take as much."""


def cache_sizes(config: Mapping[str, Any]) -> CacheSizes:
    """Raises ModelFilesError when the config lacks what it takes."""
    told = text_config(config)
    known = ARCHITECTURES.get(str(config.get("model_type")))
    caching = known.caching if known else Caching.PLAIN
    token_bytes = _FP32_BYTES * _VALUES.get(caching, _values)(told)
    limit = _LIMITS[caching](told, token_bytes)
    return CacheSizes(token_bytes, tuple(limit(layer) for layer in range(positive(told, "num_hidden_layers"))))


def positive(config: Mapping[str, Any], name: str) -> int:
    """Raises ModelFilesError unless the config says a whole number above 0."""
    value = config.get(name)
    if not isinstance(value, int) or value < 1:
        raise ModelFilesError(f"config.json says {name} is {value!r}; a model needs a positive number there")
    return value


def _values(config: Mapping[str, Any]) -> int:
    """Keys and values of one token."""
    heads = positive(config, "num_attention_heads")
    kv_heads: int = config.get("num_key_value_heads") or heads
    head_size: int = config.get("head_dim") or positive(config, "hidden_size") // heads
    return 2 * kv_heads * head_size


def _latent_values(config: Mapping[str, Any]) -> int:
    """What keys and values are made from."""
    return positive(config, "kv_lora_rank") + positive(config, "qk_rope_head_dim")


def _indexed_values(config: Mapping[str, Any]) -> int:
    """mlx-lm leaves room for values beside the keys of the index."""
    return _latent_values(config) + 2 * positive(config, "index_head_dim")


def _global_values(config: Mapping[str, Any]) -> int:
    """Of the layers that keep every token."""
    shared = config.get("num_global_key_value_heads") if config.get("attention_k_eq_v") else None
    return 2 * int(shared or positive(config, "num_key_value_heads")) * positive(config, "global_head_dim")


_VALUES = {Caching.TWO_WIDTHS: _global_values, Caching.LATENT: _latent_values, Caching.INDEXED: _indexed_values}

_Limit = Callable[[int], int]
"""Of the cache of a layer."""


def _grows(config: Mapping[str, Any], token_bytes: int) -> _Limit:
    return lambda layer: 0


def _by_layer_types(config: Mapping[str, Any], token_bytes: int) -> _Limit:
    told = config.get("layer_types")
    kinds = cast(list[str], told) if isinstance(told, list) else None
    window = int(config.get("sliding_window") or 0)
    return lambda layer: window if kinds is not None and kinds[layer] == "sliding_attention" else 0


def _in_turns(config: Mapping[str, Any], token_bytes: int) -> _Limit:
    """As gpt-oss has them, unless it says otherwise."""
    if config.get("layer_types"):
        return _by_layer_types(config, token_bytes)
    window = int(config.get("sliding_window") or 128)
    return lambda layer: window if layer % 2 == 0 else 0


def _every_nth_is_global(config: Mapping[str, Any], token_bytes: int) -> _Limit:
    every, window = int(config.get("sliding_window_pattern") or 6), int(config.get("sliding_window") or 512)
    return lambda layer: 0 if (layer + 1) % every == 0 else window


def _two_widths(config: Mapping[str, Any], token_bytes: int) -> _Limit:
    """Every fifth layer keeps every token, unless the config says otherwise."""
    window_bytes = positive(config, "sliding_window") * _values(config) * _FP32_BYTES
    tokens = math.ceil(window_bytes / token_bytes)
    kinds = cast(list[str] | None, config.get("layer_types"))
    every = int(config.get("sliding_window_pattern") or 5)
    return lambda layer: 0 if (kinds[layer] == "full_attention" if kinds else (layer + 1) % every == 0) else tokens


def _chunks(config: Mapping[str, Any], token_bytes: int) -> _Limit:
    chunk = positive(config, "attention_chunk_size")
    return lambda layer: 0 if (layer + 1) % 4 == 0 else chunk


def _linear(config: Mapping[str, Any], token_bytes: int) -> _Limit:
    """A state of each head, and the last inputs of the convolution before it."""
    heads, width = positive(config, "linear_num_value_heads"), positive(config, "linear_value_head_dim")
    keys, key_width = positive(config, "linear_num_key_heads"), positive(config, "linear_key_head_dim")
    state = heads * width * key_width
    inputs = (positive(config, "linear_conv_kernel_dim") - 1) * (2 * keys * key_width + heads * width)
    every = int(config.get("full_attention_interval") or 4)
    tokens = math.ceil(_FP32_BYTES * (state + inputs) / token_bytes)
    return lambda layer: 0 if (layer + 1) % every == 0 else tokens


_LIMITS: dict[Caching, Callable[[Mapping[str, Any], int], _Limit]] = {
    Caching.PLAIN: _grows,
    Caching.LATENT: _grows,
    Caching.INDEXED: _grows,
    Caching.LAYER_TYPES: _by_layer_types,
    Caching.TURNS: _in_turns,
    Caching.NTH_GLOBAL: _every_nth_is_global,
    Caching.TWO_WIDTHS: _two_widths,
    Caching.CHUNKS: _chunks,
    Caching.LINEAR: _linear,
}
