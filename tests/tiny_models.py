# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# mlx-lm's models are untyped
"""One tiny model with random weights of every architecture, stored as its makers publish theirs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten

from p2pexo.engine.families import build

Weights = dict[str, mx.array]

BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 320,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 1}
_SHARED = {"shared_expert_intermediate_size": 48}
_LINEAR = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 3,
}
_GROUPED_EXPERTS: dict[str, Any] = {
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "n_group": 2,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "routed_scaling_factor": 2.5,
    "norm_topk_prob": True,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "attention_bias": False,
    "rope_scaling": None,
}
_LATENT: dict[str, Any] = _GROUPED_EXPERTS | {
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
_YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "mscale_all_dim": 1.0, "mscale": 1.0}
_SPARSE = {"index_head_dim": 16, "index_n_heads": 2, "index_topk": 12}
_GEMMA = {"sliding_window": 8, "sliding_window_pattern": 3, "query_pre_attn_scalar": 16}
_GEMMA4 = {
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
    "enable_moe_block": True,
    "num_experts": 6,
    "top_k_experts": 2,
    "moe_intermediate_size": 32,
    "final_logit_softcapping": 3.0,
    "tie_word_embeddings": True,
}
_MINISTRAL = {
    "layer_types": ["full_attention", "sliding_attention"] * 2,
    "sliding_window": 8,
    "rope_parameters": {
        "rope_theta": 10000.0,
        "llama_4_scaling_beta": 0.1,
        "original_max_position_embeddings": 16,
        "type": "default",
    },
}
_LLAMA4 = {
    "attention_bias": False,
    "attention_chunk_size": 8,
    "interleave_moe_layer_step": 2,
    "intermediate_size_mlp": 80,
    "num_experts_per_tok": 1,
    "num_local_experts": 4,
    "rope_scaling": None,
    "use_qk_norm": True,
    "model_type": "llama4_text",
    "floor_scale": 4,
}
_MINIMAX = {"num_local_experts": 6, "num_experts_per_tok": 2, "shared_intermediate_size": 0, "rotary_dim": 8}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"layer_types": ["full_attention", "sliding_attention"] * 2, "sliding_window": 8},
    "mistral": {},
    "iquestcoder": {},
    "xverse": {},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"tie_word_embeddings": True},
    "qwen2_moe": _EXPERTS | _SHARED,
    "qwen3_moe": _EXPERTS | {"mlp_only_layers": [1], "norm_topk_prob": True},
    "qwen3_next": _EXPERTS | _SHARED | _LINEAR | {"mlp_only_layers": [1], "partial_rotary_factor": 0.5},
    "qwen3_5": {"text_config": _LINEAR | {"tie_word_embeddings": True}},
    "qwen3_5_moe": {"text_config": _EXPERTS | _SHARED | _LINEAR},
    "gemma3": {"text_config": _GEMMA},
    "gemma3_text": _GEMMA,
    "gemma4": {"text_config": _GEMMA4},
    "gemma4_unified": {"text_config": _GEMMA4},
    "gemma4_text": _GEMMA4 | {"enable_moe_block": False, "attention_k_eq_v": False},
    "gpt_oss": {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 8,
        "quantization_config": {"quant_method": "mxfp4"},
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    },
    "deepseek_v3": _LATENT | {"rope_scaling": _YARN},
    "deepseek_v32": _LATENT | _SPARSE,
    "kimi_k2": _LATENT | {"q_lora_rank": None, "n_group": 1},
    "kimi_k25": {"text_config": _LATENT},
    "glm4": {"partial_rotary_factor": 0.5, "attention_bias": True},
    "glm4_moe": _GROUPED_EXPERTS | {"use_qk_norm": True, "partial_rotary_factor": 0.5, "n_group": 1},
    "glm4_moe_lite": _LATENT | {"n_group": 1},
    "glm_moe_dsa": _LATENT | _SPARSE | {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}},
    "mistral3": {"text_config": _MINISTRAL | {"model_type": "ministral3"}},
    "ministral3": _MINISTRAL,
    "phi": {"layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5},
    "phi3": {"num_key_value_heads": 4, "tie_word_embeddings": True},
    "phimoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "minimax": _MINIMAX,
    "minimax_m2": _MINIMAX,
    "gemma2": {"query_pre_attn_scalar": 16.0, "tie_word_embeddings": True, "final_logit_softcapping": 3.0},
    "smollm3": {"no_rope_layer_interval": 2, "tie_word_embeddings": True},
    "olmo2": {},
    "olmo3": {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 8},
    "seed_oss": {"attention_bias": True},
    "llama4": {"num_hidden_layers": 5, "text_config": _LLAMA4 | {"num_hidden_layers": 5}},
}
"""By model type: what is not as in ``BASE``."""


def tiny_config(model_type: str, **changes: Any) -> dict[str, Any]:
    config = BASE | CONFIGS[model_type] | {"model_type": model_type} | changes
    if "text_config" not in config:
        return config
    inner = BASE | {"model_type": model_type} | cast(dict[str, Any], config["text_config"]) | changes
    return {"model_type": model_type, "text_config": inner, "vocab_size": BASE["vocab_size"]}


def write_tiny(directory: Path, model_type: str, **changes: Any) -> Path:
    """A directory with a random model of this type, in the form in which mlx-lm's ``sanitize`` expects it from others."""
    config = tiny_config(model_type, **changes)
    mx.random.seed(7)
    named = cast(list[tuple[str, mx.array]], tree_flatten(build(config).model.parameters()))
    weights = {name: _random(name, each.shape) for name, each in named}
    if "text_config" in config:
        weights["vision_tower.layers.0.mlp.fc1.weight"] = mx.random.normal((48, 64))
    weights = _PUBLISHED.get(model_type, _split_experts)(weights)
    mx.save_safetensors(str(directory / "model.safetensors"), weights, {"format": "pt"})
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def _random(name: str, shape: tuple[int, ...]) -> mx.array:
    if name.endswith("norm.weight"):
        return 1 + mx.random.normal(shape) * 0.1
    return mx.random.normal(shape) * 0.2


