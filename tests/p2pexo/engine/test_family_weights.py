# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# mlx-lm's models are untyped
"""What the stages of every architecture hold: weights, also packed ones, and caches; and that the cards say so beforehand."""

import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten
from tiny_models import CONFIGS, tiny_config, write_tiny

from p2pexo.engine.families import Family, build
from p2pexo.engine.loading import arrays, load_layers
from p2pexo.engine.stage import StageEngine
from p2pexo.models.architectures import ARCHITECTURES, Caching
from p2pexo.models.card import Card
from p2pexo.models.describe import describe
from p2pexo.models.directory import ModelDirectory

pytestmark = pytest.mark.usefixtures("uncompiled")

PROMPT = tuple(range(20, 60))
CACHE_STEP = 256
"""Tokens by which a plain cache of mlx-lm grows."""

PACKED = ["qwen3_moe", "qwen3_next", "qwen3_5_moe", "gemma3", "deepseek_v3", "glm4_moe_lite", "llama4", "phimoe"]

HALF = ["qwen3_5", "deepseek_v3", "gemma3", "gemma4", "minimax"]


def load(directory: Path, first: int, end: int, precision: str = "keep") -> Family:
    return load_layers(directory, first_layer=first, end_layer=end, precision=precision, progress=lambda share: None)[0]


def card_of(directory: Path) -> Card:
    files = ModelDirectory(directory)
    return describe(files.config, files.tensors, id="a/b", revision="r", source="hub")


def cuts(layers: int) -> list[tuple[int, ...]]:
    return [(0, layers), (0, 1, 3, layers)]


@pytest.mark.parametrize("model_type", CONFIGS)
def test_a_stage_holds_the_weights_that_the_card_counts(tmp_path: Path, model_type: str) -> None:
    directory = write_tiny(tmp_path, model_type)
    card = card_of(directory)
    for first, end in (pair for cut in cuts(card.layers) for pair in pairwise(cut)):
        held = sum(each.nbytes for each in arrays(load(directory, first, end).model))
        assert held == card.weight_bytes(first, end)
    assert card.layer_bytes == max(card.layer_sizes)


@pytest.mark.parametrize("model_type", CONFIGS)
def test_caches_grow_as_the_card_says(model_type: str) -> None:
    config = tiny_config(model_type)
    mx.random.seed(3)
    family = build(config)
    card = describe(config, {}, id="a/b", revision="r", source="hub")
    caches = family.new_caches()
    hidden = family.embed(mx.array(PROMPT[:-1]))
    mx.eval(family.layers(hidden, caches), family.layers(family.embed(mx.array(PROMPT[-1:])), caches))
    limits = card.cache_limits or (0,) * card.layers
    for layer, (cache, limit) in enumerate(zip(caches, limits, strict=True)):
        if ARCHITECTURES[model_type].caching is Caching.CHUNKS and limit:
            cache.maybe_trim_front()
            assert cache.offset - cache.start_position == limit
            continue
        assert cache.nbytes == pytest.approx((limit or CACHE_STEP) * card.kv_bytes_per_token, rel=0.05), layer


def pack(source: Path, directory: Path, dtype: mx.Dtype = mx.float32) -> Path:
    """As mlx-lm converts: four bits in general, eight for what sends to experts, told for some modules only.

    ``dtype``: of all that is not packed but for a few, which makers leave in fp32.
    """
    config = json.loads((source / "config.json").read_text())
    model = build(config).model
    model.load_weights(list(model.sanitize(mx.load(str(source / "model.safetensors"))).items()))
    kept = ("e_score_correction_bias", "A_log")
    parameters = cast(list[tuple[str, mx.array]], tree_flatten(model.parameters()))
    model.load_weights([(name, each if name.endswith(kept) else each.astype(dtype)) for name, each in parameters])
    told: dict[str, Any] = {"group_size": 32, "bits": 4}

    def layout(path: str, module: nn.Module) -> bool | dict[str, Any]:
        if not hasattr(module, "to_quantized") or cast(Any, module).weight.shape[-1] % 32:
            return False
        if path.endswith("gate") or "embed_tokens" in path:
            return {"group_size": 64, "bits": 8}
        if path.endswith("o_proj"):
            told[path] = {"group_size": 32, "bits": 4, "mode": "mxfp4"}
            return told[path]
        return True

    nn.quantize(model, 32, 4, class_predicate=layout)
    weights = dict(cast(list[tuple[str, mx.array]], tree_flatten(model.parameters())))
    mx.save_safetensors(str(directory / "model.safetensors"), weights)
    (directory / "config.json").write_text(json.dumps(config | {"quantization": told}))
    return directory


