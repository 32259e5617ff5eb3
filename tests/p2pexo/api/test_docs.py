"""docs/http.md names what the code honours, ignores and refuses."""

from pathlib import Path

import pytest

from p2pexo.api.chat import HONOURED, IGNORED, NOT_OFFERED
from p2pexo.api.errors import FAULTS

PAGE = (Path(__file__).parents[3] / "docs" / "http.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(HONOURED - {"stream_options"} | IGNORED | set(NOT_OFFERED)))
def test_every_parameter_is_documented(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("code", [fault.openai.code for fault in FAULTS.values() if fault.openai.code])
def test_every_error_code_is_documented(code: str | int) -> None:
    assert f"{code}" in PAGE
