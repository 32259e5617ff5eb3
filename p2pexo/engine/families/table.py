# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# mlx-lm's models are untyped
"""Which family runs which model.

To offer another one, name the module of its layers in ``FAMILIES``, with a class of its own if it does something in its
own way, and its model type in ``models.architectures``; then give it a tiny model in the tests.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from p2pexo.engine.families.family import Family
from p2pexo.engine.families.variants import (
    Gemma2Family,
    Gemma3Family,
    Gemma4Family,
    LatentAttentionFamily,
    Llama4Family,
    Ministral3Family,
    PhiFamily,
)
from p2pexo.engine.families.whole import WholeFamily
from p2pexo.engine.mlx_models import model_module
from p2pexo.models.directory import ModelFilesError
from p2pexo.models.support import module_of, runs_whole, supported

FAMILIES: dict[str, type[Family]] = {
    "llama": Family,
    "qwen2": Family,
    "qwen3": Family,
    "qwen2_moe": Family,
    "qwen3_moe": Family,
    "qwen3_next": Family,
    "qwen3_5": Family,
    "gemma3_text": Gemma3Family,
    "gemma4_text": Gemma4Family,
    "gpt_oss": Family,
    "deepseek_v3": LatentAttentionFamily,
    "deepseek_v32": LatentAttentionFamily,
    "glm4": Family,
    "glm4_moe": Family,
    "glm4_moe_lite": LatentAttentionFamily,
    "ministral3": Ministral3Family,
    "phi": PhiFamily,
    "phi3": Family,
    "phimoe": Family,
    "mixtral": Family,
    "minimax": Family,
    "gemma2": Gemma2Family,
    "olmo2": Family,
    "olmo3": Family,
    "seed_oss": Family,
    "llama4": Llama4Family,
}
"""By the mlx-lm module that defines the stack of layers; several kinds of models may stand on one."""


class UnsupportedModelError(Exception):
    """No family can run this model."""


def build(config: Mapping[str, Any]) -> Family:
    """An mlx-lm model without weights; in a family that can't cut it, if it has no other. Raises UnsupportedModelError, and ModelFilesError for a config that lacks something."""
    model_type = str(config.get("model_type"))
    if module_of(model_type) is None:
        raise UnsupportedModelError(f"models of type {model_type!r} can't be run here; supported are {supported()}")
    model = _model(model_type, config)
    if runs_whole(config):
        return WholeFamily(model)
    stack = type(getattr(model, "language_model", model).model).__module__.rpartition(".")[2]
    if stack not in FAMILIES:
        raise UnsupportedModelError(f"a model of type {model_type!r} around one of {stack!r} can't be run here")
    return FAMILIES[stack](model)


def _model(model_type: str, config: Mapping[str, Any]) -> Any:
    module = model_module(model_type)
    try:
        return module.Model(module.ModelArgs.from_dict(deepcopy(dict(config))))  # mlx-lm writes into what it is given
    except (TypeError, ValueError, KeyError, AttributeError, AssertionError) as error:
        problem = f"config.json does not describe a model of type {model_type!r}: {error}"
        raise ModelFilesError(problem) from error
