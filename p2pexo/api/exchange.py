"""JSON in and out of Quart's requests and responses."""

from typing import cast

import trio
from quart import Request, Response

from p2pexo.api.fields import Fields, read_body

_PARSED_IN_A_THREAD = 1 << 20
"""Bodies from this many bytes on would hold up everyone's tokens while they are parsed."""


async def read_json(request: Request) -> Fields:
    """The JSON object in the body. Raises InvalidRequestError."""
    body = cast(bytes, await request.get_data())
    if len(body) < _PARSED_IN_A_THREAD:
        return read_body(body)
    return await trio.to_thread.run_sync(read_body, body)


def json_response(body: bytes, status: int = 200) -> Response:
    return Response(body, status=status, content_type="application/json")
