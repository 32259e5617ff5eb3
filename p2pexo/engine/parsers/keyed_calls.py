"""Calls whose arguments are almost JSON: keys stand bare, and a mark of its own stands before and behind each string.

They come out as JSON, and strings as they come.
"""

import re
from functools import cached_property

from attrs import frozen

from p2pexo.engine.parsers.emitter import Emitter
from p2pexo.engine.parsers.scanner import Match, Pattern, Scanner, Steps, pattern
from p2pexo.engine.parsers.schemas import ToolSchemas, as_json, json_string

_DEEPEST = 32
"""Values inside of one another. What is nested deeper is no call that anybody means."""
_OBJECT, _LIST = pattern(r"\s*\{"), pattern(r"\s*\[")
_END_OF_OBJECT, _END_OF_LIST, _COMMA = pattern(r"\s*,?\s*\}"), pattern(r"\s*,?\s*\]"), pattern(r"\s*,")
_JSON_STRING = pattern(r'\s*(?=")')
_BARE = pattern(r"\s*(?P<bare>[^{}\[\],<\"]{1,256}?)\s*(?=[,}\]<])")


@frozen(slots=False)
class KeyedArguments:
    quote: str
    """Before and behind a string. JSON's own quotes are understood, too."""

    def read(self, scanner: Scanner, emitter: Emitter, head: Match, schemas: ToolSchemas) -> Steps[None]:
        yield from self._value(scanner, emitter, 0)

    def _value(self, scanner: Scanner, emitter: Emitter, depth: int) -> Steps[bool]:
        """Whether it was complete."""
        if depth > _DEEPEST:
            return False
        if (yield from scanner.match(_OBJECT)) is not None:
            return (yield from self._object(scanner, emitter, depth))
        if (yield from scanner.match(_LIST)) is not None:
            return (yield from self._list(scanner, emitter, depth))
        if (yield from scanner.match(self._string)) is not None:
            return (yield from self._text(scanner, emitter))
        if (yield from scanner.match(_JSON_STRING)) is not None:
            return (yield from scanner.json_value(emitter.arguments))
        bare = yield from scanner.match(_BARE)
        emitter.arguments(as_json(bare.group("bare"), frozenset()) if bare else "")
        return bare is not None

    def _object(self, scanner: Scanner, emitter: Emitter, depth: int) -> Steps[bool]:
        separator = "{"
        while (yield from scanner.match(_END_OF_OBJECT)) is None:
            key = yield from scanner.match(self._key)
            if key is None:
                return False
            emitter.arguments(f"{separator}{json_string(key.group('key').strip())}: ")
            separator = ", "
            if not (yield from self._value(scanner, emitter, depth + 1)):
                return False
        emitter.arguments("{}" if separator == "{" else "}")
        return True

    def _list(self, scanner: Scanner, emitter: Emitter, depth: int) -> Steps[bool]:
        separator = "["
        while (yield from scanner.match(_END_OF_LIST)) is None:
            emitter.arguments(separator)
            yield from scanner.match(_COMMA)
            separator = ", "
            if not (yield from self._value(scanner, emitter, depth + 1)):
                return False
        emitter.arguments("[]" if separator == "[" else "]")
        return True

    def _text(self, scanner: Scanner, emitter: Emitter) -> Steps[bool]:
        emitter.arguments('"')
        end = yield from scanner.until((self.quote,), lambda piece: emitter.arguments(json_string(piece)[1:-1]))
        emitter.arguments('"' if end else "")
        return bool(end)

    @cached_property
    def _string(self) -> Pattern:
        return pattern(rf"\s*{re.escape(self.quote)}")

    @cached_property
    def _key(self) -> Pattern:
        quote = rf'(?:"|{re.escape(self.quote)})?'
        return pattern(rf'\s*,?\s*{quote}(?P<key>[^{{}}\[\]:,<"]{{1,256}}?){quote}\s*:')
