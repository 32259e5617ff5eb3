"""What the HTTP floor needs from the floors below: something that answers a request, and something that runs the cluster.

Protocols, so that the routes can be put under test with a scripted answer and a cluster of one sentence.
"""

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from p2pexo.cluster.commands import PlaceCommand
from p2pexo.cluster.preview import PlacementPreview
from p2pexo.cluster.snapshot import ClusterSnapshot
from p2pexo.generation.events import Event
from p2pexo.generation.request import Request
from p2pexo.models.card import Card
from p2pexo.serving.responses_store import StoredResponse


class Generator(Protocol):
    """Carries a request to a ring, wherever its stages are."""

    def generate(self, request: Request) -> AbstractAsyncContextManager[AsyncIterable[Event]]:
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

    async def preview(self, command: PlaceCommand) -> PlacementPreview:
        """What placing would do, and what else could be done; nothing is changed. Raises GenerationError."""
        ...

    async def delete(self, placement_id: str) -> None:
        """End a placement. Raises GenerationError."""
        ...

    async def unload(self, model: str) -> None:
        """End what requests placed of a model, once nobody uses it. Raises UnavailableError."""
        ...

    async def leave(self, node: str) -> str:
        """Have a member go, empty for this one, once others have what it runs; its peer id. Raises GenerationError."""
        ...

    def snapshot(self) -> ClusterSnapshot: ...

    def snapshots(self) -> AsyncIterator[ClusterSnapshot]:
        """The cluster as it is now, then anew after each change."""
        ...


class ResponseStore(Protocol):
    """Where responses are kept, whichever node made them. Raises UnavailableError if that node can't be asked."""

    def new_id(self) -> str:
        """An id that says which node holds the response."""
        ...

    async def get(self, id: str) -> StoredResponse | None: ...

    async def put(self, stored: StoredResponse) -> None:
        """Keep a response made here. A failure to do so is logged: the client has its answer nevertheless."""
        ...

    async def delete(self, id: str) -> bool:
        """Whether there was one."""
        ...
