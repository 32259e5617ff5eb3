"""Prints an answer as it comes, and says how fast it was."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich import text as rich_text
from rich.console import Console

from p2pexo.client import Answer, ChatEvent, Collector, Finished, Note, Text


def summary(answer: Answer) -> str:
    """Such as ``24 tokens, 18.3 tokens per second, first token after 0.42 s``."""
    parts: list[str] = []
    if answer.finish_reason:
        parts.append(f"{answer.usage.completion_tokens} tokens")
    if (rate := answer.tokens_per_second) is not None:
        parts.append(f"{rate:.1f} tokens per second")
    if (wait := answer.first_token_s) is not None:
        parts.append(f"first token after {wait:.2f} s")
    if answer.finish_reason == "length":
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
            self._waiting.update(rich_text.Text(text))

    def write(self, text: str) -> None:
        """To standard output at once, as it is: no markup, no wrapping."""
        self._stop_waiting()
        print(text, end="", flush=True)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.stop()
            self._waiting = None


def stream_answer(events: Iterable[ChatEvent], collector: Collector, screen: AnswerScreen) -> None:
    """Show the events as they come and gather them in ``collector``, which keeps them if this is interrupted."""
    with screen:
        for event in events:
            collector.add(event)
            match event:
                case Text(text):
                    screen.write(text)
                case Note(text):
                    screen.note(text)
                case Finished():
                    screen.write("\n")
                case _:
                    pass
