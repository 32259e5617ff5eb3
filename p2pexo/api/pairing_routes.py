"""Who comes into the cluster and who leaves it for good, over HTTP."""

from typing import Protocol

import orjson
from quart import Quart, Response, request

from networking.charter import NotMemberError, TooManyPeersError
from networking.pairing_desk import NotWaitingError, WrongCodeError
from p2pexo.api.errors import RefusedError
from p2pexo.api.exchange import json_response, read_json
from p2pexo.generation.errors import InvalidRequestError


class Gate(Protocol):
    async def approve(self, peer: str, code: str | None = None) -> None:
        """Let in a machine that waits at any member's door. Raises NotWaitingError, WrongCodeError, GenerationError."""
        ...

    async def deny(self, peer: str) -> None:
        """Turn it away for a while. Raises NotWaitingError and GenerationError."""
        ...

    async def remove(self, peer: str) -> tuple[str, ...]:
        """Keep a member out for ever; the members that have not heard of it yet.

        Raises NotMemberError, TooManyPeersError and GenerationError.
        """
        ...


def add_pairing_routes(app: Quart, gate: Gate) -> None:
    @app.post("/v1/newcomers/<peer>/approve")
    async def approve(peer: str) -> Response:
        code = await _code()
        try:
            await gate.approve(peer, code)
        except NotWaitingError as error:
            raise RefusedError(404, str(error)) from error
        except WrongCodeError as error:
            raise RefusedError(403, str(error)) from error
        return json_response(orjson.dumps({"peer": peer, "approved": True}))

    @app.post("/v1/newcomers/<peer>/deny")
    async def deny(peer: str) -> Response:
        try:
            await gate.deny(peer)
        except NotWaitingError as error:
            raise RefusedError(404, str(error)) from error
        return json_response(orjson.dumps({"peer": peer, "denied": True}))

    @app.delete("/v1/members/<peer>")
    async def remove(peer: str) -> Response:
        try:
            behind = await gate.remove(peer)
        except NotMemberError as error:
            raise RefusedError(404, str(error)) from error
        except TooManyPeersError as error:
            raise RefusedError(409, str(error)) from error
        return json_response(orjson.dumps({"peer": peer, "removed": True, "behind": behind}))


async def _code() -> str | None:
    """What the body says, if there is one. Raises InvalidRequestError."""
    if not await request.get_data():
        return None
    body = await read_json(request)
    for name in body.present():
        if name != "code":
            raise InvalidRequestError(f"{name}: not known here; an approval takes a code, or nothing", param=name)
    return body.text("code", None)
