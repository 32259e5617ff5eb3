# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportUnknownVariableType=false
# tokenizers' stubs leave out parts of its Rust classes
"""The tokenizer that a GGUF file describes, written as ``tokenizer.json``, its config and the chat template."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from p2pexo.models.gguf import Metadata

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CONTROL = 3
"""GGUF's token type of control tokens."""


def write_tokenizer(metadata: Metadata, directory: Path) -> None:
    """Raises GgufError for tokenizers other than the byte-level BPE of SmolLM."""
    metadata.require("tokenizer.ggml.model", "gpt2")
    metadata.require("tokenizer.ggml.pre", "smollm")
    _tokenizer(metadata).save(str(directory / "tokenizer.json"))
    template: str = metadata["tokenizer.chat_template"]
    (directory / "chat_template.jinja").write_text(template, encoding="utf-8")
    config = json.dumps(_config(metadata), indent=2, ensure_ascii=False)
    (directory / "tokenizer_config.json").write_text(config + "\n", encoding="utf-8")


def _tokenizer(metadata: Metadata) -> "Tokenizer":
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    types: list[int] = metadata["tokenizer.ggml.token_type"].tolist()
    left_and_right = [merge.split(" ", 1) for merge in metadata["tokenizer.ggml.merges"]]
    merges = [(left, right) for left, right in left_and_right]
    tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    controls = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in controls])
    return tokenizer


def _config(metadata: Metadata) -> dict[str, object]:
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    names = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    marks = {ours: tokens[metadata.integer(f"tokenizer.ggml.{theirs}_token_id")] for ours, theirs in names.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **marks,
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata.integer("llama.context_length"),
    }
