"""The pages name what the code honours, ignores and refuses, and every error."""

from pathlib import Path

import pytest

from p2pexo.api import chat, completions, error_page
from p2pexo.api.errors import FAULTS
from p2pexo.api.metrics import Metrics
from p2pexo.cluster.snapshot import ClusterSnapshot

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "http.md").read_text(encoding="utf-8")

CHAT = chat.HONOURED | chat.IGNORED | set(chat.NOT_OFFERED)
COMPLETIONS = completions.HONOURED | completions.IGNORED | set(completions.NOT_OFFERED)


@pytest.mark.parametrize("name", sorted((CHAT | COMPLETIONS) - {"stream_options"}))
def test_every_parameter_is_documented(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_the_page_of_errors_is_what_the_table_says() -> None:
    assert (DOCS / "errors.md").read_text(encoding="utf-8") == error_page.render()
    assert set(error_page.MEANINGS) == set(FAULTS)


def test_every_figure_is_documented() -> None:
    told = Metrics(lambda: ClusterSnapshot("desk", "a", None, 0, False, (), ())).render().decode().splitlines()
    names = [line.split(" ")[2] for line in told if line.startswith("# TYPE")]
    assert len(names) == 17
    assert all(f"`{name}`" in PAGE for name in names)
