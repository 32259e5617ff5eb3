"""The HTTP application: routes, and what happens round each of them: access, forgiving paths, errors as JSON."""

import time
from functools import partial
from uuid import uuid4

import orjson
import structlog
from quart import Quart, Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound

from p2pexo.api.answers import start_answer
from p2pexo.api.backend import Cluster, Generator
from p2pexo.api.chat import ChatCall, read_chat
from p2pexo.api.chat_wire import ChatStream, Envelope, completion
from p2pexo.api.cluster_routes import add_cluster_routes
from p2pexo.api.errors import ErrorAnswer, RefusedError, answer_to, internal_error
from p2pexo.api.exchange import json_response, read_json
from p2pexo.api.guard import AccessRules, Caller, check, cors_headers
from p2pexo.api.lifetime import lifetime_of
from p2pexo.api.page import add_page
from p2pexo.api.paths import forgive_paths
from p2pexo.api.streaming import stream
from p2pexo.generation.errors import GenerationError
from p2pexo.models.card import Card

log = structlog.get_logger(__name__)

BODY_TIMEOUT_S = 300
"""How long a client may take to send its body."""


def create_app(generator: Generator, cluster: Cluster, rules: AccessRules | None = None) -> Quart:
    """The application of one node; serve it with ``server.serve``."""
    app = QuartTrio("p2pexo.api", static_folder=None)
    app.config |= {"RESPONSE_TIMEOUT": None, "BODY_TIMEOUT": BODY_TIMEOUT_S, "MAX_CONTENT_LENGTH": None}
    app.asgi_app = forgive_paths(app.asgi_app)  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
    _add_guard(app, rules or AccessRules())
    _add_errors(app)
    _add_chat(app, generator, cluster)
    _add_models(app, cluster)
    add_cluster_routes(app, cluster)
    add_page(app)

    @app.get("/health")
    async def health() -> Response:
        return json_response(b'{"status":"ok"}')

    return app


def _add_chat(app: Quart, generator: Generator, cluster: Cluster) -> None:
    @app.post("/v1/chat/completions")
    async def chat_completions() -> Response:
        body = await read_json(request)
        call = read_chat(body, cluster.resolve_model, f"chatcmpl-{uuid4().hex}")
        return await _chat(generator, call)


async def _chat(generator: Generator, call: ChatCall) -> Response:
    envelope = Envelope(call.request.id, int(time.time()), call.request.model)
    answer = start_answer(generator, call.request, lifetime_of(request))
    if call.stream:
        return await stream(answer, ChatStream(envelope, call.include_usage))
    return json_response(completion(envelope, [event async for event in answer]))


def _add_models(app: Quart, cluster: Cluster) -> None:
    describe = partial(_describe, created=int(time.time()))

    @app.get("/v1/models")
    async def models() -> Response:
        return json_response(orjson.dumps({"object": "list", "data": [describe(card) for card in cluster.cards()]}))

    @app.get("/v1/models/<path:name>")
    async def model(name: str) -> Response:
        return json_response(orjson.dumps(describe(cluster.resolve_model(name))))


def _describe(card: Card, created: int) -> dict[str, object]:
    return {
        "id": card.id,
        "object": "model",
        "created": created,
        "owned_by": card.id.partition("/")[0],
        "context_length": card.context_length,
        "description": card.description,
    }


def _add_guard(app: Quart, rules: AccessRules) -> None:
    @app.before_request
    async def admit() -> Response | None:
        caller = _caller()
        check(rules, caller)
        return Response(status=204) if caller.is_preflight else None

    @app.after_request
    async def tell_the_browser(response: Response) -> Response:
        response.headers.update(cors_headers(rules, _caller()))
        return response


def _caller() -> Caller:
    headers = {name.lower(): value for name, value in request.headers.items()}
    server = request.scope["server"]
    return Caller(request.method, request.path, headers, server[0] if server else "")


def _add_errors(app: Quart) -> None:
    @app.errorhandler(GenerationError)
    @app.errorhandler(RefusedError)
    async def known(error: GenerationError | RefusedError) -> Response:
        return _error_response(answer_to(error))

    @app.errorhandler(HTTPException)
    async def http(error: HTTPException) -> Response:
        return _error_response(answer_to(_refusal(error)))

    @app.errorhandler(Exception)
    async def unforeseen(error: Exception) -> Response:
        log.error("a request failed", method=request.method, path=request.path, exc_info=error)
        return _error_response(internal_error())


def _refusal(error: HTTPException) -> RefusedError:
    where = f"{request.method} {request.path}"
    if isinstance(error, NotFound):
        base = f"{request.scheme}://{request.host}/v1"
        return RefusedError(404, f"{where}: no such route. The base address for OpenAI clients is {base}")
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        return RefusedError(405, f"{where}: this route takes {allowed}", allow=allowed)
    return RefusedError(error.code or 500, error.description or error.name)


def _error_response(answer: ErrorAnswer) -> Response:
    return Response(answer.body, status=answer.status, headers=answer.headers, content_type="application/json")
