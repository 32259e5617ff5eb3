# pyright: reportUnknownMemberType=false
# some of MLX's signatures are untyped
"""Hidden states as raw bytes: the rows one after another, little-endian, in the dtype that the model computes with.

Python's buffers know no bfloat16 and MLX takes no half floats from them, so both travel as unsigned integers of the
same width.
"""

from math import prod
from typing import Any, cast

import mlx.core as mx

_NAMES = {mx.float32: "float32", mx.float16: "float16", mx.bfloat16: "bfloat16"}
_CARRIERS = {4: mx.uint32, 2: mx.uint16}
_FORMATS = {4: "I", 2: "H"}


def dtype_name(dtype: mx.Dtype) -> str:
    return _NAMES[dtype]


def to_wire(rows: mx.array) -> memoryview:
    """The bytes of a (rows, hidden size) array, which is evaluated; not copied unless its rows lie apart."""
    carrier = mx.contiguous(rows).view(_CARRIERS[rows.dtype.size])
    return memoryview(cast(Any, carrier)).cast("B")


def from_wire(data: bytes | memoryview, dtype: mx.Dtype, shape: tuple[int, int]) -> mx.array:
    """Raises ValueError when the bytes don't have the size of the shape."""
    expected = prod(shape) * dtype.size
    view: Any = memoryview(data)
    if view.nbytes != expected:
        raise ValueError(
            f"hidden states of {view.nbytes} bytes came where {shape} {dtype_name(dtype)} takes {expected}"
        )
    return mx.array(view.cast("B").cast(_FORMATS[dtype.size])).view(dtype).reshape(shape)
