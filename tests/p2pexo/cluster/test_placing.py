import pytest
from attrs import evolve

from p2pexo.cluster.commands import PlaceCommand
from p2pexo.cluster.facts import Placements
from p2pexo.cluster.placing import place
from p2pexo.generation.errors import InsufficientMemoryError, InvalidRequestError


def wish(scene, replicas: int = 2, min_stages: int = 1) -> PlaceCommand:
    return PlaceCommand(scene.card.id, replicas=replicas, min_stages=min_stages)


def peers(placements: Placements) -> list[list[str]]:
    return [[stage.peer for stage in each.stages] for each in placements.placements]


def test_replicas_are_rings_on_machines_of_their_own(scene) -> None:
    placements, id = place(scene.cluster("abcde"), wish(scene, 2, 2), scene.card)
    assert peers(placements) == [["a", "b"], ["c", "d"]]
    first, second = placements.placements
    assert id == second.id != first.id
    assert first.epoch < second.epoch


def test_a_replica_is_added_to_a_ring_that_runs_and_asking_again_changes_nothing(scene) -> None:
    one, first = place(scene.cluster("abc"), wish(scene, 1), scene.card)
    two, second = place(scene.cluster("abc", one), wish(scene), scene.card)
    assert two.placements[0] == one.placements[0]
    assert len(two.placements) == 2
    assert place(scene.cluster("abc", two), wish(scene), scene.card) == (two, second)
    assert place(scene.cluster("abc", two), wish(scene, 1), scene.card) == (two, first)


def test_without_machines_for_it_a_replica_is_refused_and_nothing_is_placed(scene) -> None:
    with pytest.raises(InsufficientMemoryError, match="replica 3 of owner/model needs machines that run none"):
        place(scene.cluster("ab"), wish(scene, 3), scene.card)
    with pytest.raises(InsufficientMemoryError, match=r"replica 2 of .*: owner/model does not fit.*mac-b: needs"):
        place(scene.cluster("ab", budgets={"b": 1000}), wish(scene), scene.card)
    with pytest.raises(InvalidRequestError, match="min_stages is 2, but 1 node"):
        place(scene.cluster("abc"), wish(scene, 2, 2), scene.card)


def test_a_person_who_asks_for_replicas_keeps_the_ring_that_a_request_brought_about(scene) -> None:
    automatic, _ = place(scene.cluster("abc"), evolve(wish(scene, 1), by_user=False), scene.card)
    placements, _ = place(scene.cluster("abc", automatic), wish(scene), scene.card)
    assert [each.by_user for each in placements.placements] == [True, True]
