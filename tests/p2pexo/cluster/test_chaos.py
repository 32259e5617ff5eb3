"""Nodes leave and come, stages crash and links break at random; when it is quiet again, all must be in order."""

from random import Random

import pytest
import trio

from p2pexo.cluster.commands import PlaceCommand


@pytest.mark.parametrize("seed", range(8))
def test_after_any_disorder_the_ring_is_ready_and_nothing_else_runs(rehearse, seed: int) -> None:
    """Not so much disorder that the leader would be right to give the placement up."""
    random, crashes = Random(seed), 0

    async def disturb(desk) -> None:
        nonlocal crashes
        present, absent = sorted(desk.nodes), sorted(set("abcde") - set(desk.nodes))
        stages = [stage for stage in desk.running() if stage.status.phase == "ready"]
        choice = random.randrange(4)
        if choice == 0 and len(present) > 2:
            await desk.remove(random.choice(present))
        elif choice == 1 and absent:
            await desk.add(random.choice(absent))
        elif choice == 2 and stages and crashes < 2:
            crashes += 1
            random.choice(stages).crash()
        elif choice == 3 and stages:
            random.choice(stages).lose_link()

    async def story(desk) -> None:
        await desk.add("a", "b", "c", "d")
        id = await desk.nodes["a"].control.place(PlaceCommand("owner/model", min_stages=2))
        for _ in range(8):
            await trio.sleep(random.uniform(0, 12))
            await disturb(desk)
        await trio.sleep(90)
        for node in desk.nodes.values():
            placement = node.placement()
            assert (placement.id, placement.state) == (id, "ready"), placement.reason
            assert {stage.node for stage in placement.stages} == {stage.node for stage in desk.running()}
            assert len(placement.stages) == len(desk.running())
        await desk.nodes[min(desk.nodes)].control.delete(id)
        await desk.until(lambda: not desk.running())

    rehearse(story)
