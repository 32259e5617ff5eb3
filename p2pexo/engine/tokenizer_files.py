# pyright: reportUnknownMemberType=false
# tokenizers' stubs leave out parts of its Rust classes
"""The files of a model directory that say how its text is cut into tokens, and which of them end an answer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer

from p2pexo.models.architectures import text_config
from p2pexo.models.directory import ModelFilesError, read_json


def read_tokenizer(directory: Path) -> Tokenizer:
    """Raises ModelFilesError."""
    file = directory / "tokenizer.json"
    if not file.exists():
        raise ModelFilesError(f"{file} is missing; models without a fast tokenizer are not supported")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises bare Exceptions
        raise ModelFilesError(f"{file} can't be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def read_settings(directory: Path) -> dict[str, Any]:
    """The tokenizer's config; empty if there is none. Raises ModelFilesError."""
    return _optional_json(directory / "tokenizer_config.json")


def mark(token: object) -> str:
    """A special token as the tokenizer's config writes it: a text, or an object with its content."""
    if isinstance(token, Mapping):
        return str(cast(Mapping[str, object], token).get("content", ""))
    return token if isinstance(token, str) else ""


def read_end_tokens(directory: Path, tokenizer: Tokenizer) -> frozenset[int]:
    """Whatever any file calls an end. They disagree, and each has been seen to be the only one that is right."""
    found = {tokenizer.token_to_id(mark(read_settings(directory).get("eos_token")))}
    config, generation = (_optional_json(directory / name) for name in ("config.json", "generation_config.json"))
    for told in (config, text_config(config), generation):
        ids = told.get("eos_token_id")
        found |= set(cast(list[int], ids) if isinstance(ids, list) else [ids])
    return frozenset(token for token in found if isinstance(token, int))


def _optional_json(file: Path) -> dict[str, Any]:
    return read_json(file) if file.exists() else {}
