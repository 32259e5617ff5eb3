import pytest
from attrs import evolve

from p2pexo.cluster.commands import PlaceCommand
from p2pexo.cluster.machines import Candidate
from p2pexo.cluster.manual import Part, parse_split, plan_split
from p2pexo.cluster.placing import place
from p2pexo.generation.errors import InsufficientMemoryError, InvalidRequestError
from p2pexo.models.card import Card

CARD = Card("owner/model", "r1", "llama", 30, 576, 4, 100, 300, 320, 5)
MACHINES = [Candidate("peer-a", "mac-a", 10**6), Candidate("peer-b", "mac-b", 10**6), Candidate("peer-c", "b=c", 10**6)]


def test_a_split_is_read_with_both_ends_counted_in_and_put_in_order() -> None:
    assert parse_split("mac-b=10-29, mac-a=0-9") == (Part("mac-a", 0, 10), Part("mac-b", 10, 30))
    assert parse_split("b=c=7") == (Part("b=c", 7, 8),)


def test_stages_are_made_as_written_with_room_for_equally_many_tokens() -> None:
    stages = plan_split(CARD, MACHINES, parse_split("mac-a=0-6,peer-b=7-29"))
    assert [(each.peer, each.first_layer, each.end_layer) for each in stages] == [("peer-a", 0, 7), ("peer-b", 7, 30)]
    assert len({each.cache_tokens for each in stages}) == 1
    assert stages[0].reserved_bytes == 300 + 7 * (100 + 5 * stages[0].cache_tokens)


@pytest.mark.parametrize(
    "text", ["", "mac-a", "mac-a=", "=0-9", "mac-a=0-9,", "mac-a=a-9", "mac-a=0-9-12", "mac-a=9-0"]
)
def test_what_is_no_split_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="mac-a=0-9,mac-b=10-29") as caught:
        parse_split(text)
    assert caught.value.param == "split"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mac-a=1-9,mac-b=10-29", "layer 0 of owner/model no machine has"),
        ("mac-a=0-9,mac-b=12-29", "layers 10-11 of owner/model no machine has: between mac-a=0-9 and mac-b=12-29"),
        ("mac-a=0-12,mac-b=10-29", "layers 10-12 more than one machine has: both mac-a=0-12 and mac-b=10-29"),
        ("mac-a=0-9,mac-b=10-28", "has 30 layers, 0-29, but the split ends with mac-b=10-28"),
        ("mac-a=0-9,mac-b=10-30", "has 30 layers, 0-29, but the split ends with mac-b=10-30"),
        ("mac-a=0-9,mac-x=10-29", "called 'mac-x'; there are: mac-a, mac-b, b=c"),
        ("mac-a=0-9,peer-a=10-29", "mac-a is named more than once"),
    ],
)
def test_what_makes_no_ring_is_refused_by_name(text: str, told: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        plan_split(CARD, MACHINES, parse_split(text))
    assert told in caught.value.message
    assert caught.value.param == "split"


def test_two_machines_of_one_name_are_told_apart_by_peer_id() -> None:
    twins = [evolve(MACHINES[0], name="mac"), evolve(MACHINES[1], name="mac")]
    with pytest.raises(InvalidRequestError, match=r"2 machines are called 'mac'.*peer-a, peer-b"):
        plan_split(CARD, twins, parse_split("mac=0-29"))
    assert plan_split(CARD, twins, parse_split("peer-b=0-29"))


def test_a_part_that_does_not_fit_is_refused_with_the_figures() -> None:
    small = evolve(MACHINES[0], name="mini", budget=2_000_000, reserved=1_999_000)
    with pytest.raises(InsufficientMemoryError, match=r"mini=0-9 does not fit: it needs 0 MB.*0 MB of 2 MB are free"):
        plan_split(CARD, [small, MACHINES[1]], parse_split("mini=0-9,mac-b=10-29"))


def test_machines_that_compute_in_different_formats_are_named() -> None:
    mixed = [evolve(MACHINES[0], device="gpu"), MACHINES[1]]
    with pytest.raises(InvalidRequestError, match="mac-a in the model's own, mac-b in fp32"):
        plan_split(CARD, mixed, parse_split("mac-a=0-9,mac-b=10-29"))


def test_the_leader_places_as_written_and_keeps_a_placement_that_runs_otherwise(scene) -> None:
    command = PlaceCommand(scene.card.id, split=parse_split("mac-c=0-4,b=5-29"))
    placements, id = place(scene.cluster("abc"), command, scene.card)
    (placed,) = placements.placements
    assert [(each.peer, each.end_layer) for each in placed.stages] == [("c", 5), ("b", 30)]
    placed_here = scene.cluster("abc", placements)
    assert place(placed_here, command, scene.card)[1] == id
    assert place(placed_here, PlaceCommand(scene.card.id), scene.card)[1] == id
    with pytest.raises(InvalidRequestError, match="runs as mac-c=0-4,mac-b=5-29; delete placement"):
        place(placed_here, evolve(command, split=parse_split("mac-c=0-5,b=6-29")), scene.card)
