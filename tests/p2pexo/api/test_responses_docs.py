"""docs/responses.md names what the code honours, ignores and refuses."""

from pathlib import Path

import pytest

from p2pexo.api.chat import EFFORTS
from p2pexo.api.responses import HONOURED, IGNORED, LOGPROBS, NOT_OFFERED
from p2pexo.api.responses_items import ITEM_TYPES

PAGE = (Path(__file__).parents[3] / "docs" / "responses.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(HONOURED | IGNORED | {LOGPROBS} | set(EFFORTS)))
def test_every_parameter_is_documented(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("name", sorted(NOT_OFFERED))
def test_every_refusal_is_documented(name: str) -> None:
    assert f"`{name}" in PAGE


@pytest.mark.parametrize("kind", sorted(set(ITEM_TYPES) - {"message"}))
def test_every_type_of_item_is_documented(kind: str) -> None:
    assert f"`{kind}`" in PAGE
