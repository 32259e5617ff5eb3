"""Which models can be cut into stages, and what that takes to know. Those that can't run whole (``support``)."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, cast

from attrs import field, frozen


class Caching(Enum):
    """Which of a model's layers keep what of a text."""

    PLAIN = auto()
    """Keys and values of every token."""
    LATENT = auto()
    """A compressed form of them."""
    INDEXED = auto()
    """That, and the keys of an index that says which tokens to look at."""
    LAYER_TYPES = auto()
    """Those of a sliding window in the layers that the config names, if it names any."""
    TURNS = auto()
    """Those of a sliding window in every second layer."""
    NTH_GLOBAL = auto()
    """Those of a sliding window in all layers but every nth."""
    TWO_WIDTHS = auto()
    """Those of a sliding window in the layers that the config names, of another width than those of every token."""
    CHUNKS = auto()
    """Those of a chunk of the text in three of four layers."""
    LINEAR = auto()
    """A state of fixed size in all layers but every nth."""

    @property
    def computes_alone(self) -> bool:
        """Whether each text is computed by itself: its caches can't be joined with those of others."""
        return self in (Caching.CHUNKS, Caching.INDEXED, Caching.LINEAR)


@frozen
class Architecture:
    family: str
    """As people know it."""
    module: str
    """The mlx-lm module with the model's code. The engine has a family for each."""
    caching: Caching = Caching.PLAIN
    left_out: Mapping[str, Any] = field(factory=dict[str, Any])
    """What such models need not say in their config, and what it is then."""


_GEMMA3 = {
    "max_position_embeddings": 131_072,
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
}

_GEMMA4 = {
    "max_position_embeddings": 131_072,
    "vocab_size": 262_144,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "global_head_dim": 512,
    "sliding_window": 512,
    "hidden_size_per_layer_input": 256,
    "num_kv_shared_layers": 20,
}

ARCHITECTURES = {
    "llama": Architecture("Llama 2, 3", "llama", Caching.LAYER_TYPES),
    "mistral": Architecture("Mistral", "llama", Caching.LAYER_TYPES),
    "iquestcoder": Architecture("IQuest Coder", "llama", Caching.LAYER_TYPES),
    "xverse": Architecture("XVERSE", "llama", Caching.LAYER_TYPES),
    "qwen2": Architecture("Qwen 2, 2.5", "qwen2"),
    "qwen3": Architecture("Qwen 3", "qwen3"),
    "qwen2_moe": Architecture("Qwen 1.5, 2 MoE", "qwen2_moe"),
    "qwen3_moe": Architecture("Qwen 3 MoE", "qwen3_moe"),
    "qwen3_next": Architecture("Qwen 3 Next", "qwen3_next", Caching.LINEAR),
    "qwen3_5": Architecture("Qwen 3.5", "qwen3_5", Caching.LINEAR),
    "qwen3_5_moe": Architecture("Qwen 3.5 MoE", "qwen3_5_moe", Caching.LINEAR),
    "gemma3": Architecture("Gemma 3", "gemma3", Caching.NTH_GLOBAL, _GEMMA3),
    "gemma3_text": Architecture("Gemma 3", "gemma3_text", Caching.NTH_GLOBAL),
    "gemma4": Architecture("Gemma 4", "gemma4", Caching.TWO_WIDTHS, _GEMMA4),
    "gemma4_unified": Architecture("Gemma 4", "gemma4", Caching.TWO_WIDTHS, _GEMMA4),
    "gemma4_text": Architecture("Gemma 4", "gemma4_text", Caching.TWO_WIDTHS, _GEMMA4),
    "gpt_oss": Architecture("gpt-oss", "gpt_oss", Caching.TURNS),
    "deepseek_v3": Architecture("DeepSeek V3, R1", "deepseek_v3", Caching.LATENT),
    "deepseek_v32": Architecture("DeepSeek V3.2", "deepseek_v32", Caching.INDEXED),
    "kimi_k2": Architecture("Kimi K2", "deepseek_v3", Caching.LATENT),
    "kimi_k25": Architecture("Kimi K2.5", "kimi_k25", Caching.LATENT),
    "glm4": Architecture("GLM 4", "glm4"),
    "glm4_moe": Architecture("GLM 4.5, 4.6", "glm4_moe"),
    "glm4_moe_lite": Architecture("GLM 4.7 Flash", "glm4_moe_lite", Caching.LATENT),
    "glm_moe_dsa": Architecture("GLM 5", "glm_moe_dsa", Caching.INDEXED),
    "mistral3": Architecture("Mistral Small 3, Ministral 3", "mistral3", Caching.LAYER_TYPES),
    "ministral3": Architecture("Ministral 3", "ministral3", Caching.LAYER_TYPES),
    "phi": Architecture("Phi 1.5, 2", "phi"),
    "phi3": Architecture("Phi 3, 4", "phi3"),
    "phimoe": Architecture("Phi 3.5 MoE", "phimoe"),
    "mixtral": Architecture("Mixtral", "mixtral"),
    "minimax": Architecture("MiniMax M2", "minimax"),
    "minimax_m2": Architecture("MiniMax M2", "minimax"),
    "gemma2": Architecture("Gemma 2", "gemma2"),
    "smollm3": Architecture("SmolLM 3", "smollm3", Caching.LAYER_TYPES),
    "olmo2": Architecture("OLMo 2", "olmo2"),
    "olmo3": Architecture("OLMo 3", "olmo3", Caching.LAYER_TYPES),
    "seed_oss": Architecture("Seed-OSS", "seed_oss"),
    "llama4": Architecture("Llama 4", "llama4", Caching.CHUNKS),
}
"""By ``model_type`` in config.json."""

_MXFP4 = {"group_size": 32, "bits": 4, "mode": "mxfp4"}
"""The only layout of others that MLX computes with as it is: that of gpt-oss."""

SEES_KEY = "p2pexo_sees"
"""In config.json: says that a model takes pictures. No family of the engine does; the scripted engine, for tests, may."""


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of the language model alone, flat, with what its architecture lets it leave out.

    Models that could also see keep it in ``text_config``. The model type stays that of the whole.
    """
    model_type = config.get("model_type")
    known = ARCHITECTURES.get(str(model_type))
    inner = config.get("text_config")
    said = {**config, **(cast(Mapping[str, Any], inner) if isinstance(inner, Mapping) else {})}
    said = {name: value for name, value in said.items() if value is not None}
    return {**(known.left_out if known else {}), **said, "model_type": model_type}


def obstacle(config: Mapping[str, Any]) -> str | None:
    """Why a model can't be cut into stages though others of its architecture can; None if nothing is known to stand in its way."""
    told = text_config(config)
    if told.get("hidden_size_per_layer_input") or told.get("num_kv_shared_layers"):
        return "its later layers look at its tokens, or share keys with others"
    return None


def packing(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How the weights are quantised, as mlx-lm writes it: ``group_size``, ``bits`` and ``mode``, and for modules by their
    path where it is different. None if they are not, or in a way that can't be read."""
    if ours := config.get("quantization"):
        return cast(Mapping[str, Any], ours)
    return _MXFP4 if packing_method(config) == "mxfp4" else None


def packing_method(config: Mapping[str, Any]) -> object:
    """How whoever quantised the weights calls the way in which that was done; None if nobody did."""
    theirs = config.get("quantization_config")
    return cast(Mapping[str, Any], theirs).get("quant_method") if isinstance(theirs, Mapping) else theirs
