"""What a call through the SDK can end with. Those below ``NodeError`` mirror the errors of the server.

::

    ClientError
    ├── UnreachableError               no known node answers
    ├── BrokenStreamError              the connection broke in the middle of an answer
    ├── UnexpectedAnswerError          something answers, but not as p2pexo does
    ├── PlacementFailedError           a model could not be loaded; the message is the cluster's reason
    └── NodeError                      a node refused, or failed
        ├── InvalidRequestError        the request can't be served as it stands; ``param`` names the field
        │   ├── UnsupportedParameterError
        │   └── ContextLengthError     the prompt doesn't fit the model's context
        ├── AccessDeniedError          no API key, a wrong one, or a host or origin that is not let in
        ├── NotFoundError              no such route or placement
        │   └── ModelNotFoundError
        ├── UnavailableError           may succeed later: ``retry_after_s``
        │   ├── OverloadedError
        │   └── InsufficientMemoryError
        ├── PlacementDeletedError      somebody stopped the model while it answered
        └── EngineError                the engine, or the node itself, failed at this request
"""

from collections.abc import Mapping
from http import HTTPStatus
from json import JSONDecodeError, loads
from typing import cast


class ClientError(Exception):
    """Base of the hierarchy. ``str(error)`` says what is wrong and, where that helps, what to do."""


class UnreachableError(ClientError):
    pass


class BrokenStreamError(ClientError):
    pass


class UnexpectedAnswerError(ClientError):
    pass


class PlacementFailedError(ClientError):
    pass


class NodeError(ClientError):
    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | int | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """``status`` is None for an error that came in the middle of a stream."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s


class InvalidRequestError(NodeError):
    pass


class UnsupportedParameterError(InvalidRequestError):
    pass


class ContextLengthError(InvalidRequestError):
    pass


class AccessDeniedError(NodeError):
    pass


class NotFoundError(NodeError):
    pass


class ModelNotFoundError(NotFoundError):
    pass


class UnavailableError(NodeError):
    pass


class OverloadedError(UnavailableError):
    pass


class InsufficientMemoryError(UnavailableError):
    pass


class PlacementDeletedError(NodeError):
    pass


class EngineError(NodeError):
    pass


_BY_CODE: dict[object, type[NodeError]] = {
    "unsupported_parameter": UnsupportedParameterError,
    "context_length_exceeded": ContextLengthError,
    "model_not_found": ModelNotFoundError,
    "invalid_api_key": AccessDeniedError,
    "unavailable": UnavailableError,
    "overloaded": OverloadedError,
    "insufficient_memory": InsufficientMemoryError,
    "placement_deleted": PlacementDeletedError,
}

_BY_STATUS = {401: AccessDeniedError, 403: AccessDeniedError, 404: NotFoundError, 503: UnavailableError}


def error_in(told: object, *, status: int | None = None, retry_after_s: float | None = None) -> NodeError:
    """The error that the ``error`` field of a body or of a stream tells of."""
    detail = cast(Mapping[str, object], told) if isinstance(told, dict) else {"message": told}
    code, param = detail.get("code"), detail.get("param")
    return _class_of(detail, status)(
        str(detail.get("message") or "the node gave no reason"),
        status=status,
        code=code if isinstance(code, str | int) else None,
        param=param if isinstance(param, str) else None,
        retry_after_s=retry_after_s,
    )


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> NodeError:
    """The error that an HTTP answer tells of, whatever its body is."""
    try:
        value: object = loads(body)
    except (JSONDecodeError, UnicodeDecodeError):
        value = None
    told = cast(Mapping[str, object], value).get("error") if isinstance(value, dict) else None
    told = told or f"the node answers {_phrase(status)} and says no more"
    return error_in(told, status=status, retry_after_s=_seconds(headers.get("retry-after")))


def _class_of(detail: Mapping[str, object], status: int | None) -> type[NodeError]:
    if (by_code := _BY_CODE.get(detail.get("code"))) is not None:
        return by_code
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    is_ours = detail.get("type") == "invalid_request_error" or (status is not None and status < 500)
    return InvalidRequestError if is_ours else EngineError


def _phrase(status: int) -> str:
    """Such as ``502 Bad Gateway``."""
    known = {each.value: each.phrase for each in HTTPStatus}
    return f"{status} {known.get(status, '')}".strip()


def _seconds(header: str | None) -> float | None:
    try:
        return None if header is None else float(header)
    except ValueError:
        return None
