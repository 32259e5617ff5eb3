"""The node at other doors: fresh, it asks to be let in; a member that was away, it asks for the secret that was changed."""

from collections.abc import Callable

import structlog
import trio
from attrs import frozen

from networking.addresses import parse
from networking.charter import TooManyPeersError, joined
from networking.discovery import Sighting
from networking.pairing import PairingError, Party
from networking.pairing_client import Door, Question, UnreachableError, ask
from networking.pairing_messages import Admission, Purpose
from networking.ticket import TicketError
from networking.transport import Address, PeerId
from p2pexo.cluster.facts import Asking
from p2pexo.node.belonging import Belonging
from p2pexo.node.neighbourhood import Neighbourhood, standing, whom_to_ask
from p2pexo.node.shut_out import ShutOut

LOOK_ROUND_S = 2.0
"""Before a fresh node asks anybody. Raise it and pairing takes longer; lower it and a worse cluster may be asked first."""

AGAIN_S = 3.0
"""Before the same cluster is asked again, whose people just didn't come in time."""

UNREACHABLE_S = 30.0
"""Before a node is asked again that could not be reached, or that broke off."""

DENIED_S = 600.0
"""Before a cluster is asked again that said no. Raise it and a mistaken no lasts longer; lower it and people are bothered more."""

LOOK_AGAIN_S = 2.0
"""Between two looks for members with another secret, which are noticed only once they are taken for gone. Raise it and a
machine that was away is back in touch later, and one that was removed is told so later; lower it and the node wakes up more often."""

DOORS_OF_A_NODE = 4
"""Addresses that are tried. Raise it and a forged sighting costs more time; lower it and nodes with many are missed."""

log = structlog.get_logger(__name__)


@frozen
class Introduction:
    """How this node names itself at a door."""

    name: str
    machine: str
    cluster: str | None = None
    """The only cluster that it wants to be in; None: any."""


