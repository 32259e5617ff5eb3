from pathlib import Path

import pytest

from p2pexo.models.gguf import embedded_gguf, import_gguf


@pytest.fixture(scope="session")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model's directory, imported afresh."""
    directory = tmp_path_factory.mktemp("imported") / "model"
    import_gguf(embedded_gguf(), directory)
    return directory
