"""Keeps what this node announces on the local network true: machines change their networks while they run."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import cast

import trio

from networking.discovery import Sighting
from networking.overlay import Overlay, View

Announce = Callable[[Sighting], Awaitable[None]]
"""Announces a sighting until it is cancelled."""


async def keep_announced(overlay: Overlay, sighting: Callable[[], Sighting], announce: Announce) -> None:
    """Until cancelled. When the sighting has changed it begins anew, which also takes in interfaces that came up since."""
    while True:
        announced = sighting()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(announce, announced)
            async with aclosing(cast(AsyncGenerator[View], overlay.views())) as views:
                async for _ in views:
                    if sighting() != announced:
                        break
            nursery.cancel_scope.cancel()
