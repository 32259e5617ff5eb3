"""The HTTP application: routes, and what happens round each of them: access, forgiving paths, errors as JSON."""

import structlog
from quart import Quart, Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound

from p2pexo.api.backend import Cluster, Generator, ResponseStore
from p2pexo.api.chat_routes import add_chat_routes
from p2pexo.api.claude_routes import add_claude_routes
from p2pexo.api.cluster_routes import add_cluster_routes
from p2pexo.api.completions_routes import add_completions_routes
from p2pexo.api.dialects import Dialect, dialect_of
from p2pexo.api.errors import RefusedError, answer_to, internal_error
from p2pexo.api.exchange import json_response
from p2pexo.api.guard import AccessRules, Caller, check, cors_headers
from p2pexo.api.metrics import MEDIA_TYPE, Metrics
from p2pexo.api.models_routes import add_models_routes
from p2pexo.api.ollama_routes import add_ollama_routes
from p2pexo.api.page import add_page
from p2pexo.api.pairing_routes import Gate, add_pairing_routes
from p2pexo.api.paths import forgive_paths
from p2pexo.api.picture_fetching import Pictures
from p2pexo.api.request_ids import add_request_ids, request_id
from p2pexo.api.request_routes import NewestRequests, add_request_routes
from p2pexo.api.responses_memory import MemoryResponses
from p2pexo.api.responses_routes import add_responses_routes
from p2pexo.api.unread_bodies import add_draining
from p2pexo.generation.errors import GenerationError

log = structlog.get_logger(__name__)

BODY_TIMEOUT_S = 300
"""How long a client may take to send its body."""


def create_app(
    generator: Generator,
    cluster: Cluster,
    rules: AccessRules | None = None,
    responses: ResponseStore | None = None,
    pictures: Pictures | None = None,
    gate: Gate | None = None,
    requests: NewestRequests | None = None,
) -> Quart:
    """The application of one node; serve it with ``server.serve``. Without a store, responses are kept in memory; without
    a gate nobody is let in or removed over HTTP; without ``requests`` nothing is told of the last ones."""
    app = QuartTrio("p2pexo.api", static_folder=None)
    app.config |= {"RESPONSE_TIMEOUT": None, "BODY_TIMEOUT": BODY_TIMEOUT_S, "MAX_CONTENT_LENGTH": None}
    app.asgi_app = forgive_paths(app.asgi_app)  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
    _add_guard(app, rules or AccessRules())
    add_request_ids(app)
    add_draining(app)
    _add_errors(app)
    metrics, pictures = Metrics(cluster.snapshot), pictures or Pictures()
    add_chat_routes(app, metrics.watch(generator, "chat"), cluster, pictures)
    add_completions_routes(app, metrics.watch(generator, "completions"), cluster)
    add_responses_routes(app, metrics.watch(generator, "responses"), cluster, responses or MemoryResponses(), pictures)
    add_claude_routes(app, metrics.watch(generator, "claude"), cluster, pictures)
    add_ollama_routes(app, metrics.watch(generator, "ollama"), cluster)
    add_models_routes(app, cluster)
    add_cluster_routes(app, cluster)
    add_request_routes(app, requests or tuple)
    if gate is not None:
        add_pairing_routes(app, gate)
    add_page(app)

    @app.get("/health")
    async def health() -> Response:
        return json_response(b'{"status":"ok"}')

    @app.get("/metrics")
    async def figures() -> Response:
        return Response(metrics.render(), content_type=MEDIA_TYPE)

    return app


def _add_guard(app: Quart, rules: AccessRules) -> None:
    @app.before_request
    async def admit() -> Response | None:
        caller = _caller()
        check(rules, caller)
        return Response(b"", status=204) if caller.is_preflight else None

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
        return _error_response(error)

    @app.errorhandler(HTTPException)
    async def http(error: HTTPException) -> Response:
        return _error_response(_refusal(error))

    @app.errorhandler(Exception)
    async def unforeseen(error: Exception) -> Response:
        log.error("a request failed", method=request.method, path=request.path, exc_info=error)
        return _error_response(internal_error())


def _refusal(error: HTTPException) -> RefusedError:
    where = f"{request.method} {request.path}"
    if isinstance(error, NotFound):
        return RefusedError(404, f"{where}: no such route. {_base_address()}")
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        return RefusedError(405, f"{where}: this route takes {allowed}", allow=allowed)
    return RefusedError(error.code or 500, error.description or error.name)


def _base_address() -> str:
    here = f"{request.scheme}://{request.host}"
    match dialect_of(request.path):
        case Dialect.OPENAI:
            return f"The base address for OpenAI clients is {here}/v1"
        case Dialect.CLAUDE:
            return f"The base address for Claude's clients is {here}"
        case Dialect.OLLAMA:
            return f"The base address for Ollama's clients is {here}"


def _error_response(error: GenerationError | RefusedError) -> Response:
    answer = answer_to(error, dialect_of(request.path), request_id())
    return Response(answer.body, status=answer.status, headers=answer.headers, content_type="application/json")
