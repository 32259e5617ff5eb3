# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# mlx-lm's models are untyped
"""Configs as they are published: the model that is built from one has as many weights as its makers say.

Weights are lazy, so that even the largest takes no memory here.
"""

import json
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import pytest
from attrs import frozen
from mlx.utils import tree_flatten

from p2pexo.engine.families import build
from p2pexo.models.describe import describe
from p2pexo.models.directory import Tensor

CONFIGS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("published_configs.json").read_text(encoding="utf-8")
)


@frozen
class Expected:
    weights: float
    """Thousands of millions, of the part for text."""
    layers: int
    token_bytes: int
    """Of one layer's cache, in fp32."""
    context: int
    growing: int
    """Layers whose caches keep every token."""


EXPECTED = {
    "GLM-4.5-Air": Expected(106.9, 46, 8192, 131_072, 46),
    "gemma-3-4b": Expected(4.6, 34, 8192, 131_072, 5),
    "gpt-oss-20b": Expected(20.9, 24, 4096, 131_072, 12),
    "DeepSeek-V3": Expected(671.0, 61, 2304, 163_840, 61),
    "Qwen3-30B-A3B": Expected(30.5, 48, 4096, 40_960, 48),
    "Phi-4": Expected(14.7, 40, 10_240, 16_384, 40),
    "Mistral-Small-3.1": Expected(23.6, 40, 8192, 131_072, 40),
    "Qwen3-Next-80B": Expected(79.7, 48, 4096, 262_144, 12),
    "GLM-4-9B-0414": Expected(9.4, 40, 2048, 32_768, 40),
    "Llama-4-Scout": Expected(107.8, 48, 8192, 10_485_760, 12),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_config_makes_the_model_that_it_is_known_as(name: str) -> None:
    family = build(CONFIGS[name])
    arrays = cast(list[tuple[str, mx.array]], tree_flatten(family.model.parameters()))
    card = describe(CONFIGS[name], {}, id="a/b", revision="r", source="hub")
    made = Expected(
        round(sum(each.size for _, each in arrays) / 1e9, 1),
        card.layers,
        card.kv_bytes_per_token,
        card.context_length,
        sum(limit == 0 for limit in card.cache_limits or (0,) * card.layers),
    )
    assert made == EXPECTED[name]
    assert (family.layers_total, family.hidden_size) == (card.layers, card.hidden_size)


ACTIVE = {
    "GLM-4.5-Air": 12.8,
    "gpt-oss-20b": 3.6,
    "DeepSeek-V3": 36.6,
    "Qwen3-30B-A3B": 3.0,
    "Qwen3-Next-80B": 3.6,
    "Llama-4-Scout": 16.1,
    "Phi-4": 14.1,
}
"""Billions of weights that work on a token, the embedding not among them."""


@pytest.mark.parametrize("name", ACTIVE)
def test_a_mixture_of_experts_computes_with_as_many_weights_as_it_is_known_for(name: str) -> None:
    arrays = cast(list[tuple[str, mx.array]], tree_flatten(build(CONFIGS[name]).model.parameters()))
    tensors = {path: Tensor(path, "U8", tuple(each.shape), "model.safetensors") for path, each in arrays}
    card = describe(CONFIGS[name], tensors, id="a/b", revision="r", source="hub")
    assert round((sum(card.active_sizes) + card.head_bytes) / 1e9, 1) == ACTIVE[name]
