"""Which models can be run, and how; known here, so that one that can't is refused before its weights are fetched anywhere.

Those of our own table are cut into stages. Any other that mlx-lm has a module for runs whole, as one stage.
"""

import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from p2pexo.generation.errors import InvalidRequestError
from p2pexo.models.architectures import ARCHITECTURES, obstacle, packing, packing_method

_NAMED_OTHERWISE = {
    "deepseek_v41_text": "deepseek_v41",
    "falcon_mamba": "mamba",
    "joyai_llm_flash": "deepseek_v3",
    "llava": "mistral3",
    "phi-msft": "phixtral",
    "qwen2_5_vl": "qwen2_vl",
}
"""Model types outside our table whose mlx-lm module has another name; its own list can't be had without all of mlx-lm."""


def supported() -> str:
    """The model types that can be cut, for messages."""
    return ", ".join(sorted(ARCHITECTURES))


def module_of(model_type: str) -> str | None:
    """The mlx-lm module with the code of such models; None if there is none."""
    if model_type in ARCHITECTURES:
        return ARCHITECTURES[model_type].module
    return _others().get(_NAMED_OTHERWISE.get(model_type, model_type))


def runs_whole(config: Mapping[str, Any]) -> bool:
    """Whether a model that can be run can't be cut into stages."""
    return str(config.get("model_type")) not in ARCHITECTURES or obstacle(config) is not None


def check_architecture(id: str, architecture: str) -> None:
    """Raises InvalidRequestError unless the engine can run such a model."""
    if module_of(architecture) is None:
        message = (
            f"{id!r} is of the architecture {architecture!r}, which can't be run here, nor by mlx-lm; supported on several "
            f"machines are {supported()}"
        )
        raise InvalidRequestError(message, param="model")


def check_config(id: str, config: Mapping[str, Any]) -> None:
    """Raises InvalidRequestError unless such a model can be run: its architecture, and how its weights are packed."""
    check_architecture(id, str(config.get("model_type")))
    if config.get("quantization_config") and packing(config) is None:
        message = (
            f"{id!r} is quantised by {packing_method(config)!r}, which can't be read here; choose one that mlx-lm made, "
            "or a plain one"
        )
        raise InvalidRequestError(message, param="model")


@cache
def _others() -> dict[str, str]:
    """The modules of mlx-lm that define a model, by name. Found as files: importing them would import MLX."""
    package = importlib.util.find_spec("mlx_lm")
    folders = package.submodule_search_locations if package else None
    files = [file for folder in folders or () for file in (Path(folder) / "models").glob("*.py")]
    return {file.stem: file.stem for file in files if "\nclass Model(" in file.read_text(encoding="utf-8")}
