"""Calls whose arguments are JSON: they are handed on as they come."""

import json
import re
from collections.abc import Iterable

from p2pexo.engine.parsers.emitter import Emitter
from p2pexo.engine.parsers.scanner import Match, Scanner, Steps, pattern
from p2pexo.engine.parsers.schemas import ToolSchemas

_QUOTE = pattern('(?=")')
_NOTHING = pattern(r"null|(?=\})")
_OTHER_KEYS = r'"(?:id|type)"\s*:\s*"[^"\\]*"\s*'

OBJECT_TAIL = rf"\s*(?:,\s*{_OTHER_KEYS})*\}}"
"""Behind the arguments of a call that is an object."""


def object_head(names: Iterable[str] = ()) -> str:
    """Source of a pattern: ``{"name": "f", "arguments": `` of a call to one of these tools, or to any if none is given."""
    name = "|".join(map(re.escape, names)) or r'[^"\\]{1,256}'
    arguments = r',\s*"(?:arguments|parameters)"\s*:\s*(?=[{"n])|(?=\})'
    return rf'\{{\s*(?:{_OTHER_KEYS},\s*)*"name"\s*:\s*"(?P<name>{name})"\s*(?:{arguments})'


class JsonArguments:
    """An object; or, as some models write it, a string that holds one, or null, or nothing at all."""

    def read(self, scanner: Scanner, emitter: Emitter, head: Match, schemas: ToolSchemas) -> Steps[None]:
        if (yield from scanner.match(_QUOTE)) is not None:
            parts: list[str] = []
            complete = yield from scanner.json_value(parts.append)
            emitter.arguments(_unquoted("".join(parts)) if complete else "".join(parts))
        elif (yield from scanner.match(_NOTHING)) is not None:
            emitter.arguments("{}")
        else:
            yield from scanner.json_value(emitter.arguments)


def _unquoted(text: str) -> str:
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return text
