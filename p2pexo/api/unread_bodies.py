"""What a refused request still sends of its body is taken first, so that its connection serves the next request.

An answer that comes before the body was read leaves the web server with a connection it must close, and a client that
keeps connections would send its next request into the void.
"""

import trio
from quart import Quart, Response, request

DRAIN_S = 1.0
"""How long the rest of a body may take to come before the answer goes out and ends the connection. Raise it and a client on a
slow network keeps its connection; lower it and one that is turned away hears of it sooner."""


def add_draining(app: Quart) -> None:
    @app.after_request
    async def drain(response: Response) -> Response:
        if response.status_code >= 400 and not await _is_drained() and request.http_version != "2":
            response.headers["connection"] = "close"
        return response


async def _is_drained() -> bool:
    """Nothing of it is kept. One that is too large is answered elsewhere, as any other."""
    with trio.move_on_after(DRAIN_S):
        async for _ in request.body:
            pass
        return True
    return False
