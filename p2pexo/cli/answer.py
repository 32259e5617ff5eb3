"""Prints an answer as it comes, and measures it as its reader sees it."""

import time
from collections.abc import Callable, Iterable

from attrs import define

from p2pexo.cli.chat_stream import ChatPiece, End, Note, Text


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
            case Text(text):
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


def stream_answer(
    pieces: Iterable[ChatPiece],
    answer: Answer,
    *,
    write: Callable[[str], None],
    note: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Write the text of ``pieces`` as it comes and gather it in ``answer``, which stays valid if this is interrupted.

    ``note`` hears each new remark of the node once.
    """
    last_note = ""
    for piece in pieces:
        answer.add(piece, clock())
        if isinstance(piece, Text):
            write(piece.text)
        elif isinstance(piece, Note) and piece.text != last_note:
            note(last_note := piece.text)


def write_out(text: str) -> None:
    """To standard output at once, as it is: no markup, no wrapping."""
    print(text, end="", flush=True)
