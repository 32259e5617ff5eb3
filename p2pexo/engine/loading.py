# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# mlx.nn is partly untyped
"""Loads the layers of one stage: of the weight files only the bytes of these layers are read."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
import psutil
from mlx.utils import tree_flatten

from p2pexo.engine.families import Family, build
from p2pexo.engine.precision import apply_precision, choose_precision, on_gpu
from p2pexo.models.architectures import packing, text_config
from p2pexo.models.directory import ModelDirectory, ModelFilesError

Progress = Callable[[float], None]
"""Told the share of the weights that is in memory, 0 to 1."""

_CPU_CACHE_BYTES = 64 * 1024 * 1024
"""Freed buffers that MLX keeps for reuse on a CPU. Raise it and more memory stays taken after a long prompt; lower it and
every step asks the system for memory anew."""

_WORD_BITS = 32
"""Packed weights are stored in words of this many bits."""

_NVFP4_GROUP = 16


def load_layers(
    directory: Path, *, first_layer: int, end_layer: int, precision: str, progress: Progress
) -> tuple[Family, dict[str, Any]]:
    """The layers and the ends beside them, evaluated; and the config of the language model, with its true sizes.

    Raises ModelFilesError when files are missing, cut or don't fit the config, and UnsupportedModelError.
    """
    files = ModelDirectory(directory)
    family = _lazy_layers(files, first_layer, end_layer)
    gpu = on_gpu()
    chosen = choose_precision(
        precision, gpu=gpu, dense_bytes=_dense_bytes(family.model), free_bytes=psutil.virtual_memory().available
    )
    apply_precision(family.model, chosen, gpu=gpu)
    _evaluate(family, progress, gpu=gpu)
    sizes = {
        "num_hidden_layers": family.layers_total,
        "hidden_size": family.hidden_size,
        "vocab_size": family.vocabulary_size,
    }
    return family, text_config(files.config) | sizes


def _lazy_layers(files: ModelDirectory, first_layer: int, end_layer: int) -> Family:
    """The layers with their weights still in the files. No other reference to the weights is left, so that quantised
    ones are freed as soon as their dense form is there."""
    family = build(files.config)
    weights = _lazy_weights(files, family.model)
    family.keep(first_layer, end_layer)
    _quantise(family.model, files.config, weights)
    family.model.load_weights(list(_fitting(family.model, weights, files).items()))
    family.model.eval()
    return family


def _lazy_weights(files: ModelDirectory, model: Any) -> dict[str, mx.array]:
    files.check()
    weights: dict[str, mx.array] = {}
    for shard in files.shards:
        weights |= cast(dict[str, mx.array], mx.load(str(files.path / shard)))
    if not hasattr(model, "sanitize"):
        return weights
    try:
        return model.sanitize(weights)
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        problem = f"{files.path} has no weights as config.json calls for: {type(error).__name__}: {error}"
        raise ModelFilesError(problem) from error


def _quantise(model: Any, config: Mapping[str, Any], weights: Mapping[str, mx.array]) -> None:
    """Give the modules that are stored quantised their quantised form. ``config`` may tell the layout of each; where it
    does not, the weights do: the layout that stands for all of them is not true of every one."""
    settings = packing(config)
    if settings is None:
        return

    def layout(path: str, module: nn.Module) -> bool | dict[str, Any]:
        if f"{path}.scales" not in weights or not hasattr(module, "to_quantized"):
            return False
        told = settings.get(path)
        return dict(told) if isinstance(told, Mapping) else _layout(module, weights, path)

    nn.quantize(
        model, settings["group_size"], settings["bits"], mode=settings.get("mode", "affine"), class_predicate=layout
    )


def _layout(module: Any, weights: Mapping[str, mx.array], path: str) -> dict[str, Any]:
    """How a weight is packed, by its shape and that of its scales; only affine ones keep scales in a floating type."""
    columns = module.weight.shape[-1]
    scales = weights[f"{path}.scales"]
    group_size = columns // scales.shape[-1]
    bits = weights[f"{path}.weight"].shape[-1] * _WORD_BITS // columns
    mode = "affine" if scales.dtype != mx.uint8 else "nvfp4" if group_size == _NVFP4_GROUP else f"mxfp{bits}"
    return {"group_size": group_size, "bits": bits, "mode": mode}


def _fitting(model: Any, weights: Mapping[str, mx.array], files: ModelDirectory) -> dict[str, mx.array]:
    """The weights of this stage alone, each of the shape that the config promises."""
    expected = cast(dict[str, mx.array], tree_flatten(model.parameters(), destination={}))
    for name, parameter in expected.items():
        if name not in weights:
            raise ModelFilesError(f"{files.path} has no weights for {name!r}, which config.json calls for")
        if weights[name].shape != parameter.shape:
            file = files.path / files.tensors[name].file if name in files.tensors else files.path
            shapes = f"shape {weights[name].shape}, but config.json calls for {parameter.shape}"
            raise ModelFilesError(f"{file}: {name!r} has {shapes}")
    return {name: weights[name] for name in expected}


def _dense_bytes(model: Any) -> int:
    """What the weights would take in dense fp32, counted from their shapes."""

    def values(module: Any) -> int:
        if "scales" in module:
            return module.scales.size * module.group_size
        return sum(array.size for array in arrays(module))

    return 4 * sum(values(module) for _, module in tree_flatten(model.leaf_modules(), is_leaf=nn.Module.is_module))


def arrays(module: Any) -> list[mx.array]:
    """All parameters of a module and of those inside it."""
    return [cast(mx.array, array) for _, array in tree_flatten(module.parameters())]


def _evaluate(family: Family, progress: Progress, *, gpu: bool) -> None:
    parts = family.parts
    for number, part in enumerate(parts, start=1):
        mx.eval(part.parameters())
        progress(number / len(parts))
    if not gpu:
        mx.set_cache_limit(_CPU_CACHE_BYTES)
    mx.clear_cache()
