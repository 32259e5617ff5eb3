"""A node at other doors: whom it asks, for how long, and what it makes of the answers; in virtual time, with doors of paper."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from attrs import define, evolve, field

from networking.charter import Charter
from networking.discovery import Sighting
from networking.pairing import PairingError, Party
from networking.pairing_client import Door, Question, ShowCode, UnreachableError
from networking.pairing_messages import Admission, Purpose
from networking.simulation import simulate
from networking.ticket import Cluster
from networking.transport import Address, PeerId
from p2pexo.cluster.facts import Asking
from p2pexo.node import newcomer
from p2pexo.node.belonging import Belonging
from p2pexo.node.newcomer import (
    AGAIN_S,
    DENIED_S,
    LOOK_AGAIN_S,
    LOOK_ROUND_S,
    UNREACHABLE_S,
    Introduction,
    Newcomer,
)
from p2pexo.node.shut_out import REMOVED, ShutOut

ME, STUDIO, MINI = PeerId("me"), PeerId("studio"), PeerId("mini")
OWN = Charter(Cluster("own", b"o" * 32), fresh=True)
DESK, ATTIC = Cluster("desk", b"d" * 32), Cluster("attic", b"a" * 32)
Behaviour = Callable[[ShowCode], Awaitable[Admission]]


def member(cluster: Cluster, peer: PeerId = STUDIO, members: int = 2, host: str = "10.0.0.1") -> Sighting:
    address = Address(f"/ip4/{host}/tcp/1")
    return Sighting(peer, (address,), cluster.name, cluster.fingerprint, 2, members, 4000)


async def for_ever(show: ShowCode) -> Admission:
    show("desk", "042 917")
    await trio.sleep_forever()
    raise AssertionError


def lets_in(cluster: Cluster = DESK, **more: object) -> Behaviour:
    async def admit(show: ShowCode) -> Admission:
        show(cluster.name, "042 917")
        await trio.sleep(1)
        return evolve(Admission(cluster.name, cluster.secret, 0), **more)

    return admit


def says_no(error: PairingError) -> Behaviour:
    async def refuse(show: ShowCode) -> Admission:
        await trio.sleep(1)
        raise error

    return refuse


@define
class Street:
    """The doors, by host; each ring at one is noted with its time."""

    belonging: Belonging
    doors: dict[str, Behaviour] = field(factory=dict)
    rings: list[tuple[float, str, Purpose]] = field(factory=list)
    shown: list[Asking | None] = field(factory=list)
    dialled: list[tuple[PeerId, tuple[Address, ...]]] = field(factory=list)
    here: set[PeerId] = field(factory=set)
    node: Newcomer = field(init=False)
    shut_out: ShutOut = field(init=False)

    async def ask(self, party: Party, door: Door, question: Question, show: ShowCode) -> Admission:
        self.rings.append((trio.current_time(), door.host, question.purpose))
        return await self.doors[door.host](show)

    @property
    def hosts(self) -> list[str]:
        return [host for _, host, _ in self.rings]


Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """A story about a node with that charter, which asks while it is fresh and renews when it is behind."""

    def run(story: Callable[[Street], Awaitable[None]], charter: Charter = OWN, named: str | None = None) -> None:
        async def main() -> None:
            street = Street(Belonging(tmp_path, charter))
            street.shut_out = ShutOut(tmp_path, ME, street.belonging)
            monkeypatch.setattr(newcomer, "ask", street.ask)
            street.node = Newcomer(
                Party(ME, lambda data: data, lambda *_: True),
                street.belonging,
                Introduction("me", "a Mac", named),
                street.shown.append,
                lambda peer, addresses: street.dialled.append((peer, addresses)),
                street.here.__contains__,
                street.shut_out,
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(street.node.ask_while_fresh)
                nursery.start_soon(street.node.renew_when_behind)
                await story(street)
                nursery.cancel_scope.cancel()

        simulate(main, seed=1)

    return run


def test_a_fresh_node_is_let_in_and_dials_who_let_it_in(play: Play) -> None:
    async def story(street: Street) -> None:
        address = Address("/ip4/10.0.0.9/tcp/2")
        street.doors["10.0.0.1"] = lets_in(addresses=(address,), known=(ME, MINI))
        street.node.seen(member(DESK))
        await trio.sleep(LOOK_ROUND_S + 2)
        charter = street.belonging.charter
        assert (charter.cluster, charter.fresh, charter.known) == (DESK, False, (STUDIO, MINI))
        assert street.shown == [Asking("desk", "042 917"), None]
        assert street.dialled == [(STUDIO, (address, Address("/ip4/10.0.0.1/tcp/1")))]
        await trio.sleep(1000)
        assert len(street.rings) == 1

    play(story)


def test_it_looks_round_first_and_asks_the_largest_cluster(play: Play) -> None:
    async def story(street: Street) -> None:
        street.doors = {"10.0.0.1": for_ever, "10.0.0.2": for_ever}
        street.node.seen(member(DESK))
        await trio.sleep(LOOK_ROUND_S / 2)
        street.node.seen(member(ATTIC, MINI, 3, "10.0.0.2"))
        await trio.sleep(LOOK_ROUND_S)
        assert street.hosts == ["10.0.0.2"]

    play(story)


def test_it_goes_over_to_a_larger_cluster_while_it_waits_and_never_to_the_same(play: Play) -> None:
    async def story(street: Street) -> None:
        street.doors = {f"10.0.0.{number}": for_ever for number in range(1, 4)}
        street.node.seen(member(DESK, members=1))
        await trio.sleep(LOOK_ROUND_S + 1)
        street.node.seen(member(DESK, members=2))
        street.node.seen(member(DESK, MINI, 2, "10.0.0.2"))
        await trio.sleep(1)
        street.node.seen(member(ATTIC, PeerId("attic"), 3, "10.0.0.3"))
        await trio.sleep(1)
        assert street.hosts == ["10.0.0.1", "10.0.0.3"]

    play(story)


def test_a_no_is_taken_for_one_for_a_while(play: Play) -> None:
    async def story(street: Street) -> None:
        street.doors["10.0.0.1"] = street.doors["10.0.0.2"] = says_no(PairingError("no", denied=True))
        await trio.sleep(LOOK_ROUND_S)
        street.node.seen(member(DESK))
        street.node.seen(member(DESK, MINI, 2, "10.0.0.2"))
        await trio.sleep(DENIED_S)
        assert len(street.rings) == 1
        street.node.seen(member(DESK))
        await trio.sleep(2)
        assert len(street.rings) == 2

    play(story)


def test_whose_time_was_up_asks_again_soon(play: Play) -> None:
    async def story(street: Street) -> None:
        street.doors["10.0.0.1"] = says_no(PairingError("nobody there approved it in time"))
        await trio.sleep(LOOK_ROUND_S)
        street.node.seen(member(DESK))
        await trio.sleep(1 + AGAIN_S + 0.5)
        assert len(street.rings) == 2
        assert street.shown == [None]

    play(story)


def test_who_can_not_be_reached_is_passed_over_for_a_while(play: Play) -> None:
    async def story(street: Street) -> None:
        street.doors = {"10.0.0.1": says_no(UnreachableError("dead")), "10.0.0.2": for_ever}
        await trio.sleep(LOOK_ROUND_S)
        street.node.seen(member(DESK, members=3))
        street.node.seen(member(ATTIC, MINI, 2, "10.0.0.2"))
        await trio.sleep(2)
        assert street.hosts == ["10.0.0.1", "10.0.0.2"]
        await trio.sleep(UNREACHABLE_S)
        assert street.hosts == ["10.0.0.1", "10.0.0.2", "10.0.0.1"]

    play(story)


def test_all_addresses_of_a_node_are_tried_in_turn(play: Play) -> None:
    async def story(street: Street) -> None:
        street.doors = {"10.0.0.1": says_no(UnreachableError("dead")), "10.0.0.2": lets_in()}
        addresses = (Address("/ip4/10.0.0.1/tcp/1"), Address("/ip4/10.0.0.2/tcp/1"))
        street.node.seen(evolve(member(DESK), addresses=addresses))
        await trio.sleep(LOOK_ROUND_S + 3)
        assert street.belonging.cluster == DESK

    play(story)


def test_a_node_that_gets_company_asks_no_more(play: Play) -> None:
    async def story(street: Street) -> None:
        street.doors["10.0.0.1"] = for_ever
        street.node.seen(member(DESK))
        await trio.sleep(LOOK_ROUND_S + 1)
        street.belonging.change(street.belonging.charter.met([MINI]))
        await trio.sleep(1000)
        assert len(street.rings) == 1
        assert street.shown[-1] is None
        assert street.belonging.cluster == OWN.cluster

    play(story)


def test_with_a_name_no_other_cluster_is_asked(play: Play) -> None:
    async def story(street: Street) -> None:
        street.doors["10.0.0.1"] = for_ever
        street.node.seen(member(ATTIC))
        await trio.sleep(100)
        assert street.rings == []
        street.node.seen(member(DESK))
        await trio.sleep(1)
        assert len(street.rings) == 1

    play(story, named="desk")


def test_a_node_that_is_not_fresh_asks_nobody_to_be_let_in(play: Play) -> None:
    async def story(street: Street) -> None:
        street.node.seen(member(DESK))
        await trio.sleep(100)
        assert street.rings == []

    play(story, charter=evolve(OWN, fresh=False))


BEHIND = Charter(DESK, known=(STUDIO,))
CHANGED = Cluster("desk", b"n" * 32)


def test_a_member_that_was_away_gets_the_changed_secret_from_one_it_knows(play: Play) -> None:
    async def story(street: Street) -> None:
        street.doors["10.0.0.1"] = lets_in(CHANGED, number=1, removed=(MINI,))
        street.node.seen(member(CHANGED))
        await trio.sleep(2)
        charter = street.belonging.charter
        assert (charter.cluster, charter.number, charter.removed) == (CHANGED, 1, {MINI})
        assert [purpose for _, _, purpose in street.rings] == [Purpose.RENEW]
        assert street.shown == []

    play(story, charter=BEHIND)


@pytest.mark.parametrize(
    "sighting",
    [
        member(CHANGED, MINI),
        member(Cluster("other", b"n" * 32)),
        member(DESK),
        member(Cluster("desk", b"f" * 32)),
    ],
    ids=["a stranger", "another cluster", "our own secret", "a former secret"],
)
def test_nobody_else_is_asked_for_a_secret(play: Play, sighting: Sighting) -> None:
    async def story(street: Street) -> None:
        street.node.seen(sighting)
        await trio.sleep(100)
        assert street.rings == []

    play(story, charter=evolve(BEHIND, former=(Cluster("desk", b"f" * 32).fingerprint,)))


def test_a_removed_member_is_not_asked_for_a_secret(play: Play) -> None:
    async def story(street: Street) -> None:
        street.node.seen(member(CHANGED))
        await trio.sleep(100)
        assert street.rings == []

    play(story, charter=BEHIND.without([STUDIO]))


def test_a_member_that_is_connected_is_not_asked_at_its_door(play: Play) -> None:
    async def story(street: Street) -> None:
        street.doors["10.0.0.1"] = lets_in(CHANGED, number=1)
        street.here.add(STUDIO)
        street.node.seen(member(CHANGED))
        await trio.sleep(100)
        assert street.rings == []
        street.here.clear()
        await trio.sleep(LOOK_AGAIN_S + 1.5)
        assert street.belonging.cluster == CHANGED

    play(story, charter=BEHIND)


def test_a_secret_that_counts_less_is_not_taken(play: Play) -> None:
    async def story(street: Street) -> None:
        street.doors["10.0.0.1"] = lets_in(CHANGED, number=0)
        street.node.seen(member(CHANGED))
        await trio.sleep(2)
        assert street.belonging.cluster == DESK

    play(story, charter=evolve(BEHIND, number=3))


def test_a_node_that_was_removed_while_it_was_away_is_told_so_and_asks_nobody_any_more(play: Play) -> None:
    async def story(street: Street) -> None:
        street.doors["10.0.0.1"] = says_no(PairingError("removed", denied=True))
        sightings = (member(CHANGED), member(CHANGED, MINI, 2, "10.0.0.2"))
        for cluster in (CHANGED, Cluster("desk", b"m" * 32)):
            for sighting in sightings:
                street.node.seen(evolve(sighting, fingerprint=cluster.fingerprint))
            await trio.sleep(10 * DENIED_S)
        assert street.shut_out.reason == "removed"
        assert len(street.rings) == 1
        assert street.belonging.cluster == DESK

    play(story, charter=BEHIND.met([MINI]))


def test_started_anew_it_says_so_at_once_and_asks_once_more(play: Play) -> None:
    async def is_refused(street: Street) -> None:
        street.doors["10.0.0.1"] = says_no(PairingError("nobody here knows you", denied=True))
        street.node.seen(member(CHANGED))
        await trio.sleep(10 * DENIED_S)
        assert len(street.rings) == 1

    async def says_so_at_once(street: Street) -> None:
        assert street.shut_out.reason == "nobody here knows you"
        await is_refused(street)

    async def is_known_again(street: Street) -> None:
        street.doors["10.0.0.1"] = lets_in(CHANGED, number=1)
        street.node.seen(member(CHANGED))
        await trio.sleep(2)
        assert (street.belonging.cluster, street.shut_out.reason) == (CHANGED, "")

    for each_start in (is_refused, says_so_at_once, is_known_again):
        play(each_start, charter=BEHIND)


def test_a_node_that_heard_while_it_was_here_that_it_was_removed_never_asks(play: Play) -> None:
    async def story(street: Street) -> None:
        street.node.seen(member(CHANGED))
        await trio.sleep(DENIED_S)
        assert (street.shut_out.reason, street.rings) == (REMOVED, [])

    play(story, charter=BEHIND.without([ME]))


def test_those_already_seen_are_dialled_when_their_cluster_becomes_ours(play: Play) -> None:
    async def story(street: Street) -> None:
        street.doors = {"10.0.0.1": for_ever, "10.0.0.2": for_ever}
        street.node.seen(member(DESK))
        street.node.seen(member(ATTIC, MINI, 2, "10.0.0.2"))
        street.belonging.change(Charter(ATTIC))
        street.node.dial_our_own()
        assert [peer for peer, _ in street.dialled] == [MINI]
        await trio.lowlevel.checkpoint()

    play(story)
