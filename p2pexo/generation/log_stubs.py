"""Keeps log lines short, whatever is logged: prompts and pictures as their stubs, and no value longer than a paragraph."""

from collections.abc import Mapping, MutableMapping
from typing import Any, cast

from p2pexo.generation.text import StubText

MAX_CHARACTERS = 1000
"""Of one value in a log line. Raise it and a request of many messages may flood the log; lower it and reasons are cut."""

_WHOLE = frozenset({"event", "exc_info", "exception", "stack_info", "stack"})


def shorten(_: object, __: str, line: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """A processor for structlog. What is said, and the traces of errors, stay whole."""
    return {name: value if name in _WHOLE or name.startswith("_") else _short(value) for name, value in line.items()}


def _short(value: object) -> object:
    value = _stubbed(value)
    shown = value if isinstance(value, str) else repr(value)
    return value if len(shown) <= MAX_CHARACTERS else shown[:MAX_CHARACTERS] + "…"


def _stubbed(value: object) -> object:
    """Containers are looked into, since JSON would show what is in them whole; other objects are shown by ``repr``."""
    if isinstance(value, StubText):
        return repr(value)
    if isinstance(value, Mapping):
        return {name: _stubbed(each) for name, each in cast(Mapping[object, object], value).items()}
    if isinstance(value, list | tuple):
        return [_stubbed(each) for each in cast(list[object], value)]
    return value
