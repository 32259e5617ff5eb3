"""What the cluster floor needs from its surroundings: the overlay below, stage processes and the model store beside it.

The duties are written against these protocols, so that tests can run them with stages that compute nothing.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

import trio

from networking.transport import PeerId, Stream
from networking.view import View
from p2pexo.generation.events import Event
from p2pexo.generation.request import Request
from p2pexo.models.card import Card
from p2pexo.ring.stage import Neighbours, StageSpec, StageStatus


class Overlay(Protocol):
    @property
    def view(self) -> View: ...
    def views(self) -> AsyncIterator[View]: ...
    def set_fact(self, key: str, value: bytes, *, volatile: bool = False) -> None: ...
    def delete_fact(self, key: str) -> None: ...
    def set_payload(self, payload: bytes) -> None:
        """Seen in ``view`` at once. Raises NotLeaderError."""
        ...

    async def request(self, peer: PeerId, protocol: str, body: bytes, *, timeout_s: float) -> bytes: ...
    async def open(self, peer: PeerId, protocol: str) -> Stream: ...
    def serve_requests(self, protocol: str, handler: Callable[[PeerId, bytes], Awaitable[bytes]]) -> None: ...
    def serve_streams(self, protocol: str, handler: Callable[[Stream], Awaitable[None]]) -> None: ...


class Stage(Protocol):
    """One stage process, as ``ring.supervisor`` runs it."""

    @property
    def status(self) -> StageStatus: ...
    def statuses(self) -> AsyncIterator[StageStatus]: ...
    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None: ...
    async def join(self, neighbours: Neighbours | None) -> None:
        """None for a ring of one."""
        ...

    def generate(self, request: Request) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[Event]]: ...


StartStage = Callable[[StageSpec], Stage]


class Store(Protocol):
    """The models on this machine's disk and in the catalogue. ``fetch`` blocks and is called in a thread."""

    def cards(self) -> Sequence[Card]: ...
    def held(self) -> Sequence[str]: ...
    def fetch(self, card: Card, progress: Callable[[float], None]) -> Path: ...
