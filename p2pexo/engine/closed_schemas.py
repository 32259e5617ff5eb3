"""Closes the objects of a JSON schema that name their properties: no others are written.

Whatever fits the closed schema fits the open one. An open object tempts a small model to invent properties without end,
and nobody reads them; OpenAI's strict mode insists on closed ones.
"""

from collections.abc import Iterable
from typing import Any, cast

_JOINING = {"allOf", "not", "if", "dependentSchemas", "unevaluatedProperties"}
_JOINING_PROPERTIES = {"$ref", "anyOf", "oneOf"}
"""Beside ``properties``, these join several descriptions of one object."""

_NAMED = {"properties", "$defs", "definitions"}
"""Hold schemas by name."""
_NESTED = {"items", "prefixItems", "anyOf", "oneOf"}
"""Hold a schema, or several."""


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as it is if it joins descriptions of objects: closing one of them would shut out the others' properties."""
    return schema if any(map(_joins, _objects(schema))) else _close(schema)


def _joins(schema: dict[str, Any]) -> bool:
    return bool(_JOINING & schema.keys() or ("properties" in schema and _JOINING_PROPERTIES & schema.keys()))


def _objects(value: Any) -> Iterable[dict[str, Any]]:
    if isinstance(value, dict):
        yield cast(dict[str, Any], value)
    nested = cast(dict[str, Any], value).values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for each in cast(Iterable[Any], nested):
            yield from _objects(each)


def _close(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_close(each) for each in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    result = {key: _close_below(key, value) for key, value in cast(dict[str, Any], schema).items()}
    names = result.get("properties")
    says_more = result.keys() & {"additionalProperties", "patternProperties"}
    if isinstance(names, dict) and not says_more and set(result.get("required", ())) <= names.keys():
        result["additionalProperties"] = False
    return result


def _close_below(key: str, value: Any) -> Any:
    if key in _NAMED and isinstance(value, dict):
        return {name: _close(each) for name, each in cast(dict[str, Any], value).items()}
    return _close(value) if key in _NESTED else value
