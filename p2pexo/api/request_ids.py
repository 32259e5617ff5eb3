"""A name for each HTTP request, in a header of its response: what people quote when they complain, and SDKs call ``_request_id``."""

from uuid import uuid4

from quart import Quart, Response, g, request

from p2pexo.api.dialects import Dialect, dialect_of

_HEADERS = {Dialect.CLAUDE: "request-id", Dialect.OPENAI: "x-request-id"}
"""Ollama's clients know none."""


def add_request_ids(app: Quart) -> None:
    @app.after_request
    async def tell(response: Response) -> Response:
        header = _HEADERS.get(dialect_of(request.path))
        if header is not None:
            response.headers[header] = request_id()
        return response


def request_id() -> str:
    """That of the request which is being answered."""
    if "request_id" not in g:
        g.request_id = f"req_{uuid4().hex}"
    return g.request_id
