"""mlx-lm's model definitions without the rest of mlx-lm.

Importing ``mlx_lm`` runs its package file, which pulls in transformers: 2 s and 150 MB that a stage has no use for. The
model modules themselves need MLX alone, so the package is put in place without being run.
"""

import importlib
import importlib.util
import sys
from types import ModuleType

from p2pexo.models.support import module_of


def model_module(model_type: str) -> ModuleType:
    """The module with the ``Model`` and ``ModelArgs`` of a type that mlx-lm knows. Raises ImportError."""
    module = module_of(model_type)
    if module is None:
        raise ImportError(f"mlx-lm has no models of type {model_type!r}")
    return mlx_lm_module(module)


def cache_module() -> ModuleType:
    """``mlx_lm.models.cache``."""
    return mlx_lm_module("cache")


def mlx_lm_module(name: str) -> ModuleType:
    """A module of ``mlx_lm.models``. Raises ImportError."""
    _place_package()
    return importlib.import_module(f"mlx_lm.models.{name}")


def _place_package() -> None:
    if "mlx_lm" in sys.modules:
        return
    spec = importlib.util.find_spec("mlx_lm")
    if spec is None:
        raise ImportError("mlx-lm is not installed")
    sys.modules["mlx_lm"] = importlib.util.module_from_spec(spec)
