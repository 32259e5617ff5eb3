"""Keeps what this node announces on the local network true: machines change their networks while they run."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import cast

import trio

from networking.discovery import Sighting
from networking.overlay import Overlay, View

Announce = Callable[[Sighting], Awaitable[None]]
"""Announces a sighting until it is cancelled."""


LOOK_AGAIN_S = 120.0
"""After this long the network is looked round anew: what is still there is seen again, and what is gone is not. Lower it and
other clusters that have gone are forgotten sooner, at the price of a few packets each time."""


async def keep_announced(overlay: Overlay, sighting: Callable[[], Sighting], announce: Announce) -> None:
    """Until cancelled. When the sighting has changed it begins anew, which also takes in interfaces that came up since."""
    while True:
        announced = sighting()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(announce, announced)
            with trio.move_on_after(LOOK_AGAIN_S):
                await _wait_until(overlay, lambda announced=announced: sighting() != announced)
            nursery.cancel_scope.cancel()


async def _wait_until(overlay: Overlay, condition: Callable[[], bool]) -> None:
    """The view changes whenever this node's addresses do."""
    async with aclosing(cast(AsyncGenerator[View], overlay.views())) as views:
        async for _ in views:
            if condition():
                return
