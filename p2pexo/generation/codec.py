"""Requests, events and other frozen classes as JSON bytes, between processes and machines."""

from typing import Any, TypeVar, cast

import orjson
from cattrs import BaseValidationError, transform_error
from cattrs.preconf.orjson import make_converter
from cattrs.strategies import configure_tagged_union

from p2pexo.generation.events import Event
from p2pexo.generation.text import Picture, PictureHash, Prompt

T = TypeVar("T")

converter = make_converter()
for _text in (Prompt, Picture, PictureHash):
    converter.register_structure_hook(_text, lambda value, cls: cls(value))
    converter.register_unstructure_hook(_text, str)
configure_tagged_union(Event, converter, tag_name="event")


class DecodeError(ValueError):
    """The bytes are not what was expected; the message lists every field that is wrong."""


def encode(value: Any, cls: Any = None) -> bytes:
    """JSON bytes of a value; ``cls`` names the union when the value is one of several classes."""
    return orjson.dumps(converter.unstructure(value, unstructure_as=cls or type(value)))


def decode(data: bytes, cls: type[T]) -> T:
    """The value that ``encode`` wrote. Unknown fields are ignored. Raises DecodeError."""
    try:
        return converter.structure(orjson.loads(data), cls)
    except orjson.JSONDecodeError as error:
        raise DecodeError(f"not JSON: {error}") from error
    except (BaseValidationError, KeyError, ValueError, TypeError) as error:
        raise DecodeError("; ".join(transform_error(error))) from error


def encode_event(event: Event) -> bytes:
    return encode(event, Event)


def decode_event(data: bytes) -> Event:
    return cast(Event, decode(data, cast(Any, Event)))
