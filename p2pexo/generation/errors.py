"""Everything that can go wrong with a request, whichever floor notices it.

::

    GenerationError
    ├── InvalidRequestError            the request itself can't be served as it stands
    │   ├── UnsupportedParameterError  legal in the dialect, not offered here; refused by name
    │   └── ContextLengthError         the prompt doesn't fit the model's context
    ├── ModelNotFoundError             nobody here knows a model of that name
    ├── UnavailableError               may succeed later: Retry-After
    │   ├── OverloadedError            too many requests are running or waiting
    │   └── InsufficientMemoryError    the model does not fit the machines that are here
    ├── EngineError                    the engine failed while it worked on this request
    │   └── RingBrokenError            a stage of the ring went away in the middle of the answer
    └── PlacementDeletedError          somebody stopped the model while it answered

Errors cross processes as ``ErrorReport``s and come out as the same class.
"""

from typing import ClassVar, Self

from attrs import frozen


@frozen
class ErrorReport:
    """An error on its way between processes: the class by its ``kind``, and what it says."""

    kind: str
    message: str
    param: str | None = None
    retry_after_s: int | None = None


class GenerationError(Exception):
    """Base of the hierarchy. ``str(error)`` says what is wrong, with which value, and what to do."""

    kind: ClassVar[str] = "internal"

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    def report(self) -> ErrorReport:
        return ErrorReport(self.kind, self.message, self.param, self.retry_after_s)

    @classmethod
    def _of(cls, report: ErrorReport) -> Self:
        return cls(report.message, param=report.param, retry_after_s=report.retry_after_s)


class InvalidRequestError(GenerationError):
    kind = "invalid_request"


class UnsupportedParameterError(InvalidRequestError):
    kind = "unsupported_parameter"


class ContextLengthError(InvalidRequestError):
    kind = "context_length_exceeded"


class ModelNotFoundError(GenerationError):
    kind = "model_not_found"


class UnavailableError(GenerationError):
    kind = "unavailable"


class OverloadedError(UnavailableError):
    kind = "overloaded"


class InsufficientMemoryError(UnavailableError):
    kind = "insufficient_memory"


class EngineError(GenerationError):
    kind = "engine"


class RingBrokenError(EngineError):
    kind = "ring_broken"


class PlacementDeletedError(GenerationError):
    kind = "placement_deleted"


def _with_subclasses(cls: type[GenerationError]) -> list[type[GenerationError]]:
    return [cls] + [each for sub in cls.__subclasses__() for each in _with_subclasses(sub)]


_BY_KIND = {cls.kind: cls for cls in _with_subclasses(GenerationError)}


def from_report(report: ErrorReport) -> GenerationError:
    """The exception a report stands for; an unknown kind (a newer peer's) becomes the base class."""
    return _BY_KIND.get(report.kind, GenerationError)._of(report)  # pyright: ignore[reportPrivateUsage]
