import json

import pytest

from p2pexo.generation.text import Picture, PictureHash, Prompt


@pytest.mark.parametrize(("cls", "shown"), [(Prompt, 100), (Picture, 10), (PictureHash, 10)])
def test_the_repr_of_long_text_is_cut_and_everything_else_is_whole(cls: type[str], shown: int) -> None:
    whole = "x" * 5000
    text = cls(whole)
    assert repr(text) == f"{cls.__name__}({'x' * shown!r}…)"
    assert str(text) == whole
    assert text == whole
    assert hash(text) == hash(whole)
    assert json.loads(json.dumps({"content": text})) == {"content": whole}


def test_the_repr_of_short_text_is_not_cut() -> None:
    assert repr(Prompt("hello")) == "Prompt('hello')"


def test_text_nested_in_other_values_is_cut_too() -> None:
    assert len(repr({"messages": [{"content": Prompt("y" * 10_000)}]})) < 200
