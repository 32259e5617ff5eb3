from collections import Counter

from attrs import evolve

from p2pexo.ring.plan import Epoch, Placement, StagePlan
from p2pexo.serving.choosing import Candidate, choose


def candidate(id: str, load: int = 0, capacity: int = 32, held: int = 0, *, is_here: bool = False) -> Candidate:
    placement = Placement(id, "owner/model", "r1", Epoch(1, 1, "a"), (StagePlan(f"peer-{id}", 0, 30),))
    return Candidate(placement, load, capacity, held, is_here)


def chosen(*candidates: Candidate, request_id: str = "r1", prefix_weight: float = 1.0) -> str:
    return choose(candidates, request_id, prefix_weight).id


def test_the_least_loaded_ring_is_taken() -> None:
    assert chosen(candidate("a", load=3), candidate("b", load=2), candidate("c", load=4)) == "b"


def test_a_prefix_that_is_held_outweighs_so_many_requests_as_it_has_pieces() -> None:
    assert chosen(candidate("a", load=3, held=4), candidate("b")) == "a"
    assert chosen(candidate("a", load=5, held=4), candidate("b")) == "b"
    assert chosen(candidate("a", load=5, held=4), candidate("b"), prefix_weight=2.0) == "a"
    assert chosen(candidate("a", load=1, held=4), candidate("b"), prefix_weight=0.0) == "b"


def test_the_longest_prefix_wins_among_equally_loaded_rings() -> None:
    assert chosen(candidate("a", held=4), candidate("b", held=9), candidate("c")) == "b"
    assert chosen(candidate("a", held=40), candidate("b", held=99), prefix_weight=0.5) == "b", "both outweigh all room"


def test_a_prefix_outweighs_no_more_requests_than_the_ring_has_room_for() -> None:
    assert chosen(candidate("a", load=16, held=200), candidate("b", load=1)) == "a"
    assert chosen(candidate("a", load=18, held=200), candidate("b", load=1)) == "b"
    assert chosen(candidate("a", load=32, held=200), candidate("b", load=31)) == "b"
    assert chosen(candidate("a", load=3, capacity=4, held=200), candidate("b", load=1, capacity=4)) == "b"


def test_of_equal_rings_the_one_that_begins_here_is_taken_but_none_that_is_busier() -> None:
    assert chosen(candidate("a"), candidate("b", is_here=True), candidate("c")) == "b"
    assert chosen(candidate("a"), candidate("b", load=1, is_here=True)) == "a"


def test_nodes_without_a_ring_of_their_own_spread_equal_ones_by_lot_and_each_request_has_one_lot() -> None:
    rings = [candidate(id) for id in "abc"]
    lots = [chosen(*rings, request_id=f"r{number}") for number in range(300)]
    assert min(Counter(lots)[id] for id in "abc") > 60
    assert lots == [chosen(*reversed(rings), request_id=f"r{number}") for number in range(300)]


def test_the_lot_of_a_request_stays_when_a_ring_that_it_does_not_fall_on_goes() -> None:
    rings = [candidate(id) for id in "abc"]
    for number in range(50):
        taken = chosen(*rings, request_id=f"r{number}")
        left = [each for each in rings if each.placement.id in (taken, "a")]
        assert chosen(*left, request_id=f"r{number}") == taken


def test_a_ring_beyond_its_capacity_is_as_burdened_as_it_is_loaded() -> None:
    full = candidate("a", load=40, held=9)
    assert full.burden(1.0) == 40
    assert evolve(full, load=30).burden(1.0) == 28
