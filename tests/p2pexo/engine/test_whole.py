"""Models that have no family of ours: one stage runs them as mlx-lm does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.generate import generate_step
from mlx_lm.utils import MODEL_REMAPPING
from tiny_models import BASE

from p2pexo.cluster.machines import Candidate
from p2pexo.cluster.manual import parse_split, plan_split
from p2pexo.cluster.placement import plan
from p2pexo.cluster.preview import preview
from p2pexo.engine.batch import Batch, BatchResult, Drawing, Entry, Fork
from p2pexo.engine.groups import CACHE_STEP
from p2pexo.engine.mlx_models import model_module
from p2pexo.engine.stage import StageEngine
from p2pexo.generation.errors import InsufficientMemoryError, InvalidRequestError
from p2pexo.generation.request import Sampling
from p2pexo.models.card import Card
from p2pexo.models.describe import describe
from p2pexo.models.directory import ModelDirectory, ModelFilesError, context_length
from p2pexo.models.support import check_architecture, module_of
from p2pexo.models.whole import cache_bytes_per_token

pytestmark = pytest.mark.usefixtures("uncompiled")

GREEDY = Drawing(Sampling(temperature=0))
PROMPT = (5, 17, 300, 42, 8, 9, 120)

_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2}
_GPT: dict[str, Any] = {
    "n_ctx": 128,
    "n_positions": 128,
    "n_embd": 64,
    "n_head": 4,
    "n_layer": 4,
    "n_inner": 96,
    "num_key_value_heads": None,
    "layer_norm_epsilon": 1e-5,
}
TOGETHER: dict[str, dict[str, Any]] = {
    "gpt2": _GPT,
    "gpt_neox": {"layer_norm_eps": 1e-5, "rotary_emb_base": 10000, "rotary_pct": 0.5, "num_key_value_heads": 4},
    "cohere2": {"logit_scale": 0.5, "sliding_window": 6, "sliding_window_pattern": 2, "layer_norm_eps": 1e-5},
    "exaone4": {"rope_scaling": None, "sliding_window": 6, "sliding_window_pattern": "LLG"},
    "olmoe": _EXPERTS,
    "qwen3_vl": {"text_config": BASE | {"model_type": "qwen3_vl_text"}},
}
ALONE: dict[str, dict[str, Any]] = {
    "gpt_bigcode": _GPT | {"num_key_value_heads": 1},
    "lfm2": {
        "norm_eps": 1e-5,
        "conv_bias": False,
        "conv_L_cache": 3,
        "block_dim": 64,
        "block_multiple_of": 8,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False,
        "block_ff_dim": 96,
        "full_attn_idxs": [1, 3],
    },
    "mamba": {
        "state_size": 8,
        "conv_kernel": 4,
        "use_bias": False,
        "use_conv_bias": True,
        "time_step_rank": 4,
        "intermediate_size": 96,
    },
    "recurrent_gemma": {
        "attention_bias": False,
        "conv1d_width": 4,
        "lru_width": 64,
        "attention_window_size": 8,
        "logits_soft_cap": 30.0,
        "block_types": ["recurrent", "attention"],
        "embeddings_scale_by_sqrt_dim": True,
    },
}
CONFIGS = TOGETHER | ALONE


@pytest.fixture(scope="module", params=CONFIGS)
def directory(request: pytest.FixtureRequest, make_model: Any) -> Path:
    return make_model(model_type=request.param, **CONFIGS[request.param])


@pytest.fixture(scope="module")
def stage(directory: Path) -> StageEngine:
    return StageEngine.load(directory, first_layer=0, end_layer=1)


@pytest.fixture(scope="module")
def by_mlx_lm(directory: Path) -> Callable[..., list[int]]:
    """What mlx-lm itself makes of a prompt."""
    config = json.loads((directory / "config.json").read_text())
    module = model_module(config["model_type"])
    model = module.Model(module.ModelArgs.from_dict(config))
    model.load_weights(str(directory / "model.safetensors"))
    return lambda prompt, count: [int(token) for token, _ in generate_step(mx.array(prompt), model, max_tokens=count)]


def draw(stage: StageEngine, *entries: Entry) -> list[int]:
    result = stage.run(Batch(0, entries))
    assert isinstance(result, BatchResult)
    assert not result.failures
    return [each.token for each in result.sampled]


def go_on(stage: StageEngine, sequence: int, position: int, token: int, count: int) -> list[int]:
    tokens = [token]
    for index in range(1, count):
        tokens += draw(stage, Entry(sequence, (tokens[-1],), position + index - 1, index))
    return tokens


def test_it_gives_the_tokens_of_mlx_lm_with_its_prompt_whole_and_in_chunks(stage: StageEngine, by_mlx_lm: Any) -> None:
    expected = by_mlx_lm(PROMPT, 10)
    (token,) = draw(stage, Entry(1, PROMPT, 0, 0, GREEDY))
    assert go_on(stage, 1, len(PROMPT), token, 10) == expected
    assert draw(stage, Entry(2, PROMPT[:3], 0, None, GREEDY)) == []
    (token,) = draw(stage, Entry(2, PROMPT[3:], 3, 0))
    assert go_on(stage, 2, len(PROMPT), token, 10) == expected


def test_texts_that_are_answered_together_are_those_answered_alone(stage: StageEngine, by_mlx_lm: Any) -> None:
    prompts = dict(enumerate((PROMPT, PROMPT[:4], (7, 7, 7)), start=3))
    drawn = draw(stage, *(Entry(each, prompt, 0, 0, GREEDY) for each, prompt in prompts.items()))
    texts = {each: [token] for each, token in zip(prompts, drawn, strict=True)}
    for index in range(1, 8):
        if index == 4:  # one of them is called off
            before = stage.conversations
            stage.run(Batch(0, (), release=(4,)))
            assert stage.conversations == before - 1
            del texts[4]
        entries = [Entry(each, (text[-1],), len(prompts[each]) + index - 1, index) for each, text in texts.items()]
        for text, token in zip(texts.values(), draw(stage, *entries), strict=True):
            text.append(token)
    assert texts == {each: by_mlx_lm(prompts[each], 8) for each in texts}


def test_texts_are_computed_together_where_that_gives_the_same(directory: Path, stage: StageEngine) -> None:
    rows = [Entry(each, (each,), 0, None) for each in (7, 8)]
    together = len(list(stage._parts(rows))) == 1
    assert together == (json.loads((directory / "config.json").read_text())["model_type"] in TOGETHER)


def test_a_model_that_takes_all_rows_for_equally_long_computes_texts_alone(monkeypatch: Any, make_model: Any) -> None:
    module = model_module("gpt2")
    ahead = module.GPT2Model.__call__

    def equally_long(self: Any, inputs: mx.array, cache: Any = None) -> mx.array:
        places = [getattr(each, "offset", 0) for each in cache]
        for each, place in zip(cache, places, strict=True):
            each.offset = mx.max(place) if isinstance(place, mx.array) else place
        return ahead(self, inputs, cache)

    monkeypatch.setattr(module.GPT2Model, "__call__", equally_long)
    stage = StageEngine.load(make_model(model_type="gpt2", **_GPT), first_layer=0, end_layer=1)
    assert len(list(stage._parts([Entry(each, (each,), 0, None) for each in (7, 8)]))) == 2


def test_a_prompt_takes_over_what_another_one_computed_only_where_texts_can_be_joined(
    directory: Path, stage: StageEngine, by_mlx_lm: Any
) -> None:
    draw(stage, Entry(9, PROMPT[:4], 0, None, GREEDY))
    result = stage.run(Batch(0, (Entry(10, PROMPT[4:], 4, 0, GREEDY, fork=Fork(9, 4)),)))
    assert isinstance(result, BatchResult)
    if json.loads((directory / "config.json").read_text())["model_type"] in TOGETHER:
        assert [each.token for each in result.sampled] == by_mlx_lm(PROMPT, 1)
    else:
        assert [each.is_fork for each in result.failures] == [True]


def test_it_cannot_be_cut(directory: Path) -> None:
    with pytest.raises(ValueError, match="runs whole"):
        StageEngine.load(directory, first_layer=0, end_layer=2)


def card_of(directory: Path) -> Card:
    files = ModelDirectory(directory)
    return describe(files.config, files.tensors, id="owner/odd", revision="1", source="hub")


def test_its_memory_is_counted_from_its_files(directory: Path, stage: StageEngine) -> None:
    card = card_of(directory)
    stored = sum(each.nbytes for each in ModelDirectory(directory).tensors.values())
    assert (card.whole, card.layers) == (True, 1)
    assert card.weight_bytes(0, 1) == stored == stage.weight_bytes
    assert card.dense_factor == 1.0
    draw(stage, Entry(1, PROMPT, 0, 0, GREEDY))
    states = cast(list[tuple[str, Any]], tree_flatten([cache.state for cache in stage._caches.take([1])]))
    held = sum(array.nbytes for _, array in states if isinstance(array, mx.array))
    assert held <= CACHE_STEP * card.kv_bytes_per_token


def test_it_is_placed_on_one_machine_or_refused_by_name(directory: Path) -> None:
    card = card_of(directory)
    machines = [Candidate(name, name, 10**9, 0, dense=True, device="cpu") for name in "ab"]
    (stage,) = plan(card, machines)
    assert (stage.first_layer, stage.end_layer) == (0, 1)
    reason = f"{card.architecture!r}, which runs on one machine or not at all"
    with pytest.raises(InvalidRequestError, match=reason):
        plan(card, machines, min_stages=2)
    with pytest.raises(InvalidRequestError, match=reason):
        plan_split(card, machines, parse_split("a=0-1,b=2-3"))
    assert len(plan_split(card, machines, parse_split("b=0"))) == 1
    one, two = preview(card, machines).options
    assert (len(one.stages), two.stages) == (1, ())
    assert reason in two.reason
    small = [Candidate(name, name, card.layer_bytes, 0, dense=True, device="cpu") for name in "ab"]
    with pytest.raises(InsufficientMemoryError, match=reason):
        plan(card, small)


@pytest.mark.parametrize("model_type", ["nonesuch", "cache", "base", "../gpt2", ""])
def test_what_mlx_lm_has_no_model_for_is_refused_by_name(model_type: str) -> None:
    with pytest.raises(InvalidRequestError, match="can't be run here"):
        check_architecture("owner/odd", model_type)


def test_a_config_that_says_nothing_of_its_size_is_refused() -> None:
    with pytest.raises(ModelFilesError, match="hidden_size"):
        describe({"model_type": "gpt2", "n_positions": 128}, {}, id="a/b", revision="1", source="hub")


def test_the_cache_of_a_token_is_estimated_where_a_config_has_its_own_names() -> None:
    latent = {"kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "num_hidden_layers": 3}
    wide = latent | {"hidden_size": 64, "num_attention_heads": 4}
    assert cache_bytes_per_token({"model_type": "kimi_linear"} | wide) == 4 * 3 * 2 * (32 + 8)
    assert cache_bytes_per_token({"model_type": "minicpm3"} | wide) == 4 * 3 * 4 * (16 + 8 + 16)
    by_layer = {"model_dim": 64, "num_transformer_layers": 2, "num_query_heads": [4, 8], "num_kv_heads": [1, 2]}
    assert cache_bytes_per_token({"model_type": "openelm", "head_dim": 16} | by_layer) == 4 * 2 * 2 * 2 * 16


def test_the_context_of_a_model_that_knows_no_limit_is_bounded() -> None:
    assert context_length({"model_type": "mamba"}) == 8192
    assert context_length({"model_type": "openelm", "max_context_length": 2048}) == 2048


def test_models_go_by_the_names_that_mlx_lm_has_for_them() -> None:
    for model_type, module in MODEL_REMAPPING.items():
        assert module_of(model_type) == module
