"""A member that was away at other doors: whom it asks for the changed secret, and what it makes of a no; in virtual time."""

import pytest
import trio
from attrs import evolve
from paper_doors import DESK, ME, MINI, STUDIO, Play, Street, lets_in, member, says_no

from networking.charter import Charter
from networking.discovery import Sighting
from networking.pairing import PairingError
from networking.pairing_messages import Purpose
from networking.ticket import Cluster
from p2pexo.node.newcomer import DENIED_S, LOOK_AGAIN_S
from p2pexo.node.shut_out import REMOVED

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
