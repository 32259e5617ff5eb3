"""The page at ``GET /`` and its assets: a handful of files of the dashboard package, read once.

Only browsers get the page. Whoever else asks at the base address is taken for a client of Ollama that probes whether it
is there.
"""

from importlib.resources import files
from mimetypes import guess_type

from attrs import frozen
from quart import Quart, Response, request
from werkzeug.exceptions import NotFound

INDEX = "index.html"

PROBE_REPLY = "Ollama is running"
"""What clients of Ollama look for."""

_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


@frozen
class Asset:
    content: bytes
    content_type: str


def read_assets() -> dict[str, Asset]:
    entries = (files("p2pexo.dashboard") / "static").iterdir()
    return {entry.name: Asset(entry.read_bytes(), _content_type(entry.name)) for entry in entries if entry.is_file()}


def _content_type(name: str) -> str:
    guessed, _ = guess_type(name)
    return f"{guessed or 'application/octet-stream'}; charset=utf-8"


def add_page(app: Quart) -> None:
    assets = read_assets()

    @app.get("/")
    async def index() -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return _response(assets[INDEX])
        return Response(PROBE_REPLY, headers={"vary": "accept"}, content_type="text/plain; charset=utf-8")

    @app.get("/assets/<name>")
    async def asset(name: str) -> Response:
        if name not in assets:
            raise NotFound
        return _response(assets[name])


def _response(asset: Asset) -> Response:
    return Response(asset.content, headers=_HEADERS, content_type=asset.content_type)
