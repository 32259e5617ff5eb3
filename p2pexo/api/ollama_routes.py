"""The routes of Ollama, at ``/api/…`` and, for clients that are given a path, at ``/ollama/api/…``."""

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from uuid import uuid4

import orjson
from quart import Quart, Response, request

from p2pexo.api.answers import start_answer
from p2pexo.api.backend import Cluster, Generator
from p2pexo.api.errors import RefusedError
from p2pexo.api.exchange import json_response, read_json
from p2pexo.api.field_names import OLLAMA_CHAT, OLLAMA_GENERATE, FieldNames
from p2pexo.api.lifetime import lifetime_of
from p2pexo.api.ollama import OllamaCall, Purpose, read_chat, read_generate
from p2pexo.api.ollama_models import running, show, tags
from p2pexo.api.ollama_wire import (
    MEDIA_TYPE,
    OllamaStream,
    Said,
    Shape,
    Voice,
    chat_shape,
    generate_shape,
    timestamp,
    whole,
)
from p2pexo.api.page import PROBE_REPLY
from p2pexo.api.streaming import stream
from p2pexo.generation.errors import from_report
from p2pexo.generation.events import Failed
from p2pexo.generation.request import Request

PREFIXES = ("/api", "/ollama/api")

VERSION = "0.13.0"
"""Of Ollama, whose API these routes speak: clients refuse what they take for an older one."""

_NO_STORE = "models can't be pulled, copied, made or deleted by this API yet; p2pexo models lists those that there are"
_NO_EMBEDDINGS = "embeddings are not offered: no model here makes them"
NOT_OFFERED = {
    "pull": ("POST", _NO_STORE),
    "push": ("POST", _NO_STORE),
    "create": ("POST", _NO_STORE),
    "copy": ("POST", _NO_STORE),
    "delete": ("DELETE", _NO_STORE),
    "blobs/<path:digest>": ("POST", _NO_STORE),
    "embed": ("POST", _NO_EMBEDDINGS),
    "embeddings": ("POST", _NO_EMBEDDINGS),
}

View = Callable[..., Awaitable[Response]]


def add_ollama_routes(app: Quart, generator: Generator, cluster: Cluster) -> None:
    conversations = _Conversations(generator, cluster)
    _add(app, "POST", "chat", conversations.chat)
    _add(app, "POST", "generate", conversations.generate)
    _add_models(app, cluster)
    _add_what_is_not_offered(app)

    @app.get("/ollama")
    async def probe() -> Response:
        return Response(PROBE_REPLY, content_type="text/plain; charset=utf-8")


def _add(app: Quart, method: str, path: str, view: View) -> None:
    for prefix in PREFIXES:
        app.add_url_rule(f"{prefix}/{path}", f"{prefix} {path}", view, methods=[method])


class _Conversations:
    def __init__(self, generator: Generator, cluster: Cluster) -> None:
        self._generator = generator
        self._cluster = cluster

    async def chat(self) -> Response:
        body = await read_json(request)
        return await self._answer(read_chat(body, self._cluster.resolve_model, _new_id()), chat_shape, OLLAMA_CHAT)

    async def generate(self) -> Response:
        body = await read_json(request)
        call = read_generate(body, self._cluster.resolve_model, _new_id())
        return await self._answer(call, generate_shape, OLLAMA_GENERATE)

    async def _answer(self, call: OllamaCall, shape: Shape, names: FieldNames) -> Response:
        voice = Voice(call.request.model, shape, time.monotonic_ns(), time.monotonic_ns, lambda: datetime.now(UTC))
        match call.purpose:
            case Purpose.LOAD:
                await self._load(call.request, names)
                return json_response(voice.line(Said(), done=True, done_reason="load"))
            case Purpose.UNLOAD:
                await self._cluster.unload(call.request.model)
                return json_response(voice.line(Said(), done=True, done_reason="unload"))
            case Purpose.ANSWER:
                answer = start_answer(self._generator, call.request, lifetime_of(request), names)
                if call.stream:
                    return await stream(answer, OllamaStream(voice), MEDIA_TYPE)
                return json_response(whole(voice, [event async for event in answer]))

    async def _load(self, loading: Request, names: FieldNames) -> None:
        async for event in start_answer(self._generator, loading, lifetime_of(request), names):
            if isinstance(event, Failed):
                raise from_report(event.error)


def _add_models(app: Quart, cluster: Cluster) -> None:
    modified_at = timestamp(datetime.now(UTC))

    async def list_models() -> Response:
        return _json(tags(cluster.cards(), modified_at))

    async def show_model() -> Response:
        body = await read_json(request)
        name = body.text("model", "") or body.text("name", "")
        return _json(show(cluster.resolve_model(name), modified_at))

    async def list_running() -> Response:
        return _json(running(cluster.snapshot(), cluster.cards(), datetime.now(UTC)))

    async def version() -> Response:
        return _json({"version": VERSION})

    _add(app, "GET", "tags", list_models)
    _add(app, "POST", "show", show_model)
    _add(app, "GET", "ps", list_running)
    _add(app, "GET", "version", version)


def _add_what_is_not_offered(app: Quart) -> None:
    for path, (method, reason) in NOT_OFFERED.items():
        _add(app, method, path, _refusal(reason))


def _refusal(reason: str) -> View:
    async def refuse(**_: str) -> Response:
        raise RefusedError(501, reason)

    return refuse


def _json(body: dict[str, object]) -> Response:
    return json_response(orjson.dumps(body))


def _new_id() -> str:
    return f"ollama-{uuid4().hex}"
