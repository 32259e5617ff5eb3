"""The leader's and the workers' duties together, on whole nodes in virtual time."""

import pytest
import trio

from networking.documents import FactTooLargeError
from p2pexo.cluster.commands import PlaceCommand
from p2pexo.cluster.restarts import RESTART_PAUSES_S

MODEL = "owner/model"


def place(min_stages: int = 1) -> PlaceCommand:
    return PlaceCommand(MODEL, min_stages=min_stages)


def test_a_model_placed_through_any_node_becomes_ready_everywhere(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", "c")
        id = await desk.nodes["c"].control.place(place(3))
        await desk.until_ready("a", "b", "c")
        assert desk.nodes["b"].placement().id == id
        assert [stage.end_layer - stage.first_layer for stage in desk.nodes["b"].placement().stages] == [10, 10, 10]

    rehearse(story)


def test_a_ring_of_one_becomes_ready(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", a=1000)
        await desk.nodes["a"].control.place(place())
        await desk.until_ready("b")

    rehearse(story)


def test_a_ring_moves_to_the_machines_that_are_left(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", "c")
        id = await desk.nodes["a"].control.place(place(3))
        await desk.until_ready("a", "b", "c")
        await desk.remove("c")
        await desk.until_ready("a", "b")
        assert desk.nodes["a"].placement().id == id

    rehearse(story)


def test_a_spare_machine_takes_over_and_the_others_keep_their_weights(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", "c", a=1000)
        await desk.nodes["a"].control.place(place(2))
        await desk.until_ready("b", "c")
        survivor = desk.stage_on("b")
        await desk.add("d")
        await desk.remove("c")
        await desk.until_ready("b", "d")
        assert desk.running() == [survivor, desk.stage_on("d")]

    rehearse(story)


def test_the_death_of_a_leader_without_a_stage_restarts_nothing(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", "c", a=1000)
        id = await desk.nodes["b"].control.place(place(2))
        await desk.until_ready("b", "c")
        stages, epoch = desk.running(), desk.nodes["b"].placement().epoch
        await desk.remove("a")
        await desk.until(lambda: desk.nodes["b"].overlay.view.leader == desk.nodes["b"].peer)
        await trio.sleep(60)
        assert desk.running() == stages
        assert (desk.nodes["c"].placement().id, desk.nodes["c"].placement().epoch) == (id, epoch)
        assert desk.nodes["c"].placement().state == "ready"

    rehearse(story)


def test_a_leader_that_dies_while_stages_load_is_replaced_and_they_load_on(rehearse) -> None:
    async def story(desk) -> None:
        desk.load_s = 20.0
        await desk.add("a", "b", "c", a=1000)
        await desk.nodes["c"].control.place(place(2))
        await desk.until(lambda: len(desk.running()) == 2)
        stages = desk.running()
        await desk.remove("a")
        await desk.until_ready("b", "c")
        assert desk.stages == stages

    rehearse(story)


def test_a_join_and_a_leave_of_bystanders_change_nothing(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b")
        await desk.nodes["a"].control.place(place(2))
        await desk.until_ready("a", "b")
        stages, epoch = desk.running(), desk.nodes["b"].placement().epoch
        await desk.add("c")
        await desk.remove("c")
        await trio.sleep(30)
        assert desk.running() == stages
        assert desk.nodes["b"].placement().epoch == epoch

    rehearse(story)


def test_a_deleted_placement_stops_everywhere_and_nothing_brings_it_back(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", "c", a=1000)
        id = await desk.nodes["b"].control.place(place(2))
        await desk.until_ready("b", "c")
        await desk.nodes["c"].control.delete(id)
        await desk.until(lambda: not desk.running())
        await desk.remove("a")
        await desk.until(lambda: desk.nodes["b"].overlay.view.leader == desk.nodes["b"].peer)
        await trio.sleep(120)
        assert desk.running() == []
        assert desk.nodes["c"].placement() is None
        await desk.nodes["c"].control.delete(id)

    rehearse(story)


def test_a_crashed_stage_starts_again_and_the_ring_is_formed_anew(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b")
        await desk.nodes["a"].control.place(place(2))
        await desk.until_ready("a", "b")
        survivor, epoch = desk.stage_on("a"), desk.nodes["a"].placement().epoch
        desk.stage_on("b").crash()
        await desk.until(lambda: desk.nodes["a"].placement().epoch != epoch)
        await desk.until_ready("a", "b")
        assert desk.stage_on("a") is survivor

    rehearse(story)


def test_a_lost_link_alone_costs_no_process(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b")
        await desk.nodes["a"].control.place(place(2))
        await desk.until_ready("a", "b")
        stages = desk.running()
        stages[0].lose_link()
        await desk.until(lambda: desk.nodes["a"].placement().state != "ready")
        await desk.until_ready("a", "b")
        assert desk.stages == stages

    rehearse(story)


def test_a_stage_of_a_machine_that_changed_its_network_listens_anew(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b")
        await desk.nodes["a"].control.place(place(2))
        await desk.until_ready("a", "b")
        stages = desk.running()
        desk.hosts = ["10.0.0.5"]
        stages[0].lose_link()
        await desk.until(lambda: all(stage.ended for stage in stages))
        await desk.until_ready("a", "b")
        assert {stage.endpoint.split(":")[0] for stage in desk.nodes["a"].placement().stages} == {"10.0.0.5"}

    rehearse(story)


def test_a_follower_that_comes_back_takes_up_its_stage_again(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", a=80_000, b=80_000)
        leader = desk.nodes["a"]
        await leader.control.place(place(2))
        await desk.until_ready("a", "b")
        await desk.remove("b")
        await desk.add("b")
        await desk.until_ready("a", "b")
        assert leader.overlay.view.leader == leader.peer

    rehearse(story)


def test_a_model_that_loads_on_no_machine_ends_as_failed_with_the_reason(rehearse) -> None:
    async def story(desk) -> None:
        desk.unable = {"a", "b"}
        await desk.add("a", "b")
        id = await desk.nodes["b"].control.place(place())
        await desk.until(
            lambda: (seen := desk.nodes["b"].placement()) and seen.state == "failed" and not desk.running()
        )
        await trio.sleep(60)
        failed = desk.nodes["b"].placement()
        assert (failed.id, failed.state) == (id, "failed")
        assert "model.safetensors is cut short" in failed.reason
        assert len(desk.stages) <= 4

    rehearse(story)


def test_a_stage_that_cannot_be_started_fails_and_the_node_goes_on(rehearse) -> None:
    async def story(desk) -> None:
        desk.unstartable = {"b"}
        await desk.add("a", "b", b=10**10)
        await desk.nodes["a"].control.place(place())
        await desk.until_ready("a")
        desk.unstartable = {"a", "b"}
        desk.stage_on("a").crash()
        await desk.until(lambda: (seen := desk.nodes["b"].placement()) and seen.state == "failed")
        assert "the temporary folder is somebody else's" in desk.nodes["b"].placement().reason

    rehearse(story)


def test_a_reason_of_any_length_and_kind_is_told_in_short(rehearse) -> None:
    async def story(desk) -> None:
        desk.unable, desk.reason = {"a"}, f"cut \udcff short: {'x' * 300_000}: KeyError"
        await desk.add("a", "b", b=1000)
        await desk.nodes["b"].control.place(place())
        await desk.until(lambda: (seen := desk.nodes["b"].placement()) and seen.state == "failed")
        reason = desk.nodes["b"].placement().reason
        assert "cut ? short" in reason
        assert "KeyError" in reason
        assert len(reason) < 1000

    rehearse(story)


def test_a_machine_that_cannot_load_is_passed_over(rehearse) -> None:
    async def story(desk) -> None:
        desk.unable = {"b"}
        await desk.add("a", "b", a=10**6)
        await desk.nodes["a"].control.place(place())
        await desk.until_ready("a")

    rehearse(story)


def test_a_trouble_that_cannot_be_told_ends_no_node(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", a=1000)
        node = desk.nodes["a"]
        await node.control.place(place())
        await desk.until_ready("b")
        refused: list[bytes] = []

        def refuse(payload: bytes) -> None:
            refused.append(payload)
            raise FactTooLargeError("too large")

        node.overlay.set_payload = refuse
        await desk.remove("b")
        await desk.until(lambda: refused)
        del node.overlay.set_payload
        await desk.add("c")
        await desk.until_ready("c")

    rehearse(story)


def test_snapshots_come_after_each_change(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b")
        states: list[str] = []
        await desk.nodes["a"].control.place(place(2))
        async for snapshot in desk.nodes["b"].control.snapshots():
            states += [each.state for each in snapshot.placements]
            if "ready" in states:
                break
        assert states[0] == "loading"

    rehearse(story)


def test_both_halves_of_a_partition_go_on_and_one_ring_is_left_when_it_heals(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", "c")
        id = await desk.nodes["a"].control.place(place(2))
        await desk.until(lambda: (seen := desk.nodes["c"].placement()) and seen.state == "ready")
        desk.network.partition(*[[desk.nodes[name].transport.address] for name in "abc"])
        await desk.until(lambda: all(node.overlay.view.leader == node.peer for node in desk.nodes.values()))
        await desk.until(lambda: all(node.placement().state == "ready" for node in desk.nodes.values()))
        desk.network.heal()
        await desk.until(lambda: len({node.overlay.view.leader for node in desk.nodes.values()}) == 1)
        await desk.until(lambda: len({node.placement().epoch for node in desk.nodes.values()}) == 1)
        await desk.until(lambda: desk.nodes["a"].placement().state == "ready")
        await trio.sleep(60)
        placement = desk.nodes["a"].placement()
        assert (placement.id, placement.state) == (id, "ready")
        assert {stage.node for stage in placement.stages} == {stage.node for stage in desk.running()}
        assert len(desk.running()) == len(placement.stages)

    rehearse(story)


@pytest.mark.parametrize("load_s", [0.5, 20.0])
def test_a_stage_that_keeps_crashing_moves_elsewhere(rehearse, load_s: float) -> None:
    async def story(desk) -> None:
        desk.load_s = load_s
        await desk.add("a", "b", "c", a=1000)
        await desk.nodes["a"].control.place(place())
        await desk.until(desk.running)
        first = desk.running()[0].node

        async def crash_again_and_again() -> None:
            while True:
                await desk.until(
                    lambda: any(s.node == first and s.status.phase == "ready" for s in desk.running()), 100
                )
                victim = desk.stage_on(first)
                victim.crash()
                await desk.until(lambda victim=victim: victim.ended)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(crash_again_and_again)
            await desk.until_ready("c" if first == "b" else "b", within_s=300)
            nursery.cancel_scope.cancel()
        assert len([stage for stage in desk.stages if stage.node == first]) == 1 + len(RESTART_PAUSES_S)

    rehearse(story)
