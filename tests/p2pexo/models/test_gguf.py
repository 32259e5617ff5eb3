import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from tokenizers import Tokenizer

from p2pexo.models.directory import ModelDirectory
from p2pexo.models.gguf import GgufError, Metadata, embedded_gguf, import_gguf
from p2pexo.models.gguf_tokenizer import write_tokenizer


def test_the_same_file_gives_the_same_bytes_and_nothing_beside_them(imported: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    import_gguf(embedded_gguf(), again)
    assert [each.name for each in tmp_path.iterdir()] == ["again"]
    names = sorted(each.name for each in again.iterdir())
    assert names == sorted(each.name for each in imported.iterdir())
    assert all((again / name).read_bytes() == (imported / name).read_bytes() for name in names)


def test_packed_tensors_are_taken_over_as_they_are(imported: Path) -> None:
    theirs: Any = mx.load(str(embedded_gguf()))
    ours: Any = mx.load(str(imported / "model.safetensors"))
    for kind in ("weight", "scales", "biases"):
        assert mx.array_equal(theirs[f"blk.3.ffn_up.{kind}"], ours[f"model.layers.3.mlp.up_proj.{kind}"])
        assert mx.array_equal(theirs[f"token_embd.{kind}"], ours[f"model.embed_tokens.{kind}"])


def test_rows_of_queries_and_keys_are_in_the_order_that_mlx_lm_expects(imported: Path) -> None:
    theirs: Any = mx.load(str(embedded_gguf()))
    ours: Any = mx.load(str(imported / "model.safetensors"))
    for name, module in {"attn_q": "q_proj", "attn_k": "k_proj"}.items():
        before, after = theirs[f"blk.0.{name}.weight"], ours[f"model.layers.0.self_attn.{module}.weight"]
        for pair in (0, 1, 31):  # of the second head, whose rows begin at 64
            assert mx.array_equal(after[64 + pair], before[64 + 2 * pair])
            assert mx.array_equal(after[64 + 32 + pair], before[64 + 2 * pair + 1])


def test_the_config_says_how_each_module_is_packed(imported: Path) -> None:
    config = ModelDirectory(imported).config
    quantization = {"group_size": 32, "bits": 4, "mode": "affine"}
    assert config["quantization"] == {**quantization, "model.embed_tokens": {**quantization, "bits": 8}}
    assert (config["num_hidden_layers"], config["tie_word_embeddings"], config["eos_token_id"]) == (30, True, 2)
    assert {each.dtype for each in ModelDirectory(imported).tensors.values()} == {"U32", "F16"}


def test_the_tokenizer_reads_digits_one_by_one_and_knows_the_marks(imported: Path) -> None:
    tokenizer = Tokenizer.from_file(str(imported / "tokenizer.json"))
    encoding = tokenizer.encode("<|im_start|>user\n2026 Ünïcode 🙂")
    assert encoding.ids[:3] == [1, 4093, 198]
    assert [token for token in encoding.tokens if token in "0123456789"] == ["2", "0", "2", "6"]
    assert tokenizer.decode(encoding.ids, skip_special_tokens=False) == "<|im_start|>user\n2026 Ünïcode 🙂"


def test_an_import_leaves_what_is_there_alone(imported: Path, tmp_path: Path) -> None:
    there = tmp_path / "model"
    there.mkdir()
    (there / "file").write_text("mine")
    import_gguf(embedded_gguf(), there)
    assert [each.name for each in tmp_path.rglob("*")] == ["model", "file"]


@pytest.mark.parametrize("content", [b"", b"GGUF", b"no such format" * 100])
def test_a_file_that_is_no_gguf_is_named_and_leaves_nothing(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(content)
    with pytest.raises(GgufError, match=r"x\.gguf"):
        import_gguf(file, tmp_path / "out" / "model")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"general.architecture": "mamba"}, "'mamba'; only 'llama'"),
        ({}, "no metadata 'llama.attention.head_count'"),
    ],
)
def test_another_architecture_or_missing_metadata_is_named(tmp_path: Path, changes: dict[str, str], cause: str) -> None:
    file = tmp_path / "x.gguf"
    mx.save_gguf(str(file), {"output_norm.weight": mx.zeros(4)}, {"general.architecture": "llama", **changes})
    with pytest.raises(GgufError, match=cause):
        import_gguf(file, tmp_path / "model")


def test_another_kind_of_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match="'spm'; only 'gpt2'"):
        write_tokenizer(Metadata({"tokenizer.ggml.model": "spm"}), tmp_path)


def test_the_chat_template_has_a_file_of_its_own(imported: Path) -> None:
    assert "<|im_start|>" in (imported / "chat_template.jinja").read_text()
    assert "chat_template" not in json.loads((imported / "tokenizer_config.json").read_text())
