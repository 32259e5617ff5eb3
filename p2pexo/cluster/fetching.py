"""Getting a model's files without holding up the node: the store blocks, so it works in a thread."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from p2pexo.cluster.seams import Store
from p2pexo.models.card import Card

Fetch = Callable[[Card, Callable[[float], None]], Awaitable[Path]]
"""(model, progress 0 to 1) -> a complete model directory; raises an exception that says what is wrong."""


def in_thread(store: Store) -> Fetch:
    """Cancelled, it returns at once; the thread ends by itself, and what it has fetched by then is not lost."""

    async def fetch(card: Card, progress: Callable[[float], None]) -> Path:
        def show(share: float) -> None:
            trio.from_thread.run_sync(progress, share)

        return await trio.to_thread.run_sync(store.fetch, card, show, abandon_on_cancel=True)

    return fetch
