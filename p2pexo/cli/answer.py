"""Prints an answer as it comes, and measures it as its reader sees it."""

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from attrs import define
from rich.console import Console
from rich.text import Text

from p2pexo.cli import chat_stream
from p2pexo.cli.chat_stream import ChatPiece, End, Note


@define
class Answer:
    """What has come of an answer so far; whole once ``end`` is set. Times are monotonic seconds."""

    asked_at: float
    text: str = ""
    first_at: float | None = None
    last_at: float | None = None
    end: End | None = None

    def add(self, piece: ChatPiece, now: float) -> None:
        match piece:
            case chat_stream.Text(text):
                self.text += text
                self.first_at = now if self.first_at is None else self.first_at
                self.last_at = now
            case End():
                self.end = piece
            case Note():
                pass

    @property
    def first_token_s(self) -> float | None:
        return None if self.first_at is None else self.first_at - self.asked_at

    @property
    def tokens_per_second(self) -> float | None:
        """Of the tokens behind the first, whose wait is that of the prompt; None if there are too few to tell."""
        if self.end is None or self.end.usage is None or self.first_at is None or self.last_at is None:
            return None
        tokens, seconds = self.end.usage.completion_tokens - 1, self.last_at - self.first_at
        return tokens / seconds if tokens > 0 and seconds > 0 else None

    def summary(self) -> str:
        """Such as ``24 tokens, 18.3 tokens per second, first token after 0.42 s``."""
        parts: list[str] = []
        if self.end is not None and self.end.usage is not None:
            parts.append(f"{self.end.usage.completion_tokens} tokens")
        if (rate := self.tokens_per_second) is not None:
            parts.append(f"{rate:.1f} tokens per second")
        if (wait := self.first_token_s) is not None:
            parts.append(f"first token after {wait:.2f} s")
        if self.end is not None and self.end.finish_reason == "length":
            parts.append("cut at the length limit")
        return ", ".join(parts)


class AnswerScreen:
    """Where an answer is read: on a terminal a spinner with the node's remarks until text comes; elsewhere only the text."""

    def __init__(self, console: Console) -> None:
        self._waiting = console.status("thinking", spinner="dots") if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._waiting is not None:
            self._waiting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop_waiting()

    def note(self, text: str) -> None:
        if self._waiting is not None:
            self._waiting.update(Text(text))

    def write(self, text: str) -> None:
        """To standard output at once, as it is: no markup, no wrapping."""
        self._stop_waiting()
        print(text, end="", flush=True)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.stop()
            self._waiting = None


def stream_answer(
    pieces: Iterable[ChatPiece], answer: Answer, screen: AnswerScreen, clock: Callable[[], float] = time.monotonic
) -> None:
    """Show the pieces as they come and gather them in ``answer``, which stays valid if this is interrupted."""
    with screen:
        for piece in pieces:
            answer.add(piece, clock())
            match piece:
                case chat_stream.Text(text):
                    screen.write(text)
                case Note(text):
                    screen.note(text)
                case End():
                    screen.write("\n")
