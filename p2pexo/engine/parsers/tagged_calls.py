"""Calls whose arguments are parameters between tags. They come out as JSON, and strings as they come."""

from attrs import frozen

from p2pexo.engine.parsers.emitter import Emitter
from p2pexo.engine.parsers.scanner import Match, Pattern, Scanner, Steps
from p2pexo.engine.parsers.schemas import ToolSchemas, as_json, json_string

_STRING = frozenset({"string"})


@frozen
class TaggedArguments:
    parameter: Pattern
    """The beginning of a parameter, up to its value; its group ``key`` is its name, ``string`` whether it is a string."""
    ends: tuple[str, ...]
    """Marks behind a value."""

    def read(self, scanner: Scanner, emitter: Emitter, head: Match, schemas: ToolSchemas) -> Steps[None]:
        tool = head.group("name").strip()
        separator = "{"
        while (begin := (yield from scanner.match(self.parameter))) is not None:
            key = begin.group("key").strip()
            emitter.arguments(f"{separator}{json_string(key)}: ")
            separator = ", "
            if not (yield from self._value(scanner, emitter, begin, schemas.types(tool, key))):
                return
        if not scanner.ended:
            emitter.arguments("{}" if separator == "{" else "}")

    def _value(self, scanner: Scanner, emitter: Emitter, begin: Match, types: frozenset[str]) -> Steps[bool]:
        """Whether the value was complete."""
        declared = begin.groupdict().get("string")
        if declared == "true" or (declared is None and types == _STRING):
            emitter.arguments('"')
            end = yield from scanner.until(self.ends, lambda piece: emitter.arguments(json_string(piece)[1:-1]))
            emitter.arguments('"' if end else "")
            return bool(end)
        text, end = yield from scanner.collect(self.ends)
        emitter.arguments(as_json(text, frozenset() if declared else types) if end else "")
        return bool(end)
