"""The seam between a stage and its neighbours. ``tls_links`` implements it; an ``mx.distributed`` kind can come beside it.

A stage sends to the next one and hears from the previous one. It never waits for either: what happens on the links is
posted to it as ``LinkEvent``s, each with the very ``Neighbours`` object it was told to join, so that news of links that
have been given up can be told apart.
"""

from collections.abc import Callable
from typing import Protocol

from attrs import frozen

from p2pexo.ring.messages import Frame, Message
from p2pexo.ring.stage import Endpoint, Neighbours


class LinkError(Exception):
    """The link could not be made, or is gone; the message says with whom and why."""


@frozen
class Linked:
    """Both links stand."""

    neighbours: Neighbours
    description: str
    """How the next stage is reached; for people."""


@frozen
class LinkDelayed:
    """Not linked yet, and why; attempts go on."""

    neighbours: Neighbours
    reason: str


@frozen
class LinkLost:
    neighbours: Neighbours
    reason: str


@frozen
class Arrived:
    """A frame from the previous stage."""

    neighbours: Neighbours
    frame: Frame


LinkEvent = Linked | LinkDelayed | LinkLost | Arrived
Post = Callable[[LinkEvent], None]
"""Called from any thread; returns at once."""


class Links(Protocol):
    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where the previous stage may dial."""
        ...

    @property
    def certificate(self) -> str: ...

    def join(self, neighbours: Neighbours) -> None:
        """Drop what there is and link with these neighbours, trying until it works or ``join`` or ``drop`` is called.

        Raises LinkError if it can never work.
        """
        ...

    def send(self, message: Message, payload: bytes | memoryview = b"") -> None:
        """Send to the next stage. Blocks while its buffers are full. Raises LinkError."""
        ...

    def drop(self) -> None:
        """Close both links at once; the neighbours notice."""
        ...
