"""Keeps the log readable whatever strangers do: each thing about them is said once in a while, and only so many things."""

from collections.abc import Callable, Hashable

import trio

SAID_AGAIN_S = 60.0
"""Raise it and a stranger is told of more seldom; lower it and one that dials for ever fills the log."""

MAX_SAID = 16
"""Strangers told of in that time. Raise it and a crowd of them fills the log; lower it and it hides one that matters."""


class SeldomSaid:
    """What was said of late, so that it isn't said again and again; strangers choose how often there is something to say."""

    def __init__(self, clock: Callable[[], float] = trio.current_time) -> None:
        self._clock = clock
        self._said_at: dict[Hashable, float] = {}

    def is_due(self, what: Hashable) -> bool:
        """Whether it wasn't said in the last ``SAID_AGAIN_S``. At most ``MAX_SAID`` different things are, in that time."""
        now = self._clock()
        self._said_at = {each: at for each, at in self._said_at.items() if now - at < SAID_AGAIN_S}
        if what in self._said_at or len(self._said_at) >= MAX_SAID:
            return False
        self._said_at[what] = now
        return True
