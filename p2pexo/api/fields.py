"""Reads the fields of a JSON object: each is absent, or of the right kind and in range, or named in the error.

``null`` is the same as absent, since SDKs send optional fields either way.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar, cast

import orjson
from attrs import frozen

from p2pexo.generation.errors import InvalidRequestError

D = TypeVar("D")
T = TypeVar("T")

_SHOWN_CHARACTERS = 60


@frozen
class Range:
    """The numbers from ``low`` to ``high``, both included unless ``low_open``."""

    low: int
    high: int
    low_open: bool = False

    def __contains__(self, number: float) -> bool:
        return (self.low < number if self.low_open else self.low <= number) and number <= self.high

    def __str__(self) -> str:
        return f"above {self.low}, up to {self.high}" if self.low_open else f"from {self.low} to {self.high}"


@frozen
class Fields:
    """One JSON object; ``path`` is where it stands in the body, such as ``messages[0]``."""

    values: Mapping[str, object]
    path: str = ""

    def name_of(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def get(self, name: str) -> object:
        return self.values.get(name)

    def present(self) -> Iterator[str]:
        return (name for name, value in self.values.items() if value is not None)

    def number(self, name: str, default: D, within: Range) -> float | D:
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool) or value not in within:
            raise self.wrong(name, f"a number {within}")
        return float(value)

    def integer(self, name: str, default: D, within: Range) -> int | D:
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value not in within:
            raise self.wrong(name, f"a whole number {within}")
        return value

    def boolean(self, name: str, default: bool = False) -> bool:
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return default if value is None else value

    def text(self, name: str, default: D) -> str | D:
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "a string")
        return default if value is None else value

    def required_text(self, name: str) -> str:
        value = self.text(name, None)
        if value is None:
            raise self.wrong(name, "a string")
        return value

    def choice(self, name: str, default: str, choices: Collection[str]) -> str:
        value = self.text(name, default)
        if value not in choices:
            raise self.wrong(name, "one of " + ", ".join(choices))
        return value

    def child(self, name: str) -> "Fields | None":
        value = self.get(name)
        return None if value is None else as_object(value, self.name_of(name))

    def children(self, name: str) -> "tuple[Fields, ...]":
        """The list of objects under ``name``; empty when absent."""
        return self.items(name, as_object)

    def items(self, name: str, read: Callable[[object, str], T]) -> tuple[T, ...]:
        """The list under ``name``, each item read by ``read(item, its path)``; empty when absent."""
        value = self.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.wrong(name, "a list")
        items = cast(list[object], value)
        return tuple(read(item, f"{self.name_of(name)}[{index}]") for index, item in enumerate(items))

    def wrong(self, name: str, expected: str) -> InvalidRequestError:
        return wrong(self.name_of(name), expected, self.get(name))


def wrong(path: str, expected: str, value: object) -> InvalidRequestError:
    found = "nothing" if value is None else shown(value)
    return InvalidRequestError(f"{path}: expected {expected}, got {found}", param=path)


def as_object(value: object, path: str) -> Fields:
    if not isinstance(value, dict):
        raise wrong(path, "an object", value)
    return Fields(cast(dict[str, object], value), path)


def as_text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise wrong(path, "a string", value)
    return value


def shown(value: object) -> str:
    """The value as JSON, cut to what fits in a line."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def read_body(body: bytes) -> Fields:
    """The JSON object that a request carries. The content type is not looked at. Raises InvalidRequestError."""
    try:
        value: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"the body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequestError(f"the body must be a JSON object, got {shown(value)}")
    return Fields(cast(dict[str, object], value))
