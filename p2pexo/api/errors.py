"""From what went wrong to what the client reads: one table from the kind of error to status, type and code.

Each dialect is one more column of the table and one more body. An error has the same type and code whether it is told
by an HTTP status or in the middle of a stream.
"""

from http import HTTPStatus

import orjson
from attrs import field, frozen

from p2pexo.generation.errors import ErrorReport, GenerationError


@frozen
class Label:
    """How an OpenAI client tells errors apart."""

    type: str
    code: str | int | None = None


@frozen
class Fault:
    status: int
    openai: Label
    retry_after_s: int | None = None
    """Sent when the error itself names no time. None on a 5xx tells SDKs not to retry: it would fail again."""


_INVALID = "invalid_request_error"
_UNAVAILABLE = "ServiceUnavailableError"
_INTERNAL = Label("InternalServerError", HTTPStatus.INTERNAL_SERVER_ERROR.value)

FAULTS = {
    "invalid_request": Fault(400, Label(_INVALID)),
    "unsupported_parameter": Fault(400, Label(_INVALID, "unsupported_parameter")),
    "context_length_exceeded": Fault(400, Label(_INVALID, "context_length_exceeded")),
    "model_not_found": Fault(404, Label(_INVALID, "model_not_found")),
    "unavailable": Fault(503, Label(_UNAVAILABLE, "unavailable"), retry_after_s=5),
    "overloaded": Fault(503, Label(_UNAVAILABLE, "overloaded"), retry_after_s=5),
    "insufficient_memory": Fault(503, Label(_UNAVAILABLE, "insufficient_memory")),
    "engine": Fault(500, _INTERNAL),
    "ring_broken": Fault(500, _INTERNAL, retry_after_s=2),
    "placement_deleted": Fault(503, Label(_UNAVAILABLE, "placement_deleted"), retry_after_s=5),
    "internal": Fault(500, _INTERNAL),
}


class RefusedError(Exception):
    """Refused by the HTTP floor itself, before the request means anything: no route, no key, a foreign origin."""

    def __init__(self, status: int, message: str, label: Label | None = None, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.label = label or Label(HTTPStatus(status).phrase, status)
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@frozen
class ErrorAnswer:
    """A whole HTTP answer that tells of an error. ``body`` is JSON."""

    status: int
    body: bytes
    headers: dict[str, str] = field(factory=dict[str, str])


def _openai_body(label: Label, message: str, param: str | None = None) -> dict[str, object]:
    return {"error": {"message": message, "type": label.type, "param": param, "code": label.code}}


def openai_error(report: ErrorReport) -> dict[str, object]:
    """The error as OpenAI clients read it, in a body or in a stream."""
    return _openai_body(_fault(report).openai, report.message, report.param)


def answer_to(error: GenerationError | RefusedError) -> ErrorAnswer:
    if isinstance(error, RefusedError):
        body = orjson.dumps(_openai_body(error.label, error.message))
        return ErrorAnswer(error.status, body, error.headers)
    report = error.report()
    return ErrorAnswer(_fault(report).status, orjson.dumps(openai_error(report)), _retry_headers(report))


def internal_error() -> ErrorAnswer:
    """For what nobody foresaw: the log has the trace, the client doesn't."""
    return answer_to(GenerationError("something went wrong inside this node; its log says what"))


def _fault(report: ErrorReport) -> Fault:
    return FAULTS.get(report.kind, FAULTS["internal"])


def _retry_headers(report: ErrorReport) -> dict[str, str]:
    fault = _fault(report)
    seconds = report.retry_after_s if report.retry_after_s is not None else fault.retry_after_s
    if seconds is not None:
        return {"retry-after": str(seconds)}
    return {"x-should-retry": "false"} if fault.status >= 500 else {}
