from pathlib import Path

from p2pexo.models import page
from p2pexo.models.architectures import Caching

PAGE = Path(__file__).parents[3] / "docs" / "models.md"


def test_the_page_of_models_is_what_the_table_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page.render()
    assert set(page.CACHES) == set(Caching)
