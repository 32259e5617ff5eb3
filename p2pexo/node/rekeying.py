"""Keeps all members on one charter: who was removed stays out everywhere, and the newest secret holds.

Every member tells the number and fingerprint of its secret as a fact; whoever sees a higher one fetches that secret from
the member that tells it, over the connection they have. So it doesn't matter who changed it, who heard of it when, or
whether two changed it at once: all end with the highest.
"""

import secrets
from types import NoneType

import structlog
import trio

from networking.charter import Charter, TooManyPeersError
from networking.overlay import Overlay, RequestRefusedError
from networking.pairing_messages import Admission, MalformedPairingError, decode, encode
from networking.ticket import SECRET_BYTES, TicketError
from networking.transport import PeerId, TransportError
from networking.typed_requests import RequestKind
from networking.view import View
from p2pexo.cluster.facts import CHARTER_KEY, CharterFact
from p2pexo.cluster.observed import read
from p2pexo.generation import codec
from p2pexo.node.belonging import Belonging
from p2pexo.node.names import told_names

ANSWER_TIMEOUT_S = 5.0
"""For one member. Raise it and one that just went holds up the next longer; lower it and busy ones are missed."""

FOLLOW_LIMIT_S = 10.0
"""How long a removal waits for the others to follow. Raise it and people wait longer for a machine that sleeps."""

PAUSES_S = (1.0, 30.0)
"""Before a secret that could not be fetched is tried again: at first, doubled each time, and at most. Lower them and a
member that is behind asks others in vain more often; raise them and it may catch up later."""

log = structlog.get_logger(__name__)


def _encode(admission: Admission, _cls: type[Admission]) -> bytes:
    return encode(admission)


def _decode(data: bytes, _cls: type[Admission]) -> Admission:
    """Raises MalformedPairingError."""
    message = decode(data)
    if not isinstance(message, Admission):
        raise MalformedPairingError(f"a {type(message).__name__} is no admission")
    return message


CHARTER = RequestKind("/p2pexo/charter/1", NoneType, Admission, _encode, _decode)


class Rekeying:
    def __init__(self, overlay: Overlay, belonging: Belonging) -> None:
        self._overlay = overlay
        self._belonging = belonging
        self._warned = False
        CHARTER.serve(overlay, self._serve)
        belonging.follow(lambda _before, _after: self._tell())

    @property
    def is_removed(self) -> bool:
        """Whether the others have removed this very node."""
        return self._overlay.me in self._belonging.charter.removed

    async def run(self) -> None:
        """Until cancelled: learn from the others' facts, and tell our own."""
        self._tell()
        async for _ in self._overlay.views():
            self._learn(self._overlay.view)
            await self._catch_up()

    async def remove(self, peer: PeerId) -> tuple[PeerId, ...]:
        """Keep a peer out for ever, and change the secret unless there is none; the members that have not followed in time.

        Raises TooManyPeersError.
        """
        charter = self._belonging.charter.without([peer])
        if not charter.cluster.open:
            charter = charter.with_secret(secrets.token_bytes(SECRET_BYTES))
        self._belonging.change(charter)
        log.warning("removed from the cluster", peer=peer, secret_changed=not charter.cluster.open)
        with trio.move_on_after(FOLLOW_LIMIT_S):
            async for view in self._overlay.views():
                if not self._behind(view, charter):
                    break
        return self._behind(self._overlay.view, charter)

    async def _catch_up(self) -> None:
        pause, longest = PAUSES_S
        while ahead := self._ahead(self._overlay.view):
            for peer in ahead:
                await self._fetch(peer)
            if self._ahead(self._overlay.view):
                await trio.sleep(pause)
                pause = min(2 * pause, longest)
                self._learn(self._overlay.view)

    def _learn(self, view: View) -> None:
        """Whom the others have met and removed."""
        charter = self._belonging.charter
        told = [fact for peer, fact in _facts(view).items() if peer not in charter.removed]
        removed = {PeerId(peer) for fact in told for peer in fact.removed}
        try:
            charter = charter.without(removed - charter.removed)
        except TooManyPeersError as error:
            log.error("those whom other members removed are not taken over", error=str(error))
        met = charter.met(each.peer for each in view.members if each.peer != view.me)
        self._belonging.change(met.introduced(told_names(view)))
        if self.is_removed and not self._warned:
            self._warned = True
            log.error("this node was removed from the cluster", cluster=self._belonging.cluster.name)

    def _ahead(self, view: View) -> list[PeerId]:
        """The members whose secret counts more than ours."""
        charter = self._belonging.charter
        return [
            peer
            for peer, fact in _facts(view).items()
            if peer not in charter.removed and (fact.number, fact.fingerprint) > charter.rank
        ]

    def _behind(self, view: View, charter: Charter) -> tuple[PeerId, ...]:
        facts = _facts(view)
        others = (each.peer for each in view.members if each.peer != view.me and each.peer not in charter.removed)
        return tuple(
            peer
            for peer in others
            if (fact := facts.get(peer)) is None or (fact.number, fact.fingerprint) < charter.rank
        )

    async def _fetch(self, peer: PeerId) -> None:
        try:
            admission = await CHARTER.ask(self._overlay, peer, None, timeout_s=ANSWER_TIMEOUT_S)
            if admission.cluster != self._belonging.cluster.name:
                raise MalformedPairingError("its answer is no charter of this cluster")
            charter = self._belonging.charter.renewed(admission, self._overlay.me)
        except (TransportError, RequestRefusedError, MalformedPairingError, TicketError, TooManyPeersError) as error:
            log.warning("the changed secret could not be fetched", peer=peer, error=str(error))
            return
        if charter.rank > self._belonging.charter.rank:
            log.info("the cluster's secret was changed; this node goes by the new one", told_by=peer)
        self._belonging.change(charter)

    async def _serve(self, peer: PeerId, _question: None) -> Admission:
        await trio.lowlevel.checkpoint()
        if not self._belonging.charter.admits(peer):
            raise RequestRefusedError("this machine is no member of the cluster")
        return self._belonging.charter.to_admission()

    def _tell(self) -> None:
        charter = self._belonging.charter
        fact = codec.encode(CharterFact(charter.number, charter.cluster.fingerprint, tuple(sorted(charter.removed))))
        if self._overlay.view.facts.get(self._overlay.me, {}).get(CHARTER_KEY) != fact:
            self._overlay.set_fact(CHARTER_KEY, fact)


def _facts(view: View) -> dict[PeerId, CharterFact]:
    """What the other members tell."""
    told = {peer: document.get(CHARTER_KEY) for peer, document in view.facts.items() if peer != view.me}
    facts = {peer: read(value, CharterFact) for peer, value in told.items() if value is not None}
    return {peer: fact for peer, fact in facts.items() if fact is not None}
