"""The node's door: who waits there, told to all members as a fact, and what people decide, wherever they say it."""

from collections.abc import Callable

import structlog
import trio
from attrs import evolve, frozen

from networking.charter import Charter
from networking.overlay import Overlay, RequestRefusedError
from networking.pairing import Party
from networking.pairing_desk import Applicant, NotWaitingError, TurnedAwayError, WrongCodeError
from networking.pairing_listener import Reception
from networking.pairing_messages import Admission, Ask, Purpose
from networking.transport import Address, PeerId, TransportError
from networking.typed_requests import RequestKind
from p2pexo.cluster.facts import PAIRING_KEY, Asking, Newcomer, PairingFact
from p2pexo.cluster.observed import read
from p2pexo.generation.codec import encode
from p2pexo.generation.errors import UnavailableError
from p2pexo.node.belonging import Belonging
from p2pexo.node.names import look_alike, told_names
from p2pexo.node.shut_out import REMOVED

ANSWER_TIMEOUT_S = 10.0
"""For another member's door. Raise it and a member that just went is waited for longer; lower it and busy ones are missed."""

log = structlog.get_logger(__name__)


@frozen
class Verdict:
    """What a person decided about a peer that waits at another member's door."""

    peer: str
    approved: bool
    code: str | None = None


@frozen
class VerdictReply:
    """Why nothing came of a verdict; empty if it did."""

    not_waiting: str = ""
    wrong_code: str = ""


DECIDE = RequestKind("/p2pexo/door/1", Verdict, VerdictReply)


class Doors:
    """``networking.pairing_listener.Host``, and the decisions of people for the doors of all members."""

    def __init__(
        self,
        overlay: Overlay,
        party: Party,
        belonging: Belonging,
        addresses: Callable[[], tuple[Address, ...]],
        *,
        approve_all: bool,
    ) -> None:
        """``addresses``: where this node can be dialled at the moment."""
        self._overlay = overlay
        self._belonging = belonging
        self._addresses = addresses
        self._approve_all = approve_all
        self._told = PairingFact()
        self._announced: frozenset[int] = frozenset()
        self._changed = trio.Event()
        self.reception = Reception(party, self)
        DECIDE.serve(overlay, self._serve)
        belonging.follow(self._moved)

    # What the reception asks.

    @property
    def cluster(self) -> str:
        return self._belonging.cluster.name

    def admits_at_once(self, ask: Ask) -> bool:
        charter = self._belonging.charter
        if ask.peer in charter.removed:
            raise TurnedAwayError(REMOVED, denied=True)
        if charter.admits(ask.peer):
            return True
        if ask.purpose is Purpose.RENEW:
            raise TurnedAwayError("nobody here knows this machine as a member; join again", denied=True)
        return self._approve_all or charter.cluster.open

    def admit(self, peer: PeerId) -> Admission:
        log.info("let in", peer=peer, cluster=self.cluster)
        self._belonging.change(self._belonging.charter.met([peer]))
        return self._belonging.charter.to_admission(self._addresses())

    def waiting_changed(self) -> None:
        self._tell(evolve(self._told, waiting=tuple(self._newcomer(each) for each in self.reception.waiting)))
        for each in self.reception.waiting:
            if each.number not in self._announced:
                log.info(
                    "asks to join",
                    name=each.name,
                    machine=each.machine,
                    address=each.address,
                    code=each.code,
                    **({"looks_like_the_member": alike} if (alike := self.member_like(each)) else {}),
                    to_let_it_in=f"compare the codes, then: p2pexo approve {each.name}",
                )
        self._announced = frozenset(each.number for each in self.reception.waiting)

    def member_like(self, applicant: Applicant) -> str:
        """The other member, here or away, that is called so or that its name could be taken for; empty if there is none."""
        named = (*told_names(self._overlay.view), *self._belonging.charter.named)
        return look_alike(applicant.name, (each.name for each in named if each.peer != applicant.peer))

    def show_asking(self, asking: Asking | None) -> None:
        """This node itself asks to be let in elsewhere."""
        self._tell(evolve(self._told, asking=asking))

    # What people decide.

    async def approve(self, peer: str, code: str | None = None) -> None:
        """Let in a machine that waits at any member's door. Raises NotWaitingError, WrongCodeError, UnavailableError."""
        await self._decide(Verdict(peer, True, code))

    async def deny(self, peer: str) -> None:
        """Turn it away. Raises NotWaitingError, UnavailableError."""
        await self._decide(Verdict(peer, False))

    async def until_waiting_changes(self) -> None:
        await self._changed.wait()

    async def _decide(self, verdict: Verdict) -> None:
        at = self._where(verdict.peer)
        if at is None or at == self._overlay.me:
            self._decide_here(verdict)
            return
        try:
            reply = await DECIDE.ask(self._overlay, at, verdict, timeout_s=ANSWER_TIMEOUT_S)
        except (TransportError, RequestRefusedError) as error:
            raise UnavailableError(f"{at}, where {verdict.peer} waits, can't be told: {error}; try again") from error
        if reply.not_waiting:
            raise NotWaitingError(reply.not_waiting)
        if reply.wrong_code:
            raise WrongCodeError(reply.wrong_code)

    def _where(self, peer: str) -> PeerId | None:
        """The member at whose door the peer waits, as far as is known here."""
        view = self._overlay.view
        for member, document in view.facts.items():
            fact = read(document[PAIRING_KEY], PairingFact) if PAIRING_KEY in document else None
            if fact is not None and any(each.peer == peer for each in fact.waiting):
                return member
        return None

    def _decide_here(self, verdict: Verdict) -> None:
        if verdict.approved:
            self.reception.approve(PeerId(verdict.peer), verdict.code)
        else:
            self.reception.deny(PeerId(verdict.peer))

    async def _serve(self, _peer: PeerId, verdict: Verdict) -> VerdictReply:
        try:
            self._decide_here(verdict)
        except NotWaitingError as error:
            return VerdictReply(not_waiting=str(error))
        except WrongCodeError as error:
            return VerdictReply(wrong_code=str(error))
        await trio.lowlevel.checkpoint()
        return VerdictReply()

    def _newcomer(self, applicant: Applicant) -> Newcomer:
        alike = self.member_like(applicant)
        return Newcomer(applicant.peer, applicant.name, applicant.machine, applicant.code, applicant.address, alike)

    def _moved(self, before: Charter, after: Charter) -> None:
        if before.cluster.name != after.cluster.name:
            self.reception.move()

    def _tell(self, fact: PairingFact) -> None:
        if fact == self._told:
            return
        self._told = fact
        if fact == PairingFact():
            self._overlay.delete_fact(PAIRING_KEY)
        else:
            self._overlay.set_fact(PAIRING_KEY, encode(fact))
        changed, self._changed = self._changed, trio.Event()
        changed.set()
