"""JSON into attrs classes, by their annotations.

Fields that are not known are skipped, and those that are missing get their defaults: a client gets along with a node
of another version.
"""

from functools import cache
from json import JSONDecodeError, loads
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin

import attrs

from p2pexo.client.errors import UnexpectedAnswerError

T = TypeVar("T")


def read(cls: type[T], content: bytes | str) -> T:
    """The object that the JSON text holds. Raises UnexpectedAnswerError, naming the field that is wrong."""
    try:
        value: object = loads(content)
    except (JSONDecodeError, UnicodeDecodeError) as error:
        raise UnexpectedAnswerError(f"the node sent something that is not JSON: {content[:80]!r} ({error})") from error
    return cast(T, _built(cls, value, cls.__name__))


def _built(kind: Any, value: object, path: str) -> object:
    origin = get_origin(kind)
    if attrs.has(kind):
        return _object(kind, value, path)
    if origin is tuple and isinstance(value, list):
        items = cast(list[object], value)
        return tuple(_built(get_args(kind)[0], item, f"{path}[{index}]") for index, item in enumerate(items))
    if origin is UnionType:
        return None if value is None else _built(get_args(kind)[0], value, path)
    if kind is float and isinstance(value, int):
        return float(value)
    if origin is None and isinstance(value, kind):
        return value
    raise UnexpectedAnswerError(f"{path}: expected {kind}, the node sent {value!r:.80}")


def _object(kind: type[attrs.AttrsInstance], value: object, path: str) -> object:
    if not isinstance(value, dict):
        raise UnexpectedAnswerError(f"{path}: expected an object, the node sent {value!r:.80}")
    given = {name: each for name, each in cast(dict[str, object], value).items() if each is not None}
    types = _types(kind)
    try:
        return kind(**{name: _built(types[name], given[name], f"{path}.{name}") for name in types if name in given})
    except TypeError as error:
        raise UnexpectedAnswerError(f"{path}: {error}") from error


@cache
def _types(kind: type[attrs.AttrsInstance]) -> dict[str, Any]:
    return {each.name: each.type for each in attrs.fields(attrs.resolve_types(kind)) if each.init}
