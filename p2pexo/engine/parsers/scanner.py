# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# regex has no stubs
"""Text that comes in pieces, for grammars written as generators: they yield when they need more.

What a grammar reads depends on the text alone, never on how it is cut.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Protocol, TypeVar, cast

import regex

T = TypeVar("T")
Steps = Generator[None, None, T]
Sink = Callable[[str], object]


class Match(Protocol):
    def group(self, name: str) -> str: ...
    def groupdict(self) -> Mapping[str, str | None]: ...


class Pattern(Protocol):
    """A compiled pattern of ``regex``, which can tell that a text might match if it went on, as ``re`` can't.

    It must end in something definite: a last part that may match more when more text comes would depend on the cuts. And
    names in it must be bounded, since text is held while they may go on.
    """

    @property
    def pattern(self) -> str: ...


def pattern(source: str) -> Pattern:
    return cast(Pattern, regex.compile(source))


class Scanner:
    """``controls`` that a grammar doesn't look for are skipped: they must not leak."""

    def __init__(self, controls: frozenset[str] = frozenset()) -> None:
        self.ended = False
        self._controls = controls
        self._text = ""

    def push(self, text: str) -> None:
        self._text += text

    def end(self) -> None:
        self.ended = True

    def unread(self, text: str) -> None:
        """Put text back before what is to be read next."""
        self._text = text + self._text

    def until(self, marks: Sequence[str], sink: Sink) -> Steps[str]:
        """Hand what stands before the next of the marks to ``sink`` as it comes. The mark, or "" at the end.

        The mark that begins first is taken. No mark may contain another, unless at its end.
        """
        watched = {*marks, *(control for control in self._controls if not any(control in mark for mark in marks))}
        while True:
            while mark := self._pass_next(watched, sink):
                if mark in marks:
                    return mark
            self._pass(len(self._text) - (0 if self.ended else self._held(watched)), sink)
            if self.ended:
                return ""
            yield

    def collect(self, marks: Sequence[str]) -> Steps[tuple[str, str]]:
        """What stands before the next of the marks, and the mark, or "" at the end."""
        parts: list[str] = []
        mark = yield from self.until(marks, parts.append)
        return "".join(parts), mark

    def match(self, wanted: Pattern) -> Steps[Match | None]:
        """Read what matches; None, and nothing is read, once it is certain that nothing will."""
        compiled = cast("regex.Pattern[str]", wanted)
        while True:
            found = compiled.match(self._text, partial=not self.ended)
            if found is None or not found.partial:
                break
            yield
        self._text = self._text[found.end() :] if found else self._text
        return cast(Match | None, found)

    def json_value(self, sink: Sink) -> Steps[bool]:
        """Hand an object, array or string of JSON to ``sink`` as it comes; whether it was complete.

        Ends early at a ``<`` outside of a string, which is no JSON and begins most marks.
        """
        nesting = _Nesting()
        while True:
            self._pass(nesting.advance(self._text), sink)
            if nesting.is_over:
                return nesting.is_complete
            if self.ended:
                return False
            yield

    def _pass_next(self, marks: set[str], sink: Sink) -> str:
        found = [(at, mark) for mark in marks if (at := self._text.find(mark)) >= 0]
        if not found:
            return ""
        at, mark = min(found)
        self._pass(at, sink)
        self._text = self._text[len(mark) :]
        return mark

    def _pass(self, length: int, sink: Sink) -> None:
        passed, self._text = self._text[:length], self._text[length:]
        if passed:
            sink(passed)

    def _held(self, marks: set[str]) -> int:
        """Length of the longest end of the text that is the beginning of a mark."""
        longest = min(len(self._text), max(map(len, marks), default=1) - 1)
        ends = (self._text[-length:] for length in range(longest, 0, -1))
        return next((len(end) for end in ends if any(mark.startswith(end) for mark in marks)), 0)


class _Nesting:
    """How deep in a JSON value the text is."""

    def __init__(self) -> None:
        self.is_over = False
        self.is_complete = False
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def advance(self, text: str) -> int:
        """How much of the text belongs to the value."""
        for at, character in enumerate(text):
            if character == "<" and not self._in_string:
                self.is_over = True
                return at
            self._take(character)
            if self._depth == 0 and not self._in_string and character in '"}]':
                self.is_over = self.is_complete = True
                return at + 1
        return len(text)

    def _take(self, character: str) -> None:
        if self._escaped:
            self._escaped = False
        elif character == '"':
            self._in_string = not self._in_string
        elif self._in_string:
            self._escaped = character == "\\"
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
