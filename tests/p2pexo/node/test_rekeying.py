"""Doors and charters of several nodes over a simulated network, in virtual time."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest
import trio
from attrs import define, evolve, field

from networking.charter import Charter, Named, load_charter
from networking.overlay import MemoryState, Overlay, OverlaySettings, RequestRefusedError
from networking.pairing import Party
from networking.pairing_desk import NotWaitingError, TurnedAwayError, WrongCodeError
from networking.pairing_messages import Admission, Ask, Purpose
from networking.simulated_network import SimulatedNetwork
from networking.simulated_transport import SimulatedTransport
from networking.simulation import join_payloads, sign_as, simulate, verify
from networking.ticket import Cluster
from networking.transport import Address, PeerId
from p2pexo.cluster.describe import describe
from p2pexo.cluster.facts import CHARTER_KEY, NODE_KEY, Asking, CharterFact, NodeFacts
from p2pexo.cluster.snapshot import ClusterSnapshot
from p2pexo.generation.codec import encode
from p2pexo.node.belonging import Belonging
from p2pexo.node.doors import Doors
from p2pexo.node.rekeying import CHARTER, Rekeying

DESK = Cluster("desk", b"d" * 32)
NEWCOMER = PeerId("12D3KooWBhSTC2GAk7u9AV1jzk9gCBBsm2EsxNpNbnRVhxfSMvsQ")


@define(eq=False)
class Member:
    transport: SimulatedTransport
    overlay: Overlay
    belonging: Belonging
    rekeying: Rekeying
    doors: Doors

    @property
    def peer(self) -> PeerId:
        return self.overlay.me

    @property
    def charter(self) -> Charter:
        return self.belonging.charter

    def snapshot(self) -> ClusterSnapshot:
        return describe(self.overlay.view, cluster_name="desk", open_cluster=False)


@define(eq=False)
class Desk:
    folder: Path
    nursery: trio.Nursery
    network: SimulatedNetwork = field(factory=lambda: SimulatedNetwork(seed=1))
    members: list[Member] = field(factory=list[Member])

    async def add(self, *names: str, cluster: Cluster = DESK, approve_all: bool = False) -> list[Member]:
        added = [self._make(name, Charter(cluster), approve_all) for name in names]
        for member in added:
            await self.nursery.start(member.overlay.run)
            self.nursery.start_soon(member.rekeying.run)
            for other in self.members:
                member.overlay.add_address(other.transport.address)
            self.members.append(member)
        await self.until(lambda: all(len(each.overlay.view.members) == len(self.members) for each in self.members))
        await self.until(lambda: all(len(each.charter.known) == len(self.members) - 1 for each in self.members))
        return added

    def _make(self, name: str, charter: Charter, approve_all: bool) -> Member:
        peer, home = PeerId(f"peer-{name}"), self.folder / name
        home.mkdir()
        transport = SimulatedTransport(self.network, peer, Address(f"/dns/{name}/tcp/1"))
        overlay = Overlay(
            transport,
            sign=sign_as(peer),
            verify=verify,
            state=MemoryState(),
            settings=OverlaySettings(),
            merge_payloads=join_payloads,
            random=Random(name),
        )
        belonging = Belonging(home, charter)
        party = Party(peer, sign_as(peer), verify)
        doors = Doors(overlay, party, belonging, lambda: transport.addresses, approve_all=approve_all)
        return Member(transport, overlay, belonging, Rekeying(overlay, belonging), doors)

    async def until(self, condition: Callable[[], object], within_s: float = 60.0) -> None:
        with trio.fail_after(within_s):
            while not condition():  # noqa: ASYNC110 virtual time costs nothing, and the conditions span several nodes
                await trio.sleep(0.05)


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Callable[[Desk], Awaitable[None]]], None]:
    def run(story: Callable[[Desk], Awaitable[None]]) -> None:
        async def main() -> None:
            async with trio.open_nursery() as nursery:
                await story(Desk(tmp_path, nursery))
                nursery.cancel_scope.cancel()

        simulate(main, seed=1)

    return run


def test_a_removal_reaches_all_others_with_the_new_secret(play) -> None:
    async def story(desk: Desk) -> None:
        a, b, c = await desk.add("a", "b", "c")
        assert await a.rekeying.remove(c.peer) == ()
        assert a.charter.cluster == b.charter.cluster != DESK
        assert a.charter.removed == b.charter.removed == frozenset({c.peer})
        assert (a.charter.number, a.charter.former) == (1, (DESK.fingerprint,))
        await desk.until(lambda: c.rekeying.is_removed)
        assert c.charter.cluster == DESK

    play(story)


def test_one_who_was_removed_is_given_the_new_secret_by_nobody(play) -> None:
    async def story(desk: Desk) -> None:
        a, b, c = await desk.add("a", "b", "c")
        await a.rekeying.remove(c.peer)
        for member in (a, b):
            with pytest.raises(RequestRefusedError, match="no member"):
                await CHARTER.ask(c.overlay, member.peer, None, timeout_s=5)

    play(story)


def test_two_removals_at_once_end_in_one_secret(play) -> None:
    async def story(desk: Desk) -> None:
        a, b, c, d, e = await desk.add("a", "b", "c", "d", "e")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(a.rekeying.remove, d.peer)
            nursery.start_soon(b.rekeying.remove, e.peer)
        await desk.until(lambda: a.charter.rank == b.charter.rank == c.charter.rank)
        await desk.until(lambda: all(each.charter.removed == frozenset({d.peer, e.peer}) for each in (a, b, c)))
        assert a.charter.cluster == b.charter.cluster == c.charter.cluster

    play(story)


def test_removals_on_both_sides_of_a_partition_are_all_known_after_it(play) -> None:
    async def story(desk: Desk) -> None:
        a, b, c, d = await desk.add("a", "b", "c", "d")
        desk.network.partition([a.transport.address, c.transport.address], [b.transport.address, d.transport.address])
        await desk.until(lambda: all(len(each.overlay.view.members) == 2 for each in desk.members))
        await a.rekeying.remove(c.peer)
        await b.rekeying.remove(d.peer)
        desk.network.heal()
        await desk.until(lambda: a.charter.removed == b.charter.removed == frozenset({c.peer, d.peer}))
        await desk.until(lambda: a.charter.cluster == b.charter.cluster)

    play(story)


def test_who_has_not_heard_of_a_removal_is_named(play) -> None:
    async def story(desk: Desk) -> None:
        a, b, c = await desk.add("a", "b", "c")

        async def fetch_nothing(peer: PeerId) -> None:
            await trio.sleep(1)

        b.rekeying._fetch = fetch_nothing
        assert await a.rekeying.remove(c.peer) == (b.peer,)

    play(story)


def test_the_names_of_members_are_kept_in_the_home(play) -> None:
    async def story(desk: Desk) -> None:
        a, b = await desk.add("a", "b")
        node = NodeFacts("attic", "Apple M1, 8 GB", "1", "cpu", 0, 0, 0, "", ())
        b.overlay.set_fact(NODE_KEY, encode(node))
        await desk.until(lambda: a.charter.names == {b.peer: "attic"})
        kept = load_charter(desk.folder / "a")
        assert kept is not None
        assert kept.named == (Named(b.peer, "attic", "Apple M1, 8 GB"),)

    play(story)


def test_an_open_cluster_has_no_secret_to_change(play) -> None:
    async def story(desk: Desk) -> None:
        a, b, c = await desk.add("a", "b", "c", cluster=Cluster("fair"))
        await a.rekeying.remove(c.peer)
        await desk.until(lambda: b.charter.removed == frozenset({c.peer}))
        assert a.charter.cluster == b.charter.cluster == Cluster("fair")

    play(story)


def test_a_member_that_boasts_of_a_secret_it_never_gives_is_asked_ever_more_seldom(play) -> None:
    async def story(desk: Desk) -> None:
        a, b = await desk.add("a", "b")
        asked = 0

        async def count(peer: PeerId, question: None) -> Admission:
            nonlocal asked
            asked += 1
            raise RequestRefusedError("never")

        a.rekeying._tell = lambda: None
        CHARTER.serve(a.overlay, count)
        a.overlay.set_fact(CHARTER_KEY, encode(CharterFact(99, "f")))
        await trio.sleep(600)
        assert 5 <= asked <= 30
        assert b.charter.cluster == DESK

    play(story)


# Doors.


def waits_at(member: Member, code: str = "042 917") -> None:
    """A newcomer has proven itself there."""
    member.doors.reception._desk.apply(trio.current_time(), NEWCOMER, "anna", "Apple M3", code, "10.0.0.7")
    member.doors.waiting_changed()


def test_all_members_show_who_waits_at_one_and_any_may_decide(play) -> None:
    async def story(desk: Desk) -> None:
        a, b = await desk.add("a", "b")
        waits_at(a)
        await desk.until(lambda: [each.code for each in b.snapshot().newcomers] == ["042 917"])
        assert b.snapshot().newcomers == a.snapshot().newcomers
        with pytest.raises(WrongCodeError, match="2 more tries"):
            await b.doors.approve(NEWCOMER, "000 000")
        await b.doors.approve(NEWCOMER, "042917")
        assert a.doors.reception.waiting == ()
        await desk.until(lambda: b.snapshot().newcomers == ())
        for member in (a, b):
            with pytest.raises(NotWaitingError):
                await member.doors.deny(NEWCOMER)

    play(story)


def test_all_members_show_that_a_newcomer_is_called_like_one_of_them_here_or_away(play) -> None:
    async def story(desk: Desk) -> None:
        a, b = await desk.add("a", "b")
        node = NodeFacts("Änna", "Apple M1, 8 GB", "1", "cpu", 0, 0, 0, "", ())
        waits_at(a)
        await desk.until(lambda: [each.looks_like for each in b.snapshot().newcomers] == [""])
        a.doors.reception.deny(NEWCOMER)
        b.overlay.set_fact(NODE_KEY, encode(node))
        await desk.until(lambda: a.charter.names == {b.peer: "Änna"})
        a.doors.reception._desk = type(a.doors.reception._desk)()
        waits_at(a)
        await desk.until(lambda: [each.looks_like for each in b.snapshot().newcomers] == ["Änna"])
        await b.overlay.leave()
        await desk.until(lambda: len(a.overlay.view.members) == 1)
        a.doors.waiting_changed()
        assert [each.looks_like for each in a.snapshot().newcomers] == ["Änna"]

    play(story)


def test_a_member_elsewhere_can_turn_a_newcomer_away(play) -> None:
    async def story(desk: Desk) -> None:
        a, b = await desk.add("a", "b")
        waits_at(a)
        await desk.until(lambda: b.snapshot().newcomers)
        await b.doors.deny(NEWCOMER)
        with pytest.raises(TurnedAwayError):
            waits_at(a)

    play(story)


def test_whom_a_node_asks_itself_is_shown_by_it(play) -> None:
    async def story(desk: Desk) -> None:
        (a,) = await desk.add("a")
        a.doors.show_asking(Asking("attic", "1"))
        assert a.snapshot().asking is not None
        a.doors.show_asking(None)
        assert a.snapshot().asking is None

    play(story)


def test_who_comes_in_without_a_question(play) -> None:
    async def story(desk: Desk) -> None:
        (a,) = await desk.add("a")
        join = Ask(1, Purpose.JOIN, NEWCOMER, "anna", "Apple M3", b"c" * 32)
        renew = evolve(join, purpose=Purpose.RENEW)
        assert not a.doors.admits_at_once(join)
        with pytest.raises(TurnedAwayError, match="nobody here knows"):
            a.doors.admits_at_once(renew)
        admission = a.doors.admit(NEWCOMER)
        assert (admission.cluster, admission.secret) == ("desk", DESK.secret)
        assert a.doors.admits_at_once(join)
        assert a.doors.admits_at_once(renew)
        await a.rekeying.remove(NEWCOMER)
        for ask in (join, renew):
            with pytest.raises(TurnedAwayError, match="was removed"):
                a.doors.admits_at_once(ask)

    play(story)


@pytest.mark.parametrize(("cluster", "approve_all"), [(DESK, True), (Cluster("fair"), False)])
def test_everybody_comes_in_who_asks_a_node_that_says_so(play, cluster: Cluster, approve_all: bool) -> None:
    async def story(desk: Desk) -> None:
        (a,) = await desk.add("a", cluster=cluster, approve_all=approve_all)
        assert a.doors.admits_at_once(Ask(1, Purpose.JOIN, NEWCOMER, "anna", "Apple M3", b"c" * 32))

    play(story)


def test_those_who_wait_for_a_cluster_that_a_node_has_left_are_sent_on(play) -> None:
    async def story(desk: Desk) -> None:
        (a,) = await desk.add("a")
        waits_at(a)
        a.belonging.change(a.charter.with_secret(b"n" * 32))
        assert a.doors.reception.waiting
        a.belonging.change(Charter(Cluster("attic", b"a" * 32)))
        assert a.doors.reception.waiting == ()

    play(story)
