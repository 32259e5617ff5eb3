"""Values as JSON: numbers, texts, bytes (as base64), attrs classes, and collections of them."""

from base64 import b64decode, b64encode
from typing import TypeVar

import orjson
from cattrs import BaseValidationError, transform_error
from cattrs.preconf.orjson import make_converter

Value = TypeVar("Value")

_converter = make_converter()
_converter.register_unstructure_hook(bytes, lambda value: b64encode(value).decode())
_converter.register_structure_hook(bytes, lambda value, _: b64decode(value, validate=True))


def encode_value(value: Value, cls: type[Value]) -> bytes:
    return orjson.dumps(_converter.unstructure(value, unstructure_as=cls))


def decode_value(data: bytes, cls: type[Value]) -> Value:
    """Unknown fields are ignored. Raises ValueError that lists what is wrong."""
    try:
        return _converter.structure(orjson.loads(data), cls)
    except (BaseValidationError, KeyError, TypeError) as error:
        raise ValueError("; ".join(transform_error(error))) from error
