from typing import Any

import pytest

from p2pexo.models.card import Card
from p2pexo.models.describe import describe
from p2pexo.models.directory import Tensor

BASE = {
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}
ENDS = {"model.embed_tokens.weight": 800, "model.norm.weight": 8, "lm_head.weight": 800}


def card_of(config: dict[str, Any], sizes: dict[str, int]) -> Card:
    """``sizes``: bytes by the names that the makers publish."""
    tensors = {name: Tensor(name, "U8", (size,), "model.safetensors") for name, size in (ENDS | sizes).items()}
    return describe(BASE | config, tensors, id="a/b", revision="r", source="hub")


def one_by_one(layer: int, experts: int, size: int) -> dict[str, int]:
    kinds = ("gate_proj", "up_proj", "down_proj")
    return {f"model.layers.{layer}.mlp.experts.{n}.{kind}.weight": size for n in range(experts) for kind in kinds}


def test_of_qwen3_moe_two_of_eight_experts_work_on_a_token() -> None:
    attention = {f"model.layers.{layer}.self_attn.q_proj.weight": 50 for layer in (0, 1)}
    routers = {f"model.layers.{layer}.mlp.gate.weight": 7 for layer in (0, 1)}
    experts = one_by_one(0, 8, 100) | one_by_one(1, 8, 100)
    card = card_of(
        {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2}, attention | routers | experts
    )
    assert card.layer_sizes == (2457, 2457)
    assert card.active_sizes == (50 + 7 + 2 * 300,) * 2


def test_of_gpt_oss_experts_are_stored_in_one_tensor_each_kind() -> None:
    layer = "model.layers.{}.mlp.experts."
    packed = {"gate_up_proj_blocks": 640, "gate_up_proj_scales": 32, "gate_up_proj_bias": 64, "down_proj_blocks": 320}
    experts = {layer.format(number) + name: size for number in (0, 1) for name, size in packed.items()}
    routers = {f"model.layers.{number}.mlp.router.weight": 9 for number in (0, 1)}
    told = {"model_type": "gpt_oss", "num_local_experts": 32, "num_experts_per_tok": 4, "experts_per_token": 4}
    card = card_of(told, experts | routers)
    assert card.layer_sizes == (1065, 1065)
    assert card.active_sizes == (9 + 1056 // 8,) * 2


def test_of_deepseek_shared_experts_and_dense_layers_always_work() -> None:
    dense = {"model.layers.0.mlp.up_proj.weight": 900, "model.layers.0.self_attn.q_proj.weight": 50}
    shared = {"model.layers.1.mlp.shared_experts.up_proj.weight": 40, "model.layers.1.self_attn.q_proj.weight": 50}
    latent = {"kv_lora_rank": 4, "qk_rope_head_dim": 2}
    told = {"model_type": "deepseek_v3", "n_routed_experts": 16, "n_shared_experts": 1, "num_experts_per_tok": 4}
    card = card_of(told | latent, dense | shared | one_by_one(1, 16, 10))
    assert card.layer_sizes == (950, 570)
    assert card.active_sizes == (950, 50 + 40 + 4 * 30)


@pytest.mark.parametrize("told", [{}, {"num_experts": 8}, {"num_experts": 4, "num_experts_per_tok": 4}])
def test_where_nothing_is_chosen_all_weights_work(told: dict[str, int]) -> None:
    card = card_of({"model_type": "qwen3_moe"} | told, one_by_one(0, 4, 10) | one_by_one(1, 4, 10))
    assert card.active_weights == ()
    assert card.active_sizes == card.layer_sizes == (120, 120)


def test_of_a_model_that_runs_whole_idle_experts_are_not_counted_either() -> None:
    sizes = {"transformer.blocks.0.ffn.experts.mlp.w1": 160, "transformer.blocks.0.norm.weight": 10}
    told = {"model_type": "dbrx", "n_layers": 2, "ffn_config": {"moe_num_experts": 16, "moe_top_k": 4}}
    assert card_of(told, sizes).active_sizes == (10 + 40 + sum(ENDS.values()),)
