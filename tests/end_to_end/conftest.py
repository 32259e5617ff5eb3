"""One cluster of three real nodes for all tests that leave it as they found it."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import openai
import pytest
from end_to_end.cluster import RealCluster, real_cluster

from p2pexo.models import gguf
from p2pexo.models.catalogue import EMBEDDED
from p2pexo.models.store import Store


@pytest.fixture(scope="session")
def cache() -> Path:
    """Kept between runs as long as the importer is the same: the embedded model is imported once."""
    importer = b"".join(file.read_bytes() for file in sorted(Path(gguf.__file__).parent.glob("gguf*.py")))
    return Path(tempfile.gettempdir()) / f"p2pexo-test-{os.getuid()}-{hashlib.sha256(importer).hexdigest()[:12]}"


@pytest.fixture(scope="session")
def embedded_directory(cache: Path) -> Path:
    return Store(cache).fetch(EMBEDDED)


@pytest.fixture(scope="session")
def edited_models(embedded_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Copies of the embedded model, each with one thing changed."""
    folder = tmp_path_factory.mktemp("models")

    def copy(name: str) -> Path:
        target = folder / name
        shutil.copytree(embedded_directory, target, copy_function=_link)
        for file in target.iterdir():
            if file.suffix != ".safetensors":
                _unlink_copy(file, embedded_directory / file.name)
        return target

    short = copy("short-context")
    _edit(short / "config.json", max_position_embeddings=512)
    ends_early = copy("ends-early")
    _edit(ends_early / "generation_config.json", eos_token_id=[2, 30])  # 30 is "." in this vocabulary
    ends_elsewhere = copy("ends-elsewhere")
    _edit(ends_elsewhere / "generation_config.json", eos_token_id=49151)
    without_template = copy("without-template")
    (without_template / "chat_template.jinja").unlink(missing_ok=True)
    _edit(without_template / "tokenizer_config.json", chat_template=None)
    broken_template = copy("broken-template")
    _edit(broken_template / "tokenizer_config.json", chat_template="{% for m in messages %}{{ m.content }")
    (broken_template / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }")
    return {path.name: path for path in (short, ends_early, ends_elsewhere, without_template, broken_template)}


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


def _unlink_copy(file: Path, source: Path) -> None:
    """Make it a file of its own, so that editing it leaves the original alone."""
    file.unlink()
    shutil.copyfile(source, file)


def _edit(file: Path, **values: object) -> None:
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | values))


@pytest.fixture(scope="session")
def cluster(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[RealCluster]:
    with real_cluster(tmp_path_factory.mktemp("cluster"), 3, ("--cache", str(cache))) as running:
        yield running


@pytest.fixture(scope="session")
def three_stages(cluster: RealCluster) -> RealCluster:
    """The embedded model on all three nodes."""
    cluster.place(min_stages=3)
    return cluster


def sdk(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)
