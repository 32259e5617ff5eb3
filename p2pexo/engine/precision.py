# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# mlx.nn is partly untyped
"""Which numbers a stage computes with.

On Apple's GPUs quantised weights are fast and stay as they are. MLX's CPU kernels are another matter: a quantised
product runs on one core without SIMD, some 20 times slower than a dense fp32 one through a good BLAS, and half
precision is slower still.
"""

from enum import StrEnum
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten

from p2pexo.engine.mlx_models import mlx_lm_module

_SPARE = 0.8
"""Share of the free memory that dense weights may take. Raise it and the caches may not fit; lower it and more models
run quantised, slowly."""


class Precision(StrEnum):
    KEEP = "keep"
    """Weights stay quantised as stored. Least memory; on a CPU, activations are fp32."""
    DEQUANTISE = "dequantise"
    """Weights become dense fp32. Fast on a CPU with a BLAS; up to eight times the memory of 4-bit weights."""


def on_gpu() -> bool:
    return mx.default_device() == mx.Device(mx.gpu)


def choose_precision(setting: str, *, gpu: bool, dense_bytes: int, free_bytes: int) -> Precision:
    """``setting`` is ``keep``, ``dequantise`` or ``auto``: dense on a CPU when the memory allows it, else kept.

    Raises ValueError for any other setting.
    """
    if setting != "auto":
        return Precision(setting)
    fits = dense_bytes <= free_bytes * _SPARE
    return Precision.DEQUANTISE if fits and not gpu else Precision.KEEP


def apply_precision(model: Any, precision: Precision, *, gpu: bool) -> None:
    """Rewrite the model's weights lazily: nothing is read or computed before they are evaluated."""
    if precision is Precision.DEQUANTISE or not gpu:
        model.set_dtype(mx.float32)
    if precision is Precision.DEQUANTISE:
        dense = [(name, _dense(module)) for name, module in model.named_modules() if _is_quantised(module)]
        model.update_modules(tree_unflatten(dense))


def _is_quantised(module: Any) -> bool:
    return "scales" in module and "weight" in module


def _dense(module: Any) -> nn.Module:
    """The same module of dense fp32 weights; those of experts and of heads are stacked, a matrix each."""
    weight = mx.dequantize(
        module.weight,
        module.scales,
        module.get("biases"),
        module.group_size,
        module.bits,
        module.mode,
        dtype=mx.float32,
    )
    dense = _blank(module)
    dense.weight = weight
    if "bias" in module:
        dense.bias = module.bias
    return dense


def _blank(module: Any) -> Any:
    """The dense counterpart of a quantised module, without weights of its own."""
    if isinstance(module, nn.QuantizedEmbedding):
        return nn.Embedding(1, 1)
    if isinstance(module, nn.QuantizedLinear):
        return nn.Linear(1, 1, bias=False)
    if isinstance(module, mlx_lm_module("switch_layers").QuantizedSwitchLinear):
        return mlx_lm_module("switch_layers").SwitchLinear(1, 1, 1, bias=False)
    if isinstance(module, mlx_lm_module("mla").QuantizedMultiLinear):
        return mlx_lm_module("mla").MultiLinear(1, 1, 1)
    raise TypeError(f"a quantised {type(module).__name__} can't be made dense; load the model with precision 'keep'")
