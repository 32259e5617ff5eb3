"""Getting a model's files without holding up the node: the store blocks, so it works in a thread."""

import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from p2pexo.cluster.seams import Store
from p2pexo.models.card import Card

Fetch = Callable[[Card, Callable[[float], None]], Awaitable[Path]]
"""(model, progress 0 to 1) -> a complete model directory; raises an exception that says what is wrong."""


class FetchAbandonedError(Exception):
    """Nobody waits for these files any more. What has come by now is not fetched again."""


def in_thread(store: Store) -> Fetch:
    """Cancelled, it returns at once, and the thread ends when next it would tell how far it is."""

    async def fetch(card: Card, progress: Callable[[float], None]) -> Path:
        token, abandoned = trio.lowlevel.current_trio_token(), threading.Event()

        def show(share: float) -> None:
            """Also called by threads that the download itself has started."""
            if abandoned.is_set():
                raise FetchAbandonedError(f"the fetch of {card.id} was given up")
            trio.from_thread.run_sync(progress, share, trio_token=token)

        try:
            return await trio.to_thread.run_sync(store.fetch, card, show, abandon_on_cancel=True)
        finally:
            abandoned.set()

    return fetch
