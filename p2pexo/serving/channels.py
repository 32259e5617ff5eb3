"""A producer whose life is that of its reader."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

T = TypeVar("T")

BUFFERED_EVENTS = 64
"""Events that may wait for a slow reader. Raise it and short hiccups of a client are bridged; lower it and memory is saved."""


@asynccontextmanager
async def produced(
    produce: Callable[[trio.MemorySendChannel[T]], Awaitable[None]],
) -> AsyncGenerator[trio.MemoryReceiveChannel[T]]:
    """The channel that ``produce`` fills and that is closed when it returns. Leaving the block cancels it.

    What the block raises comes out as it is, not inside an exception group.
    """
    send, receive = trio.open_memory_channel[T](BUFFERED_EVENTS)

    async def run() -> None:
        # Not ``async with``: its exit is a checkpoint, where the cancel of a reader that saw the end would take the
        # place of what ``produce`` raised.
        with send:
            await produce(send)

    try:
        async with trio.open_nursery() as nursery, receive:
            nursery.start_soon(run)
            yield receive
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
