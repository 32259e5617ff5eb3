"""How the last requests fared that were asked of this node."""

from collections.abc import Callable

from attrs import frozen
from quart import Quart, Response

from p2pexo.api.exchange import json_response
from p2pexo.generation.codec import encode
from p2pexo.serving.records import RequestRecord

NewestRequests = Callable[[], tuple[RequestRecord, ...]]
"""The one that ended last comes first."""


@frozen
class _Requests:
    requests: tuple[RequestRecord, ...]


def add_request_routes(app: Quart, newest: NewestRequests) -> None:
    @app.get("/v1/requests")
    async def show_requests() -> Response:
        return json_response(encode(_Requests(newest())))
