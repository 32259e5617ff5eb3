"""Stored responses wherever they are: this node's own in its database, another node's over the overlay.

The id of a response names the node that holds it: ``resp_<end of its peer id>_<random>``.
"""

import sqlite3
import time
from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Protocol, TypeVar, TypeVarTuple

import structlog
import trio
from attrs import frozen

from networking.overlay import Overlay, RequestRefusedError
from networking.transport import PeerId, TransportError
from networking.typed_requests import RequestKind
from p2pexo.generation.codec import decode, encode
from p2pexo.generation.errors import UnavailableError
from p2pexo.serving.responses_store import ResponseDatabase, StoredResponse

ANSWER_TIMEOUT_S = 10.0
"""How long another node may take to find a response. Raise it for slow links; lower it and clients hear sooner."""

PREFIX = "resp_"
NAMING_CHARACTERS = 8
"""Of the peer id's end; enough to tell the members of a cluster apart."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

log = structlog.get_logger(__name__)


@frozen
class ResponseQuestion:
    """What a node asks of the one that holds a response: to tell it, or to delete it."""

    id: str
    delete: bool = False


@frozen
class ResponseReply:
    was_there: bool
    stored: StoredResponse | None = None


RESPONSE = RequestKind("/p2pexo/response/1", ResponseQuestion, ResponseReply, encode, decode)


class InThread(Protocol):
    """Runs what blocks where it holds nobody up."""

    async def __call__(self, work: Callable[[*Ts], T], /, *arguments: *Ts) -> T: ...


class Responses:
    """Serves other nodes as soon as it is made."""

    def __init__(
        self,
        overlay: Overlay,
        database: ResponseDatabase,
        *,
        known: Callable[[], Mapping[PeerId, str]] = dict,
        in_thread: InThread = trio.to_thread.run_sync,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``known``: the names of those that have been members, here or not: what one of them holds is there once it is back.
        ``clock``: wall clock seconds, since what is stored outlives the process.
        """
        self._overlay = overlay
        self._database = database
        self._known = known
        self._in_thread = in_thread
        self._clock = clock
        RESPONSE.serve(overlay, self._serve)

    def new_id(self) -> str:
        return f"{PREFIX}{_naming(self._overlay.me)}_{token_hex(16)}"

    async def get(self, id: str) -> StoredResponse | None:
        """None if there is none, or no longer. Raises UnavailableError if its node can't be asked."""
        return (await self._ask(ResponseQuestion(id))).stored

    async def put(self, stored: StoredResponse) -> None:
        """Keep a response whose id was made here. If that fails, the log says why: the answer is worth more than its copy."""
        try:
            await self._in_thread(self._database.put, stored, self._clock())
        except sqlite3.Error:
            log.exception("a response could not be stored", id=stored.id)

    async def delete(self, id: str) -> bool:
        """Whether there was one. Raises UnavailableError if its node can't be asked."""
        return (await self._ask(ResponseQuestion(id, delete=True))).was_there

    async def _ask(self, question: ResponseQuestion) -> ResponseReply:
        owner = self._owner(question.id)
        if owner is None:
            return ResponseReply(was_there=False)
        if owner == self._overlay.me:
            return await self._answer(question)
        if self._overlay.view.member(owner) is None:
            raise UnavailableError(
                f"response {question.id} is on {self._known()[owner]}, which is not here now; try again once it is back"
            )
        try:
            return await RESPONSE.ask(self._overlay, owner, question, timeout_s=ANSWER_TIMEOUT_S)
        except (TransportError, RequestRefusedError) as error:
            raise UnavailableError(
                f"response {question.id} is on another node, which can't be asked: {error}"
            ) from error

    def _owner(self, id: str) -> PeerId | None:
        """The peer that the id names, here or not; None if it was never a member."""
        named = id.removeprefix(PREFIX).partition("_")[0]
        members = [member.peer for member in self._overlay.view.members]
        return next((peer for peer in (*members, *self._known()) if _naming(peer) == named), None)

    async def _answer(self, question: ResponseQuestion) -> ResponseReply:
        if question.delete:
            return ResponseReply(await self._in_thread(self._database.delete, question.id))
        stored = await self._in_thread(self._database.get, question.id, self._clock())
        return ResponseReply(stored is not None, stored)

    async def _serve(self, peer: PeerId, question: ResponseQuestion) -> ResponseReply:
        log.debug("another node asks for a response", peer=peer, id=question.id, delete=question.delete)
        return await self._answer(question)


def _naming(peer: PeerId) -> str:
    return peer[-NAMING_CHARACTERS:]
