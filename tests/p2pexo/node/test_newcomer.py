"""A fresh node at other doors: whom it asks to be let in, for how long, and what it makes of the answers; in virtual time."""

import trio
from attrs import evolve
from paper_doors import ATTIC, DESK, ME, MINI, OWN, STUDIO, Play, Street, for_ever, lets_in, member, says_no

from networking.charter import Charter
from networking.pairing import PairingError
from networking.pairing_client import UnreachableError
from networking.transport import Address, PeerId
from p2pexo.cluster.facts import Asking
from p2pexo.node.newcomer import AGAIN_S, DENIED_S, LOOK_ROUND_S, UNREACHABLE_S


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
