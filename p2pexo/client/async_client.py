"""The client for programs on trio or asyncio. Each line of it is its sync twin's, with ``await`` where there is I/O."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import Any, Self, TypeVar, Unpack

import httpx

from p2pexo.client import operations
from p2pexo.client.attempts import Attempts, Timeouts, http_settings
from p2pexo.client.chat import Answer, ChatEvent
from p2pexo.client.chat_body import ChatOptions
from p2pexo.client.cluster import ClusterState, Model, Placement
from p2pexo.client.collector import Collector
from p2pexo.client.errors import NodeError, UnexpectedAnswerError
from p2pexo.client.follow import Goal
from p2pexo.client.messages import Message
from p2pexo.client.nodes import Nodes, urls_of
from p2pexo.client.operations import Listening, Precision, Question
from p2pexo.client.preview import PlacementPreview
from p2pexo.client.requests import EndedRequest

T = TypeVar("T")
_PATIENCE = Timeouts()


class AsyncClient:
    """Talks to a cluster through any of its nodes; use it as an async context manager, from any number of tasks.

    Every method raises ClientError. When a node is down, the next one is asked, unless the answer has begun.
    """

    def __init__(
        self,
        urls: str | Sequence[str] = "http://localhost:52415",
        *,
        api_key: str | None = None,
        discover: bool = True,
        timeouts: Timeouts = _PATIENCE,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """``discover``: learn of the other members from the first node that answers. They are sent the key, too.

        Raises ValueError for what is no URL of a node.
        """
        self._nodes = Nodes(urls_of(urls))
        self._discover = discover
        self._timeouts = timeouts
        settings: dict[str, Any] = http_settings(api_key, timeouts)
        self._http = httpx.AsyncClient(transport=transport, **settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    @property
    def urls(self) -> tuple[str, ...]:
        """The nodes known, in the order in which they would be asked."""
        return self._nodes.urls

    async def models(self) -> tuple[Model, ...]:
        """Those that the cluster can run."""
        return await self._ask(operations.MODELS)

    async def cluster(self) -> ClusterState:
        return await self._ask(operations.CLUSTER)

    async def requests(self) -> tuple[EndedRequest, ...]:
        """How the last requests fared that were asked of the node that answers this, the newest one first."""
        return await self._ask(operations.REQUESTS)

    def watch(self) -> AbstractAsyncContextManager[AsyncIterator[ClusterState]]:
        """The cluster now, and anew after each change, until the block is left."""
        return self._stream(operations.WATCH)

    async def place(
        self,
        model: str,
        *,
        min_stages: int = 1,
        precision: Precision | None = None,
        split: str | None = None,
        replicas: int = 1,
    ) -> str:
        """Have a model placed; the id of its placement, which may not be ready yet: see ``follow``.

        ``split``: which machine runs which layers, such as ``mac-a=0-9,mac-b=10-29``; without it the cluster decides.
        ``replicas``: how many rings there are to be, each on machines of its own; the id is that of the last one.
        """
        return await self._ask(operations.place(operations.Wish(model, min_stages, precision, split, replicas)))

    async def preview(
        self,
        model: str,
        *,
        min_stages: int = 1,
        precision: Precision | None = None,
        split: str | None = None,
        replicas: int = 1,
    ) -> PlacementPreview:
        """What ``place`` would do, and what else could be done; nothing is changed. Of several replicas, the next one."""
        return await self._ask(operations.preview(operations.Wish(model, min_stages, precision, split, replicas)))

    async def delete(self, placement_id: str) -> None:
        """Stop a model. Its memory is free again when ``follow(…, until="gone")`` has ended."""
        await self._ask(operations.delete(placement_id))

    async def leave(self, node: str = "") -> str:
        """Have a node go, once others have what it runs: the one of this name or peer id, else the one that is asked.

        Returns its peer id at once; ``cluster`` shows when it is gone.
        """
        return await self._ask(operations.leave(node))

    async def approve(self, peer: str, code: str | None = None) -> None:
        """Let in a machine that waits, one of the cluster's ``newcomers``; with a code given only if it shows that one."""
        await self._ask(operations.approve(peer, code))

    async def deny(self, peer: str) -> None:
        """Turn a machine away that waits to be let in."""
        await self._ask(operations.deny(peer))

    async def remove(self, peer: str) -> tuple[str, ...]:
        """Keep a member out for ever, and change the cluster's secret; the members that have not heard of it yet."""
        return await self._ask(operations.remove(peer))

    def follow(
        self, placement_id: str, *, until: Goal = "ready"
    ) -> AbstractAsyncContextManager[AsyncIterator[Placement]]:
        """The states of a placement until it is ready, or gone. Raises PlacementFailedError if it can't be loaded."""
        return self._stream(operations.follow(placement_id, until))

    def stream_chat(
        self, model: str, messages: str | Sequence[Message], **options: Unpack[ChatOptions]
    ) -> AbstractAsyncContextManager[AsyncIterator[ChatEvent]]:
        """An answer as it comes, ``Finished`` last. Leaving the block cancels it in the cluster."""
        return self._stream(operations.chat(model, messages, options))

    async def chat(self, model: str, messages: str | Sequence[Message], **options: Unpack[ChatOptions]) -> Answer:
        """A whole answer."""
        collector = Collector()
        async with self.stream_chat(model, messages, **options) as events:
            async for event in events:
                collector.add(event)
        return collector.answer()

    @asynccontextmanager
    async def _stream(self, listening: Listening[T]) -> AsyncGenerator[AsyncIterator[T]]:
        async with aclosing(self._listen(listening)) as events:
            yield events

    async def _ask(self, question: Question[T]) -> T:
        await self._introduce()
        call = question.call
        attempts = Attempts(self._nodes, lambda: call.repeatable, self._timeouts)
        while True:
            with attempts.next() as url:
                response = await self._http.request(call.method, url + call.path, json=call.body)
                return attempts.answer(question, response)

    async def _listen(self, listening: Listening[T]) -> AsyncGenerator[T]:
        await self._introduce()
        call, reader = listening.call, listening.reader()
        attempts = Attempts(self._nodes, lambda: reader.may_start_over, self._timeouts)
        while not reader.is_complete:
            with attempts.next() as url:
                async with self._http.stream(call.method, url + call.path, json=call.body) as response:
                    if response.is_error:
                        await response.aread()
                    attempts.check(response)
                    async for line in response.aiter_lines():
                        for event in attempts.events(reader, line):
                            yield event
                        if reader.is_complete and listening.is_endless:
                            return
                attempts.end(reader)

    async def _introduce(self) -> None:
        """Once: hear where the other members answer. A refusal is left to the call itself to tell."""
        if self._discover:
            self._discover = False
            with suppress(NodeError, UnexpectedAnswerError):
                await self.cluster()
