"""Keeps what this node announces on the local network true: machines change their networks while they run."""

from collections.abc import Callable
from typing import Protocol

from networking.discovery import Sighting
from networking.overlay import Overlay


class Announcer(Protocol):
    """``networking.discovery.Discovery``, as far as it is needed here."""

    def announce(self, announced: Sighting) -> None:
        """Nothing happens if it is announced already."""
        ...


async def keep_announced(overlay: Overlay, sighting: Callable[[], Sighting], announcer: Announcer) -> None:
    """Until cancelled. The view changes whenever this node's addresses do."""
    async for _ in overlay.views():
        announcer.announce(sighting())
