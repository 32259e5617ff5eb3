"""The span of one HTTP request: its tasks end with it, and it hears when the server stops."""

from typing import Any, cast

import trio
from attrs import frozen
from quart import Request

_KEY = "p2pexo.lifetime"


@frozen
class Lifetime:
    nursery: trio.Nursery
    """Cancelled when the response has been sent or the client is gone."""
    stopping: trio.Event
    """Set when the server is about to stop: streams tell their clients and end."""


def attach(scope: dict[str, Any], lifetime: Lifetime) -> None:
    scope.setdefault("state", {})[_KEY] = lifetime


def lifetime_of(request: Request) -> Lifetime:
    return cast(Lifetime, cast(Any, request.scope)["state"][_KEY])
