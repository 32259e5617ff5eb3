"""A generator that follows a script, for tests of the HTTP face and of its clients."""

import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio
from attrs import define, field

from p2pexo.generation.events import Event
from p2pexo.generation.request import Request

Script = Callable[[Request], AsyncIterator[Event]]


@define
class ScriptedGenerator:
    script: Script
    requests: list[Request] = field(factory=list)
    cancelled: threading.Event = field(factory=threading.Event)

    @asynccontextmanager
    async def generate(self, request: Request) -> AsyncGenerator[trio.MemoryReceiveChannel[Event]]:
        self.requests.append(request)
        send, receive = trio.open_memory_channel[Event](0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell, request, send)
            yield receive
            nursery.cancel_scope.cancel()

    async def _tell(self, request: Request, events: trio.MemorySendChannel[Event]) -> None:
        try:
            with events:
                async for event in self.script(request):
                    await events.send(event)
        except trio.Cancelled:
            self.cancelled.set()
            raise
