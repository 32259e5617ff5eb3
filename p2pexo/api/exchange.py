"""JSON in and out of Quart's requests and responses."""

from typing import cast

import trio
from quart import Request, Response

from p2pexo.api.fields import Fields, read_body
from p2pexo.api.packing import is_packed, unpack
from p2pexo.api.repairs import MAX_BODY_BYTES

_PARSED_IN_A_THREAD = 1 << 20
"""Bodies from this many bytes on would hold up everyone's tokens while they are parsed."""


async def read_json(request: Request) -> Fields:
    """The JSON object in the body, which may be packed. Raises InvalidRequestError, RefusedError."""
    body = cast(bytes, await request.get_data())
    encoding = request.headers.get("content-encoding", "")
    if is_packed(encoding):
        body = await trio.to_thread.run_sync(unpack, body, encoding, MAX_BODY_BYTES)
    if len(body) < _PARSED_IN_A_THREAD:
        return read_body(body)
    return await trio.to_thread.run_sync(read_body, body)


def json_response(body: bytes, status: int = 200) -> Response:
    return Response(body, status=status, content_type="application/json")
