"""From what went wrong to what the client reads: one table from the kind of error to status, type and code.

Each dialect is one more column of the table and one more body. An error has the same type and code whether it is told
by an HTTP status or in the middle of a stream.
"""

from http import HTTPStatus

import orjson
from attrs import field, frozen

from p2pexo.api.dialects import Dialect
from p2pexo.generation.errors import ErrorReport, GenerationError


@frozen
class Label:
    """How an OpenAI client tells errors apart."""

    type: str
    code: str | int | None = None


@frozen
class Fault:
    """One row of the table. Ollama has no column: its clients get the status and the message, and nothing else."""

    status: int
    openai: Label
    claude: str
    """The type of the error. It decides the status where Claude has one of its own: see ``status_in``."""
    retry_after_s: int | None = None
    """Sent when the error itself names no time. None on a 5xx tells SDKs not to retry: it would fail again."""

    def status_in(self, dialect: Dialect) -> int:
        return 529 if dialect is Dialect.CLAUDE and self.claude == "overloaded_error" else self.status


_INVALID = "invalid_request_error"
_UNAVAILABLE = "ServiceUnavailableError"
_INTERNAL = Label("InternalServerError", HTTPStatus.INTERNAL_SERVER_ERROR.value)

FAULTS = {
    "invalid_request": Fault(400, Label(_INVALID), _INVALID),
    "unsupported_parameter": Fault(400, Label(_INVALID, "unsupported_parameter"), _INVALID),
    "context_length_exceeded": Fault(400, Label(_INVALID, "context_length_exceeded"), _INVALID),
    "model_not_found": Fault(404, Label(_INVALID, "model_not_found"), "not_found_error"),
    "unavailable": Fault(503, Label(_UNAVAILABLE, "unavailable"), "api_error", retry_after_s=5),
    "overloaded": Fault(503, Label(_UNAVAILABLE, "overloaded"), "overloaded_error", retry_after_s=5),
    "insufficient_memory": Fault(503, Label(_UNAVAILABLE, "insufficient_memory"), "api_error"),
    "engine": Fault(500, _INTERNAL, "api_error"),
    "ring_broken": Fault(500, _INTERNAL, "api_error", retry_after_s=2),
    "placement_deleted": Fault(503, Label(_UNAVAILABLE, "placement_deleted"), "api_error", retry_after_s=5),
    "internal": Fault(500, _INTERNAL, "api_error"),
}
"""By kind of GenerationError."""

WRONG_KEY = Fault(401, Label(_INVALID, "invalid_api_key"), "authentication_error")
NOT_STORED = Fault(404, Label(_INVALID, "previous_response_not_found"), "not_found_error")
TOO_LARGE = Fault(413, Label(_INVALID, "request_too_large"), "request_too_large")

_CLAUDE_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


def fault_of_status(status: int) -> Fault:
    """For an error without a meaning of its own: it says its status, and no more."""
    claude = _CLAUDE_TYPES.get(status, "api_error" if status >= 500 else _INVALID)
    return Fault(status, Label(HTTPStatus(status).phrase, status), claude)


class RefusedError(Exception):
    """Refused by the HTTP floor itself, before the request means anything: no route, no key, a foreign origin."""

    def __init__(self, fault: Fault | int, message: str, *, param: str | None = None, **headers: str) -> None:
        """``fault`` may be a mere status; ``headers`` are sent along, with ``_`` for ``-`` in their names."""
        super().__init__(message)
        self.fault = fault_of_status(fault) if isinstance(fault, int) else fault
        self.message = message
        self.param = param
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@frozen
class ErrorAnswer:
    """A whole HTTP answer that tells of an error. ``body`` is JSON."""

    status: int
    body: bytes
    headers: dict[str, str] = field(factory=dict[str, str])


def openai_error(report: ErrorReport) -> dict[str, object]:
    """The error as OpenAI clients read it, in a body or in a stream."""
    return _openai_body(fault_of(report), report.message, report.param)


def claude_error(report: ErrorReport, request_id: str) -> dict[str, object]:
    """The error as Claude's clients read it, in a body or as the data of an ``error`` event."""
    return _claude_body(fault_of(report), report.message, request_id)


def ollama_error(report: ErrorReport) -> dict[str, object]:
    """The error as Ollama's clients read it, in a body or as a line of a stream."""
    return {"error": report.message}


def answer_to(
    error: GenerationError | RefusedError, dialect: Dialect = Dialect.OPENAI, request_id: str = ""
) -> ErrorAnswer:
    """The answer in the words of a dialect; ``request_id`` is what Claude's clients quote when they complain."""
    if isinstance(error, RefusedError):
        fault, headers = error.fault, error.headers
    else:
        fault, headers = fault_of(error.report()), _retry_headers(error.report())
    match dialect:
        case Dialect.OPENAI:
            body = _openai_body(fault, error.message, error.param)
        case Dialect.CLAUDE:
            body = _claude_body(fault, error.message, request_id)
            headers = headers | {"request-id": request_id}
        case Dialect.OLLAMA:
            body: dict[str, object] = {"error": error.message}
    return ErrorAnswer(fault.status_in(dialect), orjson.dumps(body), headers)


def internal_error() -> GenerationError:
    """For what nobody foresaw: the log has the trace, the client doesn't."""
    return GenerationError("something went wrong inside this node; its log says what")


def fault_of(report: ErrorReport) -> Fault:
    """The row of an error; one of a kind unknown here, from a newer peer, is an internal one."""
    return FAULTS.get(report.kind, FAULTS["internal"])


def _openai_body(fault: Fault, message: str, param: str | None) -> dict[str, object]:
    return {"error": {"message": message, "type": fault.openai.type, "param": param, "code": fault.openai.code}}


def _claude_body(fault: Fault, message: str, request_id: str) -> dict[str, object]:
    return {"type": "error", "error": {"type": fault.claude, "message": message}, "request_id": request_id}


def _retry_headers(report: ErrorReport) -> dict[str, str]:
    fault = fault_of(report)
    seconds = report.retry_after_s if report.retry_after_s is not None else fault.retry_after_s
    if seconds is not None:
        return {"retry-after": str(seconds)}
    return {"x-should-retry": "false"} if fault.status >= 500 else {}
