"""The tools of a request as the parsers need them: their names, and which JSON type a parameter has."""

import ast
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, cast

from attrs import frozen

from p2pexo.generation.request import Tool

_KINDS: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


@frozen
class ToolSchemas:
    parameters: Mapping[str, Mapping[str, Any]]
    """By tool, by parameter: its JSON schema."""

    @classmethod
    def of(cls, tools: Iterable[Tool]) -> Self:
        return cls({tool.name: _properties(tool.parameters) for tool in tools})

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.parameters)

    def types(self, tool: str, parameter: str) -> frozenset[str]:
        """The JSON types that the parameter may have; empty if the schema doesn't say."""
        return frozenset(_types(self.parameters.get(tool, {}).get(parameter)))


def as_json(text: str, types: frozenset[str]) -> str:
    """The JSON of a value that a model wrote without quotes: what its types allow, and a string if nothing else fits."""
    try:
        value = _literal(text.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return json_string(text)
    fits = not types or "string" not in types or bool(types & _kinds(value))
    return json.dumps(value, ensure_ascii=False, allow_nan=False) if fits else json_string(text)


def json_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _literal(text: str) -> Any:
    """A value of JSON, or of Python, which some models write instead. Raises ValueError and others of its kind."""
    try:
        value = json.loads(text)
    except ValueError:
        value = ast.literal_eval(text)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{text} is no number of JSON")
    json.dumps(value, allow_nan=False)
    return value


def _kinds(value: object) -> set[str]:
    if value is None:
        return {"null"}
    kind = _KINDS.get(type(value), "array")
    return {kind, "number"} if kind == "integer" else {kind}


def _properties(parameters: str) -> dict[str, Any]:
    try:
        schema = json.loads(parameters)
    except ValueError:
        return {}
    properties = cast(dict[str, Any], schema).get("properties") if isinstance(schema, dict) else None
    return cast(dict[str, Any], properties) if isinstance(properties, dict) else {}


def _types(schema: object) -> Iterable[str]:
    if not isinstance(schema, Mapping):
        return
    rules = cast(Mapping[str, Any], schema)
    named = rules.get("type", ())
    yield from [named] if isinstance(named, str) else cast(Sequence[str], named)
    for value in rules.get("enum", ()):
        yield from _kinds(value)
    for several in ("anyOf", "oneOf", "allOf"):
        for each in rules.get(several, ()):
            yield from _types(each)
