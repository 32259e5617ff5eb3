"""How to run a part of a model, for each way in which mlx-lm's models are built."""

from p2pexo.engine.families.family import Family
from p2pexo.engine.families.table import FAMILIES, UnsupportedModelError, build

__all__ = ["FAMILIES", "Family", "UnsupportedModelError", "build"]
