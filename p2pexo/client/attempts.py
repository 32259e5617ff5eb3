"""Which node to ask next when one fails, and when to give up. No I/O; shared by both clients."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

import httpx
from attrs import define, field, frozen

from p2pexo.client.cluster import ClusterState
from p2pexo.client.errors import BrokenStreamError, UnexpectedAnswerError, UnreachableError, error_of
from p2pexo.client.nodes import Nodes
from p2pexo.client.operations import LineReader, Question

T = TypeVar("T")

NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""What failed before the node can have heard of the call."""


@frozen
class Timeouts:
    """How long to be patient with one node, in seconds. For a limit on a whole answer, leave its block."""

    connect_s: float = 4.0
    """Lower it and a dead node is left sooner; raise it for slow networks."""
    silence_s: float = 60.0
    """A node that works on something long says so every few seconds. Raise it where the network itself stalls."""


def http_settings(api_key: str | None, timeouts: Timeouts) -> dict[str, object]:
    """What both of httpx's clients are made with. Proxy variables are for the way out; a node is on this desk."""
    return {
        "headers": {"authorization": f"Bearer {api_key}"} if api_key else {},
        "timeout": httpx.Timeout(timeouts.silence_s, connect=timeouts.connect_s),
        "trust_env": False,
    }


@define
class Attempts:
    """One operation's way round the nodes: each is asked once, the one that answered last first.

    ``with attempts.next() as url:`` is one attempt. When the connection fails in the block it is left as if nothing had
    happened, for the next attempt, unless that could do something twice.
    """

    _nodes: Nodes
    _may_repeat: Callable[[], bool]
    """Whether it would do no harm to ask another node, now that this one may have done something."""
    _timeouts: Timeouts = Timeouts()
    _url: str = field(default="", init=False)
    _progressed: bool = field(default=False, init=False)
    """Whether the present node had something to tell: then the others are worth another try."""
    _tried: set[str] = field(factory=set[str], init=False)
    _failures: list[str] = field(factory=list[str], init=False)

    @contextmanager
    def next(self) -> Generator[str]:
        """The node to ask now. Raises UnreachableError when all have failed, BrokenStreamError, UnexpectedAnswerError."""
        self._url, self._progressed = self._untried(), False
        try:
            yield self._url
        except httpx.TransportError as error:
            self._failed(error)
        except UnexpectedAnswerError as error:
            raise UnexpectedAnswerError(f"{self._url} answers, but not as p2pexo does ({error})") from error

    def check(self, response: httpx.Response) -> None:
        """The node answers. Raises NodeError if it refuses; the body must have been read then."""
        self._nodes.worked(self._url)
        if response.is_error:
            raise error_of(response.status_code, response.headers, response.content)

    def answer(self, question: Question[T], response: httpx.Response) -> T:
        """What a whole response says."""
        self.check(response)
        return self._learnt(question.read(response.content))

    def events(self, reader: LineReader[T], line: str) -> Iterator[T]:
        """What a line of a stream says."""
        for event in reader.feed(line):
            self._progressed = True
            yield self._learnt(event)

    def end(self, reader: LineReader[object]) -> None:
        """The stream has ended in good order. One that did so too early has failed as if the connection had."""
        if not reader.is_complete:
            raise httpx.RemoteProtocolError("the node closed it too early")

    def _untried(self) -> str:
        for url in self._nodes.urls:
            if url not in self._tried:
                return url
        raise UnreachableError("; ".join(self._failures))

    def _learnt(self, told: T) -> T:
        if isinstance(told, ClusterState):
            self._nodes.learn(told, self._url)
        return told

    def _failed(self, error: httpx.TransportError) -> None:
        self._nodes.failed(self._url)
        failure = self._words(error)
        if not (isinstance(error, NOT_SENT) or self._may_repeat()):
            raise BrokenStreamError(f"the answer broke off: {failure}") from error
        if self._progressed:
            self._tried.clear()
            self._failures.clear()
        self._tried.add(self._url)
        self._failures.append(failure)

    def _words(self, error: httpx.TransportError) -> str:
        match error:
            case httpx.ConnectError() | httpx.ConnectTimeout():
                return f"nothing answers at {self._url}; is `p2pexo node` running?"
            case httpx.TimeoutException():
                return f"{self._url} has been silent for {self._timeouts.silence_s:.0f} s; see that node's log"
            case _:
                return f"the connection to {self._url} broke: {str(error) or type(error).__name__}"
