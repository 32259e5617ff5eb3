"""Who makes room, decided on made-up clusters."""

from collections.abc import Iterable
from typing import Any

import pytest
from attrs import evolve

from p2pexo.cluster.eviction import victims
from p2pexo.cluster.facts import Placements, StayFact, StaysFact
from p2pexo.cluster.observed import Cluster

IDLE: dict[str, float | None] = {"old": 10.0, "older": 5.0, "new": 20.0, "used": None}
"""By id of a placement: since when it is idle."""


def cluster_of(scene: Any, by_user: Iterable[str] = ()) -> Cluster:
    placements = [
        evolve(scene.placement("a", id=id), model=f"owner/{id}", by_user=id in by_user) for id in (*IDLE, "untold")
    ]
    stays = StaysFact([StayFact(id, 300.0, since) for id, since in IDLE.items()])
    return evolve(scene.cluster("a", Placements(placements)), stays={"a": stays})


def needing(bytes: int, *ids: str):
    """Whether so many bytes of these placements have become free; each has 1,000."""

    def fits(cluster: Cluster) -> bool:
        gone = {*ids} - {each.id for each in cluster.placements.placements}
        return 1000 * len(gone) >= bytes

    return fits


def chosen(cluster: Cluster, fits: Any, spared: Iterable[str] = ()) -> list[str]:
    return [each.id for each in victims(cluster, fits, {*spared})]


def test_the_one_used_longest_ago_goes(scene) -> None:
    assert chosen(cluster_of(scene), needing(1000, *IDLE)) == ["older"]


def test_as_many_go_as_are_needed(scene) -> None:
    assert chosen(cluster_of(scene), needing(2000, *IDLE)) == ["older", "old"]
    assert chosen(cluster_of(scene), needing(3000, *IDLE)) == ["older", "old", "new"]


def test_one_whose_memory_is_of_no_use_stays(scene) -> None:
    assert chosen(cluster_of(scene), needing(1000, "new")) == ["new"]
    assert chosen(cluster_of(scene), needing(2000, "older", "new")) == ["older", "new"]


def test_nobody_goes_in_vain(scene) -> None:
    assert chosen(cluster_of(scene), needing(4000, *IDLE)) == []


@pytest.mark.parametrize("id", ["used", "untold"])
def test_one_that_is_used_or_of_which_nothing_is_known_never_goes(scene, id: str) -> None:
    assert chosen(cluster_of(scene), needing(1000, id)) == []


def test_what_a_person_placed_never_goes(scene) -> None:
    assert chosen(cluster_of(scene, by_user=("older",)), needing(1000, *IDLE)) == ["old"]
    assert chosen(cluster_of(scene, by_user=("older",)), needing(1000, "older")) == []


def test_one_that_is_spared_stays(scene) -> None:
    assert chosen(cluster_of(scene), needing(1000, *IDLE), spared=("older", "old")) == ["new"]
