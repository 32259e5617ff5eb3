"""Turns tokens into text as they come, and never sends half a character.

A character can span several tokens, and how a token reads can depend on the one before it. So a small window of tokens
is decoded each time, and what it adds is sent once it can no longer change: undecodable bytes at the end of the window,
which decode to U+FFFD, may yet become a character and are held back.
"""

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]

_REPLACEMENT = "\ufffd"


class Detokenizer:
    """The deltas of ``push`` and ``finish``, joined, are the decoding of all tokens at once."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._context: list[int] = []
        """The tokens sent last: the new ones are decoded behind them."""
        self._new: list[int] = []
        self._sent = ""
        """What the text of the window already sent reads like."""

    def push(self, token: int) -> str:
        self._new.append(token)
        text = self._decode(self._context + self._new)
        settled = text.rstrip(_REPLACEMENT)
        delta = settled[len(self._sent) :]
        if delta and settled == text:
            self._context, self._new = self._new, []
            self._sent = self._decode(self._context)
        elif delta:
            self._sent = settled
        return delta

    def finish(self) -> str:
        """What was held back. Half a character comes out as U+FFFD, just as when all tokens are decoded at once."""
        text = self._decode(self._context + self._new)
        delta = text[len(self._sent) :]
        self._sent = text
        return delta
