"""What the HTTP floor needs from the floors below: something that answers a request, and something that runs the cluster.

Protocols, so that the routes can be put under test with a scripted answer and a cluster of one sentence.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import trio

from p2pexo.cluster.commands import PlaceCommand
from p2pexo.cluster.snapshot import ClusterSnapshot
from p2pexo.generation.events import Event
from p2pexo.generation.request import Request
from p2pexo.models.card import Card


class Generator(Protocol):
    """Carries a request to a ring, wherever its stages are."""

    def generate(self, request: Request) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[Event]]:
        """The events of the answer, as they come. Leaving the context cancels. Errors come as ``Failed`` events."""
        ...


class Cluster(Protocol):
    def resolve_model(self, name: str) -> Card:
        """The card a client means by ``name``. Raises ModelNotFoundError."""
        ...

    def cards(self) -> tuple[Card, ...]: ...

    async def place(self, command: PlaceCommand) -> str:
        """The id of the placement, new or already there. Raises GenerationError."""
        ...

    async def delete(self, placement_id: str) -> None:
        """End a placement. Raises GenerationError."""
        ...

    def snapshot(self) -> ClusterSnapshot: ...

    def snapshots(self) -> AsyncIterator[ClusterSnapshot]:
        """The cluster as it is now, then anew after each change."""
        ...
