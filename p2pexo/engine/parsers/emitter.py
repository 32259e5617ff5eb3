"""Collects what a grammar finds until it is asked for."""

import hashlib

from attrs import evolve, frozen

from p2pexo.generation.events import ToolCallDelta


@frozen
class Parsed:
    """What a piece of an answer means."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()

    def __add__(self, later: "Parsed") -> "Parsed":
        return Parsed(self.text + later.text, self.reasoning + later.reasoning, self.tool_calls + later.tool_calls)


class Emitter:
    """``controls``: marks that are never written out, even where they make no sense.

    Blanks behind a mark belong to the format and are dropped.
    """

    def __init__(self, seed: str, controls: frozenset[str]) -> None:
        self.thinking = False
        self.calls = 0
        """Begun so far."""
        self._seed = seed
        self._controls = controls
        self._after_mark = False
        self._text = ""
        self._reasoning = ""
        self._deltas: list[ToolCallDelta] = []

    def text(self, piece: str) -> None:
        self._text += self._without_blanks(piece)

    def reasoning(self, piece: str) -> None:
        self._reasoning += self._without_blanks(piece)

    def after_mark(self, *, thinking: bool = False) -> None:
        """A mark ends here; what follows is reasoning, or not."""
        self._after_mark = True
        self.thinking = thinking

    def unread(self, mark: str) -> None:
        """A mark that began nothing: text after all, without the control tokens in it."""
        for control in self._controls:
            mark = mark.replace(control, "")
        self.text(mark)

    def begin_call(self, name: str) -> None:
        self.thinking = False
        self._deltas.append(ToolCallDelta(self.calls, id=self._call_id(), name=name))
        self.calls += 1

    def arguments(self, piece: str) -> None:
        """The next piece of the JSON text of the last call."""
        if not piece:
            return
        index = self.calls - 1
        if self._deltas and self._deltas[-1].index == index:
            last = self._deltas[-1]
            self._deltas[-1] = evolve(last, arguments=last.arguments + piece)
        else:
            self._deltas.append(ToolCallDelta(index, arguments=piece))

    def take(self) -> Parsed:
        parsed = Parsed(self._text, self._reasoning, tuple(self._deltas))
        self._text = self._reasoning = ""
        self._deltas.clear()
        return parsed

    def _without_blanks(self, piece: str) -> str:
        if self._after_mark:
            piece = piece.lstrip()
            self._after_mark = not piece
        return piece

    def _call_id(self) -> str:
        return "call_" + hashlib.sha256(f"{self._seed}:{self.calls}".encode()).hexdigest()[:24]
