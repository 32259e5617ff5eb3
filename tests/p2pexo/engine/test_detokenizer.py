from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from p2pexo.engine.detokenizer import Detokenizer
from p2pexo.engine.text import TextModel


def by_bytes(tokens: Sequence[int]) -> str:
    """A model whose tokens are the bytes."""
    return bytes(tokens).decode(errors="replace")


def deltas(tokens: Sequence[int], decode=by_bytes) -> list[str]:
    detokenizer = Detokenizer(decode)
    return [*(detokenizer.push(token) for token in tokens), detokenizer.finish()]


emoji = st.sampled_from("🙂👩‍👩‍👧🇫🇷é漢字ß𝄞")


@given(st.lists(emoji | st.characters(codec="utf-8")).map("".join))
def test_whole_characters_come_out_one_by_one_and_none_in_halves(text: str) -> None:
    pieces = deltas(list(text.encode()))
    assert "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces) or "\ufffd" in text


@given(st.binary(max_size=40))
def test_the_deltas_of_any_bytes_joined_are_their_decoding_at_once(data: bytes) -> None:
    assert "".join(deltas(list(data))) == by_bytes(list(data))


@given(st.lists(emoji, max_size=5).map("".join))
def test_each_character_is_sent_with_its_last_byte(text: str) -> None:
    detokenizer = Detokenizer(by_bytes)
    for character in text:
        *growing, last = character.encode()
        assert [detokenizer.push(byte) for byte in growing] == [""] * len(growing)
        assert detokenizer.push(last) == character


def test_an_answer_that_ends_in_mid_character_ends_with_a_replacement_mark() -> None:
    assert deltas(list("a🙂".encode())[:3]) == ["a", "", "", "\ufffd"]


@given(data=st.data())
def test_any_tokens_of_the_real_tokenizer_joined_are_their_decoding_at_once(real_text: TextModel, data) -> None:
    tokens = data.draw(st.lists(st.integers(0, 49151), max_size=30))
    assert "".join(deltas(tokens, real_text.decode)) == real_text.decode(tokens)


@given(text=st.lists(emoji | st.sampled_from("ab \n"), max_size=12).map("".join))
def test_emoji_of_the_real_tokenizer_come_out_whole(real_text: TextModel, real_tokenizer: Tokenizer, text: str) -> None:
    pieces = deltas(real_tokenizer.encode(text).ids, real_text.decode)
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("text", ["hello world", "▁a b  c", "🙂🙂 x"])
def test_a_decoder_that_strips_the_first_space_keeps_the_others(text: str) -> None:
    vocab = {"▁": 0, "▁a": 1, **{f"<0x{byte:02X}>": byte + 2 for byte in range(256)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokens = [0, *(byte + 2 for byte in text.encode()), 1]
    assert "".join(deltas(tokens, tokenizer.decode)) == tokenizer.decode(tokens)


@pytest.mark.parametrize("text", ["Hello world", "🙂é naïve", "  two\n\tblanks", "日本語"])
def test_the_bytes_of_tokens_joined_are_those_of_the_text(
    real_text: TextModel, real_tokenizer: Tokenizer, text: str
) -> None:
    assert b"".join(map(real_text.token_bytes, real_tokenizer.encode(text).ids)).decode() == text


def test_the_bytes_of_a_control_token_are_its_name(real_text: TextModel) -> None:
    assert real_text.token_bytes(2) == b"<|im_end|>"


@pytest.fixture(scope="module")
def real_text(real_model: Path) -> TextModel:
    return TextModel.load(real_model)


@pytest.fixture(scope="module")
def real_tokenizer(real_model: Path) -> Tokenizer:
    return Tokenizer.from_file(str(real_model / "tokenizer.json"))
