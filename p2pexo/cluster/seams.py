"""What the cluster floor needs of stage processes and of the model store.

The duties are written against these protocols, so that tests can run them with stages that compute nothing.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

import trio

from p2pexo.generation.events import Event
from p2pexo.generation.request import Request
from p2pexo.models.card import Card
from p2pexo.ring.stage import Neighbours, StageSpec, StageStatus


class Stage(Protocol):
    """One stage process, as ``ring.supervisor`` runs it."""

    @property
    def status(self) -> StageStatus: ...
    def statuses(self) -> AsyncIterator[StageStatus]: ...
    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None: ...
    async def join(self, neighbours: Neighbours) -> None: ...

    def generate(self, request: Request) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[Event]]: ...


StartStage = Callable[[StageSpec], Stage]


class Store(Protocol):
    """The models on this machine's disk and in the catalogue. ``look_up`` and ``fetch`` block and are called in threads."""

    def cards(self) -> Sequence[Card]: ...
    def held(self) -> Sequence[str]: ...
    def look_up(self, id: str) -> Card: ...
    def fetch(self, card: Card, progress: Callable[[float], None]) -> Path: ...
