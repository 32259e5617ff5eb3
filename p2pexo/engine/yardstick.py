# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# mlx.nn is partly untyped
"""Measures how fast this machine computes, by a few layers of a transformer made up for it.

The layers are larger than a processor's caches, so that each token reads its weights from memory, as those of a real
model do; and in the form in which stages load theirs.
"""

import time
from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn
from attrs import frozen

from p2pexo.engine.loading import arrays
from p2pexo.engine.precision import on_gpu
from p2pexo.engine.speeds import ComputeSpeed

_BITS, _GROUP_SIZE = 4, 64
_HEADS = 16


@frozen
class Load:
    """What is computed."""

    width: int
    layers: int
    decode_s: float = 0.15
    """How long to compute single tokens. Raise it and the figure is steadier; lower it and a start costs less."""
    prefill_s: float = 0.15
    """Prompts grow until one takes so long. Raise it and slow machines are measured with longer ones."""
    longest: int = 512
    """Rows of a prompt, at most."""


CPU_LOAD = Load(1024, 1)
"""64 MB of dense weights, or 9 MB of quantised ones, whose products are bound by computing there."""
GPU_LOAD = Load(2048, 2)
"""75 MB of quantised weights; a GPU is so fast that smaller ones would measure how long it takes to call it."""


class _Layer(nn.Module):
    """Attention and a gated feed-forward part four times as wide, as in Llama."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, 4 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(4 * width, width, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        """(rows, width) to the same."""
        normed = self.norm(x)
        heads = [_split(project(normed)) for project in (self.query, self.key, self.value)]
        scale = heads[0].shape[-1] ** -0.5
        seen = mx.fast.scaled_dot_product_attention(heads[0], heads[1], heads[2], scale=scale, mask="causal")
        x = x + self.out(seen.swapaxes(1, 2).reshape(x.shape))
        normed = self.norm(x)
        return x + self.down(nn.silu(self.gate(normed)) * self.up(normed))


def measure_speed(*, dense: bool, load: Load | None = None) -> ComputeSpeed:
    """``dense``: with plain fp32 weights, else with 4-bit ones. Takes about half a second; call it while nothing else computes."""
    load = load or (GPU_LOAD if on_gpu() and not dense else CPU_LOAD)
    dtype = mx.float16 if on_gpu() and not dense else mx.float32
    layers = [_make_layer(load.width, dtype, dense=dense) for _ in range(load.layers)]

    def seconds(rows: int) -> float:
        x = mx.ones((rows, load.width), dtype)
        mx.eval(x)
        began = time.perf_counter()
        for layer in layers:
            x = layer(x)
        mx.eval(x)
        return time.perf_counter() - began

    weight_bytes = sum(array.nbytes for layer in layers for array in arrays(layer))
    weights = load.layers * 16 * load.width**2  # four matrices of width² and three of 4 width²
    decode_s = _fastest(lambda: seconds(1), load.decode_s)
    return ComputeSpeed(weight_bytes / decode_s, 2 * weights * _rows_per_s(seconds, load))


def _make_layer(width: int, dtype: mx.Dtype, *, dense: bool) -> _Layer:
    """One matrix after another, so that little memory is needed at a time."""
    layer = _Layer(width)
    layer.set_dtype(dtype)
    if not dense:
        nn.quantize(layer, group_size=_GROUP_SIZE, bits=_BITS)
    for array in arrays(layer):
        mx.eval(array)
    return layer


def _rows_per_s(seconds: Callable[[int], float], load: Load) -> float:
    """Of a prompt that takes at least ``load.prefill_s``. Twice if that is quick: kernels are compiled at the first time."""
    rows = 32
    while (took_s := seconds(rows)) < load.prefill_s and rows < load.longest:
        rows *= 2
    return rows / (took_s if took_s > 2 * load.prefill_s else min(took_s, seconds(rows)))


def _fastest(measure: Callable[[], float], within_s: float) -> float:
    """Of as many as that time allows, and three at least: others may use the machine meanwhile, too."""
    times = [measure() for _ in range(3)]
    while sum(times) < within_s:
        times.append(measure())
    return min(times)


def _split(x: mx.array) -> mx.array:
    """(rows, width) to (1, heads, rows, width of a head)."""
    return x.reshape(1, x.shape[0], _HEADS, -1).swapaxes(1, 2)
