from collections.abc import Iterable

import pytest
from attrs import evolve

from p2pexo.cli.errors import CommandError
from p2pexo.cli.follow import follow_placement
from p2pexo.cli.place import find_placement_id
from p2pexo.client import ClusterState, PlacementFailedError
from p2pexo.client.follow import APPEAR_S


class Script:
    """Shows one picture after the other, the last one for ever; time passes with every pause."""

    def __init__(self, snapshots: Iterable[ClusterState]) -> None:
        self._snapshots = list(snapshots)
        self.now = 0.0

    def look(self) -> ClusterState:
        return self._snapshots.pop(0) if len(self._snapshots) > 1 else self._snapshots[0]

    def follow(self, **options):
        self.shown: list[ClusterState] = []
        return follow_placement(
            self.look, "p1", self.shown.append, clock=lambda: self.now, pause=self._pause, **options
        )

    def _pause(self, seconds: float) -> None:
        self.now += seconds


def test_it_waits_until_the_placement_is_ready_and_shows_every_picture(make):
    pictures = [make.snapshot(3), make.snapshot(3, make.placement("loading")), make.snapshot(3, make.placement())]
    script = Script(pictures)
    assert script.follow() == make.placement()
    assert script.shown == pictures


def test_a_broken_ring_may_still_become_ready(make):
    assert (
        Script([make.snapshot(3, make.placement("broken")), make.snapshot(3, make.placement())]).follow().state
        == "ready"
    )


def test_a_failure_ends_the_waiting_with_its_reason(make):
    with pytest.raises(PlacementFailedError, match="owner/model could not be loaded: no memory"):
        Script([make.snapshot(3, make.placement("failed", reason="no memory"))]).follow()


def test_a_failure_without_a_reason_of_its_own_takes_that_of_a_stage(make):
    placement = evolve(make.placement("failed"), stages=(make.stage(0, phase="failed", reason="cut file"),))
    with pytest.raises(PlacementFailedError, match="stage 0 on node-1: cut file"):
        Script([make.snapshot(3, placement)]).follow()


def test_a_deletion_ends_the_waiting(make):
    with pytest.raises(PlacementFailedError, match="p1 was deleted"):
        Script([make.snapshot(3, make.placement("loading")), make.snapshot(3)]).follow()


def test_a_placement_that_never_appears_ends_the_waiting(make):
    script = Script([make.snapshot(3)])
    with pytest.raises(PlacementFailedError, match="has not heard of it"):
        script.follow()
    assert script.now >= APPEAR_S


def test_the_time_limit_ends_the_waiting(make):
    with pytest.raises(CommandError, match="owner/model is not ready after 30 s"):
        Script([make.snapshot(3, make.placement("loading"))]).follow(timeout_s=30)


def test_a_placement_is_found_by_its_id_or_its_model(make):
    snapshot = make.snapshot(3, make.placement())
    assert find_placement_id(snapshot, "p1") == find_placement_id(snapshot, "owner/model") == "p1"
    assert find_placement_id(snapshot, "model") == find_placement_id(snapshot, "Owner/MODEL") == "p1"


def test_a_model_that_failed_before_does_not_make_its_name_ambiguous(make):
    snapshot = make.snapshot(3, make.placement(), make.placement("failed", id="p2"))
    assert find_placement_id(snapshot, "owner/model") == "p1"
    assert find_placement_id(snapshot, "p2") == "p2"


def test_a_name_that_means_several_placements_or_none_is_refused(make):
    snapshot = make.snapshot(3, make.placement(), make.placement(id="p2"))
    with pytest.raises(CommandError, match="name one of p1, p2"):
        find_placement_id(snapshot, "owner/model")
    with pytest.raises(CommandError, match="no placement is called 'p3'; placed is p1"):
        find_placement_id(snapshot, "p3")
    with pytest.raises(CommandError, match="placed is nothing"):
        find_placement_id(make.snapshot(3), "p3")
