"""Which node to ask next when one fails, and when to give up. Pure; shared by both clients."""

import httpx
from attrs import define, field

from p2pexo.client.cluster import ClusterState
from p2pexo.client.errors import BrokenStreamError, UnreachableError
from p2pexo.client.nodes import Nodes
from p2pexo.client.operations import Call, LineReader

CONNECT_TIMEOUT_S = 4.0
"""Lower it and a dead node is left sooner; raise it for slow networks."""

SILENCE_TIMEOUT_S = 60.0
"""A node that works on something long says so every few seconds."""

NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""What failed before the node can have heard of the call."""


def http_settings(api_key: str | None) -> dict[str, object]:
    """What both of httpx's clients are made with. Proxy variables are for the way out; a node is on this desk."""
    return {
        "headers": {"authorization": f"Bearer {api_key}"} if api_key else {},
        "timeout": httpx.Timeout(SILENCE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        "trust_env": False,
    }


@define
class Attempts:
    """One operation's way round the nodes: each is asked once, the one that answered last first."""

    _nodes: Nodes
    _call: Call
    _tried: set[str] = field(factory=set[str], init=False)
    _failures: list[str] = field(factory=list[str], init=False)

    def url(self) -> str:
        """The node to ask now. Raises UnreachableError when all have failed."""
        for url in self._nodes.urls:
            if url not in self._tried:
                return url
        raise UnreachableError("no node answers: " + "; ".join(self._failures))

    def worked(self, url: str) -> None:
        self._nodes.worked(url)

    def learn(self, state: object, url: str) -> None:
        if isinstance(state, ClusterState):
            self._nodes.learn(state, url)

    def failed(self, url: str, error: httpx.TransportError) -> None:
        """Go on to the next node. Raises BrokenStreamError where that could do something twice."""
        self._note(url, f"{url}: {_words(error)}")
        if not (self._call.repeatable or isinstance(error, NOT_SENT)):
            raise BrokenStreamError(f"{url} went away; it is not known what it did before ({_words(error)})") from error

    def broken(
        self, url: str, reader: LineReader[object], error: httpx.TransportError | None, *, progressed: bool
    ) -> None:
        """A stream ended before its end; ``error`` is None if it did so in good order.

        ``progressed``: this node had something to tell, so the others may be worth another try. Raises
        BrokenStreamError where it would do harm to begin anew.
        """
        reason = "closed the connection" if error is None else _words(error)
        if not reader.may_start_over:
            raise BrokenStreamError(f"the answer broke off: {url} {reason}") from error
        if progressed:
            self._tried.clear()
            self._failures.clear()
        self._note(url, f"{url}: {reason}")

    def _note(self, url: str, failure: str) -> None:
        self._tried.add(url)
        self._failures.append(failure)
        self._nodes.failed(url)


def _words(error: httpx.TransportError) -> str:
    return f"{type(error).__name__} {error}".strip()
