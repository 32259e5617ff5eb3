"""Finds stop strings in text that comes in pieces, and holds back what might be the beginning of one."""

from collections.abc import Sequence

from attrs import frozen


@frozen
class StopCheck:
    text: str
    """What can be sent now."""
    matched: str | None = None
    """The stop string that was hit; ``text`` is what stood before it, and nothing may follow."""


class StopMatcher:
    """The stop string that is complete first wins, however the text is cut into pieces; of two that end together, the longer."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""

    def push(self, text: str) -> StopCheck:
        self._held += text
        hits = [(at + len(stop), at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if hits:
            _, start, stop = min(hits)
            before, self._held = self._held[:start], ""
            return StopCheck(before, stop)
        safe = len(self._held) - self._longest_beginning()
        sent, self._held = self._held[:safe], self._held[safe:]
        return StopCheck(sent)

    def finish(self) -> str:
        """What was held back; the stop string it could have become did not come."""
        held, self._held = self._held, ""
        return held

    def _longest_beginning(self) -> int:
        """Length of the longest end of the held text that is the beginning of a stop string."""
        return max((_overlap(self._held, stop) for stop in self._stops), default=0)


def _overlap(text: str, stop: str) -> int:
    lengths = range(min(len(text), len(stop) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(stop[:length])), 0)
