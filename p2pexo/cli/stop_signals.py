"""Signals that end a command: the first one stops it in good order, a second one at once."""

import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from p2pexo.cli.errors import EXIT_INTERRUPTED

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """Somebody asked the command to stop. Like KeyboardInterrupt, not an error, so nothing catches it by accident."""


class StopSignals:
    """While entered, the first signal raises Stopped in the main thread. A second, or any after ``hold``, calls ``at_once`` and ends the process."""

    def __init__(self, at_once: Callable[[], None], leave: Callable[[int], Any] = os._exit) -> None:
        self._at_once = at_once
        self._leave = leave
        self._stopping = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for each in SIGNALS:
            self._previous[each] = signal.signal(each, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for each, handler in self._previous.items():
            signal.signal(each, handler)

    def hold(self) -> None:
        """The command is ending in good order already; let nothing interrupt that but impatience."""
        self._stopping = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._stopping:
            self._stopping = True
            raise Stopped
        self._at_once()
        self._leave(EXIT_INTERRUPTED)
