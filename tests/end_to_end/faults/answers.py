"""Questions, and what is heard of their answers: undisturbed, and with a fault in their middle."""

import json
import time
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

from attrs import define, field, frozen
from end_to_end.dialects import body, piece_of


@frozen
class Question:
    dialect: str
    stream: bool
    seed: int | None = None
    """None: greedy."""
    prompt: str = "Tell me a story about a ship."
    max_tokens: int = 48

    def body(self, model: str) -> dict[str, Any]:
        sampling: dict[str, Any] = {"temperature": 0} if self.seed is None else {"temperature": 1, "seed": self.seed}
        match self.dialect:
            case "ollama":
                more: dict[str, Any] = {"options": sampling | {"num_predict": self.max_tokens}}
            case "responses":
                more = sampling | {"max_output_tokens": self.max_tokens}
            case _:
                more = sampling | {"max_tokens": self.max_tokens}
        return body(self.dialect, model, self.prompt, self.stream, **more)


@frozen
class Outcome:
    """What became of an answer that met a fault."""

    text: str
    expected: str
    error: str = ""
    pause_s: float | None = None
    """The longest gap between two pieces from the fault on; None if it did not stream."""
    usual_gap_s: float = 0.0
    """Between two pieces of the undisturbed answer."""
    is_formed_anew: bool = False
    """Whether the ring became another one."""

    @property
    def is_equal(self) -> bool:
        return self.text == self.expected and not self.error

    @property
    def lost(self) -> int:
        """Characters; of an answer that ended with an error, none were lost silently."""
        return sum(high - low for tag, low, high, _, _ in self._changes() if tag != "insert" and not self.error)

    @property
    def repeated(self) -> int:
        return sum(high - low for tag, _, _, low, high in self._changes() if tag != "delete")

    def _changes(self) -> list[tuple[str, int, int, int, int]]:
        codes = SequenceMatcher(None, self.expected, self.text, autojunk=False).get_opcodes()
        return [code for code in codes if code[0] != "equal"]


@define
class Heard:
    """A stream so far."""

    dialect: str
    raw: str = ""
    text: str = ""
    gaps: list[float] = field(factory=list[float])
    """Seconds before each piece after the first one; after a fault, those from the fault on."""
    _last_at: float | None = None

    def hear(self, line: str) -> None:
        self.raw += line + "\n"
        piece = "".join(piece_of(self.dialect, payload) for payload in _payloads(line))
        if piece:
            now = time.monotonic()
            self.gaps += [] if self._last_at is None else [now - self._last_at]
            self._last_at = now
            self.text += piece

    def forget_gaps(self) -> None:
        self.gaps.clear()
        self._last_at = time.monotonic()


@frozen
class Undisturbed:
    text: str
    usual_gap_s: float
    """Between two pieces; 0 if it did not stream."""


def _payloads(line: str) -> Iterator[Any]:
    data = line.removeprefix("data: ")
    if data.startswith("{"):
        yield json.loads(data)
