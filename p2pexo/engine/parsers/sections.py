"""Text in which marks set thoughts and sections of tool calls apart: the format of all families but gpt-oss."""

from typing import Protocol

from attrs import frozen

from p2pexo.engine.parsers.emitter import Emitter
from p2pexo.engine.parsers.scanner import Match, Pattern, Scanner, Steps
from p2pexo.engine.parsers.schemas import ToolSchemas


class Arguments(Protocol):
    """How a family writes the arguments of a call."""

    def read(self, scanner: Scanner, emitter: Emitter, head: Match, schemas: ToolSchemas) -> Steps[None]:
        """Read the arguments, which begin right behind the head of the call."""
        ...


@frozen
class Section:
    """One or more calls behind a mark. What doesn't look like a call is text."""

    openings: tuple[str, ...]
    head: Pattern
    """A call up to its arguments, with blanks before it; its group ``name`` is that of the tool."""
    arguments: Arguments
    tail: Pattern | None = None
    """What may stand between the arguments and the next call, or the end."""
    closings: tuple[str, ...] = ()
    """Marks behind the calls; elsewhere they are text."""
    bare: bool = False
    """Whether calls may also begin the answer, without a mark."""

    def read(self, scanner: Scanner, emitter: Emitter, schemas: ToolSchemas) -> Steps[bool]:
        """Read the calls that stand here; whether there were any."""
        before = emitter.calls
        while (head := (yield from scanner.match(self.head))) is not None:
            emitter.begin_call(head.group("name").strip())
            yield from self.arguments.read(scanner, emitter, head, schemas)
            emitter.after_mark()
            if self.tail is not None:
                yield from scanner.match(self.tail)
        return emitter.calls > before


@frozen
class Think:
    begin: str
    end: str


@frozen
class MarkedText:
    """The grammar of one answer."""

    section: Section | None
    """None where calls are not read; their marks are text then."""
    schemas: ToolSchemas
    think: Think | None = None
    starts_thinking: bool = False
    """The prompt ended with the mark that begins a thought."""
    controls: frozenset[str] = frozenset()

    def read(self, scanner: Scanner, emitter: Emitter) -> Steps[None]:
        yield from self._begin(scanner, emitter)
        closings: tuple[str, ...] = ()
        while mark := (yield from scanner.until((*self._marks, *closings), emitter.text)):
            if self.think is not None and mark == self.think.begin:
                yield from self._thought(scanner, emitter, self.think)
            elif mark in closings:
                emitter.after_mark()
            closings = ()
            if self.section is not None and mark in self.section.openings:
                if (yield from self.section.read(scanner, emitter, self.schemas)):
                    closings = self.section.closings
                else:
                    emitter.unread(mark)

    def _begin(self, scanner: Scanner, emitter: Emitter) -> Steps[None]:
        if self.think is not None and self.starts_thinking:
            scanner.unread(self.think.begin)
        elif self.section is not None and self.section.bare:
            yield from self.section.read(scanner, emitter, self.schemas)

    def _thought(self, scanner: Scanner, emitter: Emitter, think: Think) -> Steps[None]:
        """Ends at its mark, and at a control token that begins calls: some models forget the other."""
        emitter.after_mark(thinking=True)
        ends = (think.end, *(mark for mark in self._openings if mark in self.controls))
        mark = yield from scanner.until(ends, emitter.reasoning)
        emitter.after_mark(thinking=not mark)
        if mark != think.end:
            scanner.unread(mark)

    @property
    def _openings(self) -> tuple[str, ...]:
        return self.section.openings if self.section is not None else ()

    @property
    def _marks(self) -> tuple[str, ...]:
        return (*self._openings, self.think.begin) if self.think is not None else self._openings
