"""Talks HTTP to a running node for the commands: typed results, and errors that a person can act on."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Self, TypeVar

import httpx
from attrs import field, frozen
from cyclopts import Parameter

from p2pexo.cli.chat_stream import ChatError, ChatPiece, read_pieces
from p2pexo.cli.errors import CommandError
from p2pexo.cluster.snapshot import ClusterSnapshot
from p2pexo.generation.codec import DecodeError, decode

DEFAULT_URL = "http://localhost:52415"
CONNECT_TIMEOUT_S = 4.0
UNAUTHORIZED = 401
ANSWER_TIMEOUT_S = 60.0
"""Of silence. A node that works on something long says so every few seconds."""

T = TypeVar("T")


@Parameter(name="*")
@frozen(kw_only=True)
class Target:
    """The node that a command talks to."""

    url: Annotated[str, Parameter(env_var="P2PEXO_URL")] = DEFAULT_URL
    """Where a node answers; any node of the cluster will do."""

    api_key: Annotated[str | None, Parameter(env_var="P2PEXO_API_KEY", show_default=False)] = field(
        default=None, repr=False
    )
    """The node's key, if it asks for one. Better in the variable than on the command line."""


class NothingAnswersError(CommandError):
    """Nobody listens at the URL."""


class ApiError(CommandError):
    """The node refused; the message is its own."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@frozen
class ChatMessage:
    role: str
    content: str


@frozen
class _Placed:
    id: str


@frozen
class _ModelEntry:
    id: str


@frozen
class _ModelList:
    data: tuple[_ModelEntry, ...]


@frozen
class _ErrorDetail:
    message: str


@frozen
class _ErrorBody:
    error: _ErrorDetail


class Client:
    """One HTTP client for one command; use it as a context manager. Every method raises CommandError."""

    def __init__(self, target: Target, transport: httpx.BaseTransport | None = None) -> None:
        self._url = target.url.rstrip("/")
        headers = {"Authorization": f"Bearer {target.api_key}"} if target.api_key else {}
        timeout = httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        # Proxy variables are for the way out to the internet; a node is on this desk.
        self._http = httpx.Client(headers=headers, timeout=timeout, transport=transport, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def cluster(self) -> ClusterSnapshot:
        return self._get("/v1/cluster", ClusterSnapshot)

    def models(self) -> tuple[str, ...]:
        """Ids of the models that the cluster can run."""
        return tuple(entry.id for entry in self._get("/v1/models", _ModelList).data)

    def place(self, model: str, *, min_stages: int = 1, precision: str | None = None) -> str:
        """Have a model placed; the id of its placement, which may not be ready yet."""
        body: dict[str, Any] = {"model": model, "min_stages": min_stages}
        if precision is not None:
            body["precision"] = precision
        with self._problems():
            response = self._http.post(self._url + "/v1/placements", json=body)
        return self._decoded(_checked(response), _Placed).id

    def delete(self, placement_id: str) -> None:
        with self._problems():
            response = self._http.delete(f"{self._url}/v1/placements/{placement_id}")
        _checked(response)

    def chat(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
    ) -> Generator[ChatPiece]:
        """The answer, piece by piece as it comes; close the generator to stop it."""
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": each.role, "content": each.content} for each in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        limits = {"max_tokens": max_tokens, "temperature": temperature}
        body |= {name: value for name, value in limits.items() if value is not None}
        with (
            self._problems(),
            self._http.stream("POST", self._url + "/v1/chat/completions", json=body) as response,
        ):
            if response.is_error:
                response.read()
            yield from read_pieces(_checked(response).iter_lines())

    def _get(self, path: str, cls: type[T]) -> T:
        with self._problems():
            response = self._http.get(self._url + path)
        return self._decoded(_checked(response), cls)

    def _decoded(self, response: httpx.Response, cls: type[T]) -> T:
        try:
            return decode(response.content, cls)
        except DecodeError as error:
            raise CommandError(f"{self._url} answers, but not as p2pexo does ({error})") from error

    @contextmanager
    def _problems(self) -> Generator[None]:
        """What httpx and the stream report, as sentences."""
        try:
            yield
        except ChatError as error:
            raise CommandError(str(error)) from error
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NothingAnswersError(f"nothing answers at {self._url}; is `p2pexo node` running?") from error
        except httpx.TimeoutException as error:
            raise CommandError(
                f"{self._url} has been silent for {ANSWER_TIMEOUT_S:.0f} s; see that node's log"
            ) from error
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise CommandError(f"{self._url!r} is not a URL; write one like {DEFAULT_URL}") from error
        except httpx.TransportError as error:
            raise CommandError(f"the connection to {self._url} broke: {error}") from error


def _checked(response: httpx.Response) -> httpx.Response:
    if not response.is_error:
        return response
    try:
        message = decode(response.content, _ErrorBody).error.message
    except DecodeError:
        message = f"{response.url} answers {response.status_code} {response.reason_phrase}"
    if response.status_code == UNAUTHORIZED:
        message += "; give it by --api-key or P2PEXO_API_KEY"
    raise ApiError(message, response.status_code)
