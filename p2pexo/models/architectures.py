"""Which models can be run; known here, so that one that can't is refused before its weights are fetched anywhere."""

from collections.abc import Mapping
from typing import Any, cast

from p2pexo.generation.errors import InvalidRequestError

ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "iquestcoder": "llama",
    "xverse": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
}
"""By ``model_type`` in config.json, the mlx-lm module with the model's code. The engine has a family for each module."""

SEES_KEY = "p2pexo_sees"
"""In config.json: says that a model takes pictures. No family of the engine does; the scripted engine, for tests, may."""


def check_architecture(id: str, architecture: str) -> None:
    """Raises InvalidRequestError unless the engine can run such a model."""
    if architecture not in ARCHITECTURES:
        offered = ", ".join(sorted(ARCHITECTURES))
        message = f"{id!r} is of the architecture {architecture!r}, which can't be run here; supported are {offered}"
        raise InvalidRequestError(message, param="model")


def check_config(id: str, config: Mapping[str, Any]) -> None:
    """Raises InvalidRequestError unless such a model can be run: its architecture, and how its weights are packed."""
    check_architecture(id, str(config.get("model_type")))
    theirs = config.get("quantization_config")
    if theirs and not config.get("quantization"):
        method = cast(Mapping[str, Any], theirs).get("quant_method") if isinstance(theirs, Mapping) else theirs
        message = (
            f"{id!r} is quantised by {method!r}, which can't be read here; choose one that mlx-lm made, or a plain one"
        )
        raise InvalidRequestError(message, param="model")
