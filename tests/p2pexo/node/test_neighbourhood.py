from itertools import permutations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from networking.discovery import REPEAT_INTERVAL, Sighting
from networking.transport import Address, PeerId
from p2pexo.node.neighbourhood import MAX_SIGHTED, SIGHTING_KEPT_S, Neighbourhood, whom_to_ask

ADDRESS = Address("/ip4/10.0.0.1/tcp/1")


def fresh(peer: str) -> Sighting:
    return Sighting(PeerId(peer), (ADDRESS,), f"{peer}-0000", f"print-of-{peer}", 2, 1, 4000, True)


def member(peer: str, cluster: str, members: int) -> Sighting:
    return Sighting(PeerId(peer), (ADDRESS,), cluster, f"print-of-{cluster}", 2, members, 4000, False)


def asked(me: str, *others: Sighting, named: str | None = None) -> str | None:
    found = whom_to_ask(PeerId(me), others, named)
    return found.peer if found else None


def test_of_two_fresh_nodes_the_higher_asks_the_lower() -> None:
    assert asked("b", fresh("a")) == "a"
    assert asked("a", fresh("b")) is None


@pytest.mark.parametrize("others", permutations([fresh("a"), fresh("b"), fresh("c")]))
def test_of_many_fresh_nodes_all_ask_the_lowest(others: tuple[Sighting, ...]) -> None:
    assert asked("d", *others) == "a"


def test_a_cluster_comes_before_fresh_nodes_and_the_larger_one_first() -> None:
    others = [fresh("a"), member("x", "desk", 2), member("y", "attic", 3), member("z", "attic", 3)]
    assert asked("b", *others) == "y"


def test_a_member_is_asked_though_its_peer_id_is_higher() -> None:
    assert asked("a", member("z", "desk", 1)) == "z"
    assert asked("a", evolve(fresh("z"), members=2)) == "z"


def test_with_a_name_only_that_cluster_is_asked() -> None:
    others = [member("x", "desk", 2), member("y", "attic", 9)]
    assert asked("b", *others, named="desk") == "x"
    assert asked("b", *others, named="cellar") is None


@given(st.sets(st.text("abcdefgh", min_size=1, max_size=3), min_size=2, max_size=6))
def test_of_fresh_nodes_exactly_one_asks_nobody(peers: set[str]) -> None:
    sightings = [fresh(peer) for peer in peers]
    silent = [peer for peer in peers if asked(peer, *(each for each in sightings if each.peer != peer)) is None]
    assert silent == [min(peers)]


def test_who_has_no_door_or_is_to_be_avoided_is_not_asked() -> None:
    here = Neighbourhood()
    here.add(0.0, evolve(member("x", "desk", 2), pairing=None))
    here.add(0.0, member("y", "desk", 2))
    here.add(0.0, member("z", "attic", 2))
    here.avoid(10.0, "y")
    here.avoid(20.0, "print-of-attic")
    assert here.askable(5.0) == ()
    assert here.first_retry() == 10.0
    assert [each.peer for each in here.askable(10.0)] == ["y"]
    assert [each.peer for each in here.askable(20.0)] == ["y", "z"]
    assert here.first_retry() is None


def test_the_newest_sighting_counts_until_it_is_old() -> None:
    here = Neighbourhood()
    here.add(0.0, fresh("x"))
    here.add(1.0, member("x", "desk", 2))
    assert [each.cluster for each in here.sightings(SIGHTING_KEPT_S)] == ["desk"]
    assert here.sightings(SIGHTING_KEPT_S + 1) == ()
    assert 2 * REPEAT_INTERVAL < SIGHTING_KEPT_S


def test_made_up_nodes_are_forgotten_in_time() -> None:
    here = Neighbourhood()
    for number in range(2 * MAX_SIGHTED):
        here.add(0.0, fresh(f"{number}"))
    assert len(here.sightings(0.0)) == MAX_SIGHTED
