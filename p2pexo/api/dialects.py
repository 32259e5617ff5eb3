"""Whose language a route speaks: what goes wrong there is told in the same language."""

from enum import StrEnum


class Dialect(StrEnum):
    OPENAI = "openai"
    CLAUDE = "claude"
    OLLAMA = "ollama"


_BY_FIRST_SEGMENT = {"messages": Dialect.CLAUDE, "api": Dialect.OLLAMA, "ollama": Dialect.OLLAMA}


def dialect_of(path: str) -> Dialect:
    """The dialect of a path, also of one without a route and of one that is not canonical yet."""
    segments = [segment for segment in path.split("/") if segment]
    while segments[:1] == ["v1"]:
        del segments[0]
    return _BY_FIRST_SEGMENT.get(segments[0] if segments else "", Dialect.OPENAI)