class Newcomer:
    def __init__(
        self,
        party: Party,
        belonging: Belonging,
        introduction: Introduction,
        show: Callable[[Asking | None], None],
        dial: Callable[[PeerId, tuple[Address, ...]], None],
        is_here: Callable[[PeerId], bool],
        shut_out: ShutOut,
    ) -> None:
        """``show``: whom we wait for, with which code. ``dial``: a peer of our cluster is there. ``is_here``: whether it is
        connected. ``shut_out``: where it is kept that a member says we are one no longer."""
        self._party = party
        self._belonging = belonging
        self._introduction = introduction
        self._show = show
        self._dial = dial
        self._is_here = is_here
        self._shut_out = shut_out
        self._was_refused = False
        self._neighbourhood = Neighbourhood()
        self._changed = trio.Event()
        belonging.follow(lambda _before, _after: self._wake())

    def seen(self, sighting: Sighting) -> None:
        self._neighbourhood.add(trio.current_time(), sighting)
        self._wake()

    async def ask_while_fresh(self) -> None:
        """Until this node is in a cluster with others, whoever asked whom."""
        if not self._belonging.charter.fresh:
            return
        await trio.sleep(LOOK_ROUND_S)
        while self._belonging.charter.fresh:
            whom = self._best()
            if whom is None:
                await self._until_news()
            else:
                await self._ask_while_best(whom)

    async def renew_when_behind(self) -> None:
        """Until cancelled: ask members of our cluster that go by another secret for it.

        Or until one of them says no. Then asking is over: members agree on who is one, and only a person can do something
        about it. The next start asks once more, unless this machine is known to be removed, which is for good.
        """
        while not (self._shut_out.is_for_good or self._was_refused):
            if ahead := self._ahead():
                await self._renew(ahead[0])
                continue
            with trio.move_on_after(LOOK_AGAIN_S):
                await self._until_news()

    def dial_our_own(self) -> None:
        """Those on the network that became our cluster's when we joined it."""
        for sighting in self._neighbourhood.sightings(trio.current_time()):
            if sighting.fingerprint == self._belonging.cluster.fingerprint:
                self._dial(sighting.peer, sighting.addresses)

    # Asking to be let in.

    def _best(self) -> Sighting | None:
        askable = self._neighbourhood.askable(trio.current_time())
        own = self._belonging.cluster.fingerprint
        others = [each for each in askable if each.fingerprint != own]
        return whom_to_ask(self._party.me, others, self._introduction.cluster)

    async def _ask_while_best(self, whom: Sighting) -> None:
        """Ask, and give it up when this node has company, or when a larger cluster is there."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_better, whom, nursery.cancel_scope)
            await self._ask(whom)
            nursery.cancel_scope.cancel()
        self._show(None)

    async def _until_better(self, whom: Sighting, scope: trio.CancelScope) -> None:
        while True:
            best = self._best()
            if not self._belonging.charter.fresh or (best is not None and self._is_better(best, whom)):
                scope.cancel()
                return
            await self._until_news()

    def _is_better(self, best: Sighting, whom: Sighting) -> bool:
        now = self._neighbourhood.sighting_of(whom.peer) or whom
        return best.fingerprint != now.fingerprint and standing(best) > standing(now)

    async def _ask(self, whom: Sighting) -> None:
        def show(cluster: str, code: str) -> None:
            self._show(Asking(cluster, code))
            log.info("asks to be let in", cluster=cluster, code=code, next=_next(cluster))

        try:
            admission = await self._knock(whom, Purpose.JOIN, show)
            charter = joined(admission, whom.peer, self._party.me)
        except (PairingError, TicketError) as error:
            self._put_off(whom, error)
            return
        if not self._belonging.charter.fresh:
            return  # somebody has just joined us
        self._belonging.change(charter)
        log.info("was let in", cluster=charter.cluster.name, by=whom.peer)
        self._dial(whom.peer, (*admission.addresses, *whom.addresses))

    def _put_off(self, whom: Sighting, error: PairingError | TicketError) -> None:
        now = trio.current_time()
        if isinstance(error, PairingError) and error.denied:
            self._neighbourhood.avoid(now + DENIED_S, whom.fingerprint)
            log.warning("was not let in", cluster=whom.cluster, reason=str(error))
        else:
            wait = UNREACHABLE_S if isinstance(error, UnreachableError) else AGAIN_S
            self._neighbourhood.avoid(now + wait, whom.peer)
            log.info("asks again later", cluster=whom.cluster, reason=str(error))

    # Asking for the secret that was changed.

    def _ahead(self) -> list[Sighting]:
        charter = self._belonging.charter
        return [
            each
            for each in self._neighbourhood.askable(trio.current_time())
            if charter.admits(each.peer)
            and not self._is_here(each.peer)  # then it tells us itself
            and each.cluster == charter.cluster.name
            and each.fingerprint not in (charter.cluster.fingerprint, *charter.former)
        ]

    async def _renew(self, whom: Sighting) -> None:
        """Both sides prove their keys, and each knows the other as a member: that is what makes the answer believable."""
        self._neighbourhood.avoid(trio.current_time() + UNREACHABLE_S, whom.peer)
        try:
            admission = await self._knock(whom, Purpose.RENEW, lambda _cluster, _code: None)
            charter = self._belonging.charter.renewed(admission, self._party.me)
        except (PairingError, TicketError, TooManyPeersError) as error:
            if isinstance(error, PairingError) and error.denied:
                self._was_refused = True
                self._shut_out.note(str(error))
            else:
                log.warning("the changed secret could not be had", peer=whom.peer, reason=str(error))
            return
        if charter.rank > self._belonging.charter.rank:
            log.info("the cluster's secret was changed while this node was away", told_by=whom.peer)
        self._belonging.change(charter)

    async def _knock(self, whom: Sighting, purpose: Purpose, show: Callable[[str, str], None]) -> Admission:
        """Try the node's addresses in turn. Raises PairingError."""
        assert whom.pairing is not None
        question = Question(purpose, self._introduction.name, self._introduction.machine)
        problem = UnreachableError(f"{whom.peer} has no address")
        for host in dict.fromkeys(parse(each).host for each in whom.addresses[:DOORS_OF_A_NODE]):
            try:
                return await ask(self._party, Door(whom.peer, host, whom.pairing), question, show)
            except UnreachableError as error:
                problem = error
        raise problem

    async def _until_news(self) -> None:
        """A sighting, a change of what we belong to, or the time to ask somebody again."""
        retry = self._neighbourhood.first_retry()
        with trio.move_on_at(retry if retry is not None else float("inf")):
            await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()


def _next(cluster: str) -> str:
    return f"compare the code with the one that {cluster} shows, and approve it there"
