"""Models to compute with: a tiny one with random weights, and the real embedded one, imported once."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from tiny_models import BASE

from p2pexo.engine.mlx_models import model_module
from p2pexo.models.catalogue import EMBEDDED
from p2pexo.models.store import Store

TINY: dict[str, Any] = BASE | {"model_type": "llama", "tie_word_embeddings": True, "eos_token_id": 2}

MakeModel = Callable[..., Path]


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Writes a model directory with random weights; arguments override the config of ``TINY``."""

    def make(**changes: Any) -> Path:
        config = {**TINY, **changes}
        directory = tmp_path_factory.mktemp("model")
        module = model_module(config["model_type"])
        mx.random.seed(7)
        model = module.Model(module.ModelArgs.from_dict(config))
        arrays = cast(list[tuple[str, mx.array]], tree_flatten(model.parameters()))
        weights = {name: mx.random.normal(each.shape) * 0.2 for name, each in arrays}
        mx.save_safetensors(str(directory / "model.safetensors"), weights)
        (directory / "config.json").write_text(json.dumps(config))
        return directory

    return make


@pytest.fixture(scope="session")
def tiny_model(make_model: MakeModel) -> Path:
    return make_model()


@pytest.fixture(scope="session")
def real_model() -> Path:
    """The embedded model's directory. Kept between runs in P2PEXO_TEST_CACHE, or the system's folder for such things."""
    default = Path(tempfile.gettempdir()) / f"p2pexo-tests-{os.getuid()}"
    cache = Path(os.environ.get("P2PEXO_TEST_CACHE", default))
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Store(cache).fetch(EMBEDDED)


@pytest.fixture(scope="module")
def uncompiled() -> Iterator[None]:
    """Without the kernels that MLX compiles on the spot: where none are in store yet, many take most of a minute."""
    mx.disable_compile()
    yield
    mx.enable_compile()
