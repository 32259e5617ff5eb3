"""What can be asked of a node: the call to make, and what its answer means. Pure; shared by both clients.

An operation is a value. ``Question``s are answered at once, ``Listening``s by lines as they come.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Literal, Protocol, TypeVar
from urllib.parse import quote

from attrs import frozen

from p2pexo.client.chat import ChatEvent
from p2pexo.client.chat_body import ChatOptions, chat_body
from p2pexo.client.chat_stream import ChatReader
from p2pexo.client.cluster import ClusterState, Model, Placement
from p2pexo.client.follow import Following, FollowReader, Goal, WatchReader
from p2pexo.client.messages import Message
from p2pexo.client.preview import PlacementPreview
from p2pexo.client.reading import read
from p2pexo.client.requests import EndedRequest

T = TypeVar("T")
E_co = TypeVar("E_co", covariant=True)

Precision = Literal["auto", "keep", "dequantise"]
"""In which form weights are computed."""


@frozen
class Call:
    method: str
    path: str
    body: object = None
    """JSON, if there is one."""
    repeatable: bool = True
    """Whether another node may be asked when it isn't known what the first one did."""


@frozen
class Question(Generic[T]):
    call: Call
    read: Callable[[bytes], T]


class LineReader(Protocol[E_co]):
    """Makes events of lines."""

    def feed(self, line: str) -> Iterator[E_co]: ...

    @property
    def may_start_over(self) -> bool:
        """Whether it would do no harm now to begin again at another node."""
        ...

    @property
    def is_complete(self) -> bool: ...


@frozen
class Listening(Generic[E_co]):
    call: Call
    reader: Callable[[], LineReader[E_co]]
    is_endless: bool = False
    """Whether only the client ends it. Any other stream is read to its end, so that its connection can be used again."""


@frozen
class _Placed:
    id: str


@frozen
class _Models:
    data: tuple[Model, ...] = ()


@frozen
class _Requests:
    requests: tuple[EndedRequest, ...] = ()


@frozen
class _Leaving:
    peer: str


@frozen
class _Removed:
    behind: tuple[str, ...] = ()


CLUSTER = Question(Call("GET", "/v1/cluster"), lambda content: read(ClusterState, content))

MODELS = Question(Call("GET", "/v1/models"), lambda content: read(_Models, content).data)

REQUESTS = Question(Call("GET", "/v1/requests"), lambda content: read(_Requests, content).requests)

WATCH = Listening(Call("GET", "/v1/cluster/events"), WatchReader, is_endless=True)


@frozen
class Wish:
    """How a model is to be placed."""

    model: str
    min_stages: int = 1
    precision: Precision | None = None
    split: str | None = None
    replicas: int = 1

    @property
    def body(self) -> dict[str, object]:
        """A split says itself how many stages there are."""
        stages = None if self.split and self.min_stages == 1 else self.min_stages
        told = {
            "model": self.model,
            "min_stages": stages,
            "precision": self.precision,
            "split": self.split,
            "replicas": self.replicas if self.replicas != 1 else None,
        }
        return {name: value for name, value in told.items() if value is not None}


def place(wish: Wish) -> Question[str]:
    """Placing a model twice gives the same placement, so it may be repeated."""
    return Question(Call("POST", "/v1/placements", wish.body), lambda content: read(_Placed, content).id)


def preview(wish: Wish) -> Question[PlacementPreview]:
    call = Call("POST", "/v1/placements", wish.body | {"dry_run": True})
    return Question(call, lambda content: read(PlacementPreview, content))


def delete(placement_id: str) -> Question[None]:
    call = Call("DELETE", f"/v1/placements/{quote(placement_id, safe='')}", repeatable=False)
    return Question(call, lambda content: None)


def leave(node: str) -> Question[str]:
    """Asked of another node again, the empty name would mean that one."""
    call = Call("POST", "/v1/leave", {"node": node} if node else {}, repeatable=False)
    return Question(call, lambda content: read(_Leaving, content).peer)


def approve(peer: str, code: str | None) -> Question[None]:
    return _decision(peer, "approve", {"code": code} if code is not None else None)


def deny(peer: str) -> Question[None]:
    return _decision(peer, "deny", None)


def remove(peer: str) -> Question[tuple[str, ...]]:
    call = Call("DELETE", f"/v1/members/{quote(peer, safe='')}", repeatable=False)
    return Question(call, lambda content: read(_Removed, content).behind)


def _decision(peer: str, verb: str, body: object) -> Question[None]:
    call = Call("POST", f"/v1/newcomers/{quote(peer, safe='')}/{verb}", body, repeatable=False)
    return Question(call, lambda content: None)


def follow(placement_id: str, goal: Goal) -> Listening[Placement]:
    return Listening(WATCH.call, lambda: FollowReader(Following(placement_id, goal)), is_endless=True)


def chat(model: str, messages: str | Sequence[Message], options: ChatOptions) -> Listening[ChatEvent]:
    call = Call("POST", "/v1/chat/completions", chat_body(model, messages, options))
    return Listening(call, lambda: ChatReader(options.get("n", 1)))