def _split_experts(weights: Weights) -> Weights:
    """Each expert's matrices under a name of their own; those of latent attention in one."""
    split: Weights = {}
    for name, each in weights.items():
        before, stacked, after = name.partition("switch_mlp.")
        if stacked:
            split |= {f"{before}experts.{number}.{after}": matrix for number, matrix in enumerate(each)}
        else:
            split[name] = each
    return _join_heads(split)


def _join_heads(weights: Weights) -> Weights:
    joined = {name: each for name, each in weights.items() if "embed_q" not in name and "unembed_out" not in name}
    for name in weights:
        if name.endswith("self_attn.embed_q.weight"):
            attention = name.removesuffix("embed_q.weight")
            keys, values = weights[name].swapaxes(-1, -2), weights[f"{attention}unembed_out.weight"]
            both = mx.concatenate([keys, values], axis=1)
            joined[f"{attention}kv_b_proj.weight"] = mx.contiguous(both.reshape(-1, both.shape[-1]))
    return joined


def _name_experts_by_letters(weights: Weights) -> Weights:
    letters = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
    split = _split_experts(weights)
    for long, short in letters.items():
        split = {name.replace(f".{long}.", f".{short}."): each for name, each in split.items()}
    return split


def _with_shifted_norms(weights: Weights) -> Weights:
    """Norms less one, convolutions with their axes the other way round."""
    gated = "linear_attn.norm.weight"
    shifted: Weights = {}
    for name, each in weights.items():
        if name.endswith("norm.weight") and not name.endswith(gated):
            shifted[name] = each - 1
        else:
            shifted[name] = mx.contiguous(each.moveaxis(2, 1)) if "conv1d" in name else each
    return shifted


def _qwen3_next(weights: Weights) -> Weights:
    return _with_shifted_norms(_split_experts(weights)) | {"mtp.fc.weight": mx.zeros((64, 64))}


def _qwen3_5(weights: Weights) -> Weights:
    named = {name.replace("language_model.model.", "model.language_model."): each for name, each in weights.items()}
    named = {
        name.removeprefix("language_model.").replace("vision_tower", "model.visual"): each
        for name, each in named.items()
    }
    return _with_shifted_norms(_gate_with_up(named, "switch_mlp", axis=1)) | {"mtp.fc.weight": mx.zeros((64, 64))}


def _gemma4(weights: Weights) -> Weights:
    joined = _gate_with_up(weights, "experts.switch_glu", axis=1)
    inside = {name.replace("language_model.model.", "language_model."): each for name, each in joined.items()}
    return {f"model.{name}": each for name, each in inside.items()}


def _llama4(weights: Weights) -> Weights:
    named = {name.replace("vision_tower", "vision_model"): each for name, each in weights.items()}
    joined = _gate_with_up(named, "experts", axis=1)
    return {name: each.swapaxes(1, 2) if "experts." in name else each for name, each in joined.items()}


def _gate_with_up(weights: Weights, stack: str, axis: int) -> Weights:
    """The gate's matrices of all experts and the up projection's behind one another in one tensor."""
    joined: Weights = {}
    for name, each in weights.items():
        before, found, after = name.partition(f"{stack}.")
        if not found or after == "up_proj.weight":
            joined |= {} if found else {name: each}
        elif after == "gate_proj.weight":
            up = weights[f"{before}{stack}.up_proj.weight"]
            joined[f"{before}experts.gate_up_proj"] = mx.concatenate([each, up], axis=axis)
        else:
            joined[f"{before}experts.down_proj"] = each
    return joined


def _gpt_oss(weights: Weights) -> Weights:
    """Experts in blocks of 4-bit floats, the rows of gate and up projection in turns."""
    published = {name: each for name, each in weights.items() if ".experts." not in name}
    for name, each in weights.items():
        before, _, after = name.partition(".experts.")
        if after in ("gate_proj.weight", "gate_proj.bias"):
            up = weights[name.replace("gate_proj", "up_proj")]
            shape = (each.shape[0], -1, *each.shape[2:])
            published |= _packed(f"{before}.experts.gate_up_proj", mx.stack([each, up], axis=2).reshape(shape))
        elif after.startswith("down_proj"):
            published |= _packed(f"{before}.experts.down_proj", each)
    return published


def _packed(name: str, values: mx.array) -> Weights:
    if values.ndim == 2:
        return {f"{name}_bias": values}
    packed, scales, *_ = mx.quantize(values, 32, 4, mode="mxfp4")
    blocks = packed.reshape(*scales.shape, -1).view(mx.uint8)
    return {f"{name}_blocks": blocks, f"{name}_scales": scales}


_PUBLISHED: dict[str, Callable[[Weights], Weights]] = {
    "qwen3_next": _qwen3_next,
    "qwen3_5": _qwen3_5,
    "qwen3_5_moe": _qwen3_5,
    "gemma4": _gemma4,
    "gemma4_unified": _gemma4,
    "gpt_oss": _gpt_oss,
    "phimoe": _name_experts_by_letters,
    "mixtral": _name_experts_by_letters,
    "minimax": _name_experts_by_letters,
    "minimax_m2": _name_experts_by_letters,
    "llama4": _llama4,
}
