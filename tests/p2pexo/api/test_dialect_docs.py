"""docs/claude.md and docs/ollama.md name what the code honours, ignores and refuses."""

from pathlib import Path

import pytest

from p2pexo.api import claude, ollama, ollama_options
from p2pexo.api.claude_messages import BILLING_HEADER
from p2pexo.api.ollama_routes import NOT_OFFERED, VERSION

DOCS = Path(__file__).parents[3] / "docs"
CLAUDE = (DOCS / "claude.md").read_text(encoding="utf-8")
OLLAMA = (DOCS / "ollama.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*sorted(claude.HONOURED | claude.IGNORED), *claude.NOT_OFFERED, BILLING_HEADER])
def test_what_claude_md_names(name: str) -> None:
    assert f"`{name}`" in CLAUDE


@pytest.mark.parametrize(
    "name",
    [
        *sorted(ollama.HONOURED_IN_CHAT | ollama.HONOURED_IN_GENERATE | ollama.IGNORED | set(ollama.NOT_OFFERED)),
        *sorted(ollama_options.HONOURED | ollama_options.IGNORED | set(ollama_options.NOT_OFFERED)),
        VERSION,
    ],
)
def test_what_ollama_md_names(name: str) -> None:
    assert f"`{name}`" in OLLAMA


@pytest.mark.parametrize("route", sorted(NOT_OFFERED))
def test_the_routes_that_are_not_there_are_told(route: str) -> None:
    assert route.partition("/")[0] in OLLAMA


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", ollama_options.TEMPERATURE),
        ("top_p", ollama_options.TOP_P),
        ("top_k", ollama_options.TOP_K),
    ],
)
def test_defaults_are_told(name: str, value: float) -> None:
    assert f"`{name}` ({value})" in OLLAMA
