"""Connections that still shake hands: few, and not for long, whatever strangers do.

There are never more than ``MAX_HANDSHAKES``: a newcomer pushes out the one that has taken longest, so strangers that say
nothing can neither use up this process's descriptors nor keep a peer out.
"""

from collections.abc import Generator
from contextlib import contextmanager

import trio

MAX_HANDSHAKES = 32
"""Raise it and strangers cost more descriptors; lower it and a crowd of them delays a peer's next attempt more."""

HANDSHAKE_LIMIT = 4.0
"""Seconds; those who dial wait no longer either. Lower it and a busy machine is turned away; raise it and strangers stay."""


class Handshakes:
    def __init__(self) -> None:
        self._under_way: dict[trio.CancelScope, None] = {}

    @contextmanager
    def one_more(self) -> Generator[None]:
        """The body is cancelled when it takes too long, or when too many came after it. Raises trio.TooSlowError."""
        while len(self._under_way) >= MAX_HANDSHAKES:
            self._push_out(next(iter(self._under_way)))
        with trio.fail_after(HANDSHAKE_LIMIT) as scope:
            self._under_way[scope] = None
            try:
                yield
            finally:
                self._under_way.pop(scope, None)

    def _push_out(self, scope: trio.CancelScope) -> None:
        del self._under_way[scope]
        scope.cancel()