def logits(parts: Sequence[Family]) -> mx.array:
    hidden = parts[0].embed(mx.array(PROMPT))
    for part in parts:
        hidden = part.layers(hidden, part.new_caches())
    return parts[-1].head(hidden)[0]


@pytest.mark.parametrize("model_type", PACKED)
def test_packed_weights_are_taken_as_they_are(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, model_type: str
) -> None:
    from mlx_lm.utils import load_model

    directory = pack(write_tiny(tmp_path_factory.mktemp("source"), model_type), tmp_path)
    whole, _ = load_model(directory)
    whole.set_dtype(mx.float32)
    card = card_of(directory)
    parts = [load(directory, first, end) for first, end in ((0, 2), (2, card.layers))]
    assert mx.array_equal(logits(parts), whole(mx.array(PROMPT)[None], cache=whole_caches(whole))[0])
    dense = load(directory, 0, card.layers, "dequantise")
    assert not any("scales" in module for module in dense.model.modules())
    assert mx.allclose(logits([dense]), logits(parts), rtol=1e-3, atol=1e-3)
    layers = dense.parts[1 : 1 + card.layers]
    unpacked = sum(each.nbytes for layer in layers for each in arrays(layer))
    assert unpacked == pytest.approx(card.dense_factor * sum(card.layer_sizes), rel=1e-2)


@pytest.mark.parametrize("model_type", HALF)
def test_a_gpu_computes_in_the_models_own_numbers(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, model_type: str
) -> None:
    from mlx_lm.utils import load_model

    monkeypatch.setattr("p2pexo.engine.loading.on_gpu", lambda: True)
    directory = pack(write_tiny(tmp_path_factory.mktemp("source"), model_type), tmp_path, mx.bfloat16)
    whole, _ = load_model(directory)
    stages = [StageEngine.load(directory, first_layer=first, end_layer=end) for first, end in ((0, 1), (1, 3), (3, 4))]
    assert {stage.wire_dtype for stage in stages} == {"bfloat16"}
    parts = [load(directory, first, end, "auto") for first, end in ((0, 1), (1, 3), (3, 4))]
    assert mx.array_equal(logits(parts), whole(mx.array(PROMPT)[None], cache=whole_caches(whole))[0])
    assert parts[1].layers(parts[0].embed(mx.array(PROMPT)), parts[1].new_caches()).dtype == mx.bfloat16


def whole_caches(model: Any) -> list[Any]:
    from mlx_lm.models.cache import make_prompt_cache

    return make_prompt_cache(model)


@pytest.mark.skipif(sys.platform != "linux", reason="counts what the process reads as Linux tells it")
def test_of_experts_only_those_of_the_stage_are_read(tmp_path: Path) -> None:
    directory = write_tiny(tmp_path, "qwen3_moe", moe_intermediate_size=512, mlp_only_layers=[])
    card = card_of(directory)
    before = bytes_read()
    load(directory, 2, 3)
    read = bytes_read() - before
    assert card.layer_bytes > 2_000_000
    assert card.layer_bytes <= read < card.layer_bytes * 1.1


def bytes_read() -> int:
    told = Path("/proc/self/io").read_text()
    return int(told.splitlines()[0].removeprefix("rchar: "))
