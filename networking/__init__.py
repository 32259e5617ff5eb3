"""A peer-to-peer library: who is here, who leads, what everyone knows, how to talk."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from networking.overlay import (
        FactTooLargeError,
        Member,
        MemberState,
        MemoryState,
        NotLeaderError,
        Overlay,
        OverlaySettings,
        PeerState,
        RequestRefusedError,
        SavedState,
        View,
    )
    from networking.transport import Address, PeerId, Stream, StreamClosedError, Transport, TransportError

_TRANSPORT = ("Address", "PeerId", "Stream", "StreamClosedError", "Transport", "TransportError")

__all__ = [
    "Address",
    "FactTooLargeError",
    "Member",
    "MemberState",
    "MemoryState",
    "NotLeaderError",
    "Overlay",
    "OverlaySettings",
    "PeerId",
    "PeerState",
    "RequestRefusedError",
    "SavedState",
    "Stream",
    "StreamClosedError",
    "Transport",
    "TransportError",
    "View",
]


def __getattr__(name: str) -> Any:
    # Loaded when first used: a command that only reads a ticket should not wait for the whole library.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("networking.transport" if name in _TRANSPORT else "networking.overlay"), name)
