"""A node's departure: it says that it goes, waits until its stages and answers are in other hands, and then goes."""

from types import NoneType
from typing import Protocol

import structlog
import trio

from networking.overlay import Overlay
from networking.transport import PeerId, TransportError
from networking.typed_requests import RequestKind
from p2pexo.cluster.facts import LEAVING_KEY, LeavingFact
from p2pexo.cluster.handover import has_heirs, placed_here, to_hand_over
from p2pexo.cluster.observed import observe
from p2pexo.generation.codec import encode
from p2pexo.generation.errors import UnavailableError

LEAVE = RequestKind("/p2pexo/leave/1", NoneType, NoneType)

HAND_OVER_S = 4.0
"""How long a node that got a signal may take to hand over. Raise it and larger models move without a pause, but what is left
of the ten seconds in which a node ends must do for the rest; lower it and machines go sooner, and answers pause."""

LEAVE_S = 300.0
"""The same for a node that was asked to leave, whose models may have to be loaded elsewhere first."""

ANSWER_TIMEOUT_S = 5.0
"""How long a node may take to say that it is going."""

log = structlog.get_logger(__name__)


class Answers(Protocol):
    """Those that this node gives its own clients."""

    @property
    def running(self) -> int: ...

    async def wait_until_none(self) -> None: ...


class Departure:
    """Can be asked for by any member as soon as it is made."""

    def __init__(self, overlay: Overlay, answers: Answers) -> None:
        self._overlay = overlay
        self._answers = answers
        self._asked = trio.Event()
        self._ids = frozenset[str]()
        LEAVE.serve(overlay, self._agree)

    def ask(self) -> None:
        self._asked.set()

    async def run(self, signalled: trio.Event) -> None:
        """Until the node may end: after a signal within HAND_OVER_S, after it was asked to leave within LEAVE_S."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask_after, signalled)
            await self._asked.wait()
            with trio.move_on_after(LEAVE_S) as scope:
                nursery.start_soon(_hurry_after, signalled, scope)
                await self._hand_over()
            if scope.cancelled_caught:
                log.warning("leaves before all is in other hands", answers=self._answers.running, missing=self._missing)
            nursery.cancel_scope.cancel()

    async def _hand_over(self) -> None:
        """Nobody is waited for where nobody could take over; then answers end with an error."""
        cluster = observe(self._overlay.view)
        self._ids = placed_here(cluster)
        if not has_heirs(cluster) or not (self._ids or self._answers.running):
            return
        log.info("leaving", placements=sorted(self._ids), answers=self._answers.running)
        self._overlay.set_fact(LEAVING_KEY, encode(LeavingFact()))
        told: tuple[str, ...] = ()
        async for view in self._overlay.views():
            missing = to_hand_over(observe(view), self._ids)
            if not missing:
                break
            if missing != told:
                told = missing
                log.info("waits until others have taken over", missing=missing)
        if has_heirs(observe(self._overlay.view)):
            await self._answers.wait_until_none()

    @property
    def _missing(self) -> tuple[str, ...]:
        return to_hand_over(observe(self._overlay.view), self._ids)

    async def _ask_after(self, signalled: trio.Event) -> None:
        await signalled.wait()
        self.ask()

    async def _agree(self, peer: PeerId, _question: None) -> None:
        await trio.lowlevel.checkpoint()
        log.info("asked to leave", by=peer)
        self.ask()


async def send_away(overlay: Overlay, peer: PeerId) -> None:
    """Ask a member to leave. Raises UnavailableError if it does not answer."""
    try:
        await LEAVE.ask(overlay, peer, None, timeout_s=ANSWER_TIMEOUT_S)
    except TransportError as error:
        raise UnavailableError(f"{peer} does not answer, so it can't be asked to leave: {error}") from error


async def _hurry_after(signalled: trio.Event, scope: trio.CancelScope) -> None:
    await signalled.wait()
    scope.deadline = min(scope.deadline, trio.current_time() + HAND_OVER_S)
