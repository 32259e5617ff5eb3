"""The seam between an answer and the format of its model's family. Pure: text in, what it means out."""

from collections.abc import Callable
from typing import Protocol

from attrs import frozen

from p2pexo.engine.parsers.emitter import Emitter, Parsed
from p2pexo.engine.parsers.scanner import Scanner, Steps


class OutputParser(Protocol):
    """Reads an answer. However its text is cut into pieces, what comes out is the same when it is joined.

    What is malformed stays text; what was a call already when it went wrong stays in its arguments. Nothing is lost.
    """

    @property
    def controls(self) -> frozenset[str]:
        """Control tokens that must reach ``feed`` as text. They never come out again."""
        ...

    @property
    def thinking(self) -> bool:
        """Whether what came last is part of the reasoning."""
        ...

    @property
    def calls(self) -> int:
        """Tool calls begun so far."""
        ...

    def feed(self, text: str) -> Parsed: ...

    def finish(self) -> Parsed:
        """What was held back. A call that is not complete stays as it is."""
        ...


class PlainParser:
    """Everything is text."""

    controls: frozenset[str] = frozenset()
    thinking = False
    calls = 0

    def feed(self, text: str) -> Parsed:
        return Parsed(text)

    def finish(self) -> Parsed:
        return Parsed()


@frozen
class Grammar:
    """The format of a family, ready to read one answer."""

    read: Callable[[Scanner, Emitter], Steps[None]]
    """Must read to the end of the input."""
    controls: frozenset[str] = frozenset()


class GrammarParser:
    """Runs a grammar whenever text comes. ``seed``: ids of calls are made from it, so that a replay makes them again."""

    def __init__(self, grammar: Grammar, seed: str) -> None:
        self.controls = grammar.controls
        self._scanner = Scanner(grammar.controls)
        self._emitter = Emitter(seed, grammar.controls)
        self._steps = grammar.read(self._scanner, self._emitter)

    @property
    def thinking(self) -> bool:
        return self._emitter.thinking

    @property
    def calls(self) -> int:
        return self._emitter.calls

    def feed(self, text: str) -> Parsed:
        self._scanner.push(text)
        next(self._steps, None)
        return self._emitter.take()

    def finish(self) -> Parsed:
        self._scanner.end()
        next(self._steps, None)
        return self._emitter.take()
