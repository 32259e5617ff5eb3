"""The arguments of a tool call, for dialects that tell them as an object and not as text."""

from collections.abc import Mapping
from typing import cast

import orjson


def read_arguments(text: str) -> Mapping[str, object] | None:
    """None if the text is no JSON object: the call was cut off, and what is left must not be taken for it."""
    try:
        arguments: object = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return None
    return cast(Mapping[str, object], arguments) if isinstance(arguments, dict) else None
