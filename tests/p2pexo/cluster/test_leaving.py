"""How nodes go that are asked to, on whole nodes in virtual time."""

import pytest
import trio

from p2pexo.cluster.commands import PlaceCommand
from p2pexo.cluster.leaving import HAND_OVER_S
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.ring.stage import StagePhase

PLACE_ON_TWO = PlaceCommand("owner/model", min_stages=2)


def test_a_stage_serves_until_another_machine_has_loaded_its_layers_and_then_the_node_may_go(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", "c", a=1000)
        await desk.nodes["a"].control.place(PLACE_ON_TWO)
        await desk.until_ready("b", "c")
        stays, goes = desk.stage_on("b"), desk.stage_on("c")
        await desk.add("d")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.nodes["c"].departure.run, trio.Event())
            assert await desk.nodes["a"].control.leave("c") == desk.nodes["c"].peer
            await desk.until(lambda: any(stage.node == "d" for stage in desk.running()))
            assert (stays.status.phase, goes.status.phase) == (StagePhase.READY, StagePhase.READY)
        assert goes.ended
        await desk.remove("c")
        await desk.until_ready("b", "d")
        assert desk.running() == [stays, desk.stage_on("d")]

    rehearse(story)


def test_a_leader_that_leaves_hands_its_stage_over_first(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b")
        await desk.nodes["a"].control.place(PLACE_ON_TWO)
        await desk.until_ready("a", "b")
        await desk.add("d")
        desk.nodes["a"].departure.ask()
        await desk.nodes["a"].departure.run(trio.Event())
        await desk.until(lambda: {each.node for each in desk.nodes["a"].placement().stages} == {"b", "d"})
        serving = desk.running()
        await desk.remove("a")
        await desk.until_ready("b", "d")
        assert desk.running() == serving

    rehearse(story)


def test_a_node_with_a_signal_goes_in_time_though_its_model_fits_nowhere_else(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", "c", a=1000, b=1000)
        await desk.nodes["a"].control.place(PlaceCommand("owner/model"))
        await desk.until_ready("c")
        signalled = trio.Event()
        signalled.set()
        began = trio.current_time()
        await desk.nodes["c"].departure.run(signalled)
        assert trio.current_time() - began == pytest.approx(HAND_OVER_S, abs=0.5)
        assert "does not fit" in desk.nodes["b"].overlay.view.payload.decode()

    rehearse(story)


def test_a_node_that_is_alone_or_runs_nothing_goes_at_once(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a")
        await desk.nodes["a"].control.place(PlaceCommand("owner/model"))
        await desk.until_ready("a")
        for name in ("a", "d"):
            if name == "d":
                await desk.add("d")
            began = trio.current_time()
            desk.nodes[name].departure.ask()
            await desk.nodes[name].departure.run(trio.Event())
            assert trio.current_time() == began

    rehearse(story)


def test_who_leaves_must_be_a_member(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b")
        with pytest.raises(InvalidRequestError, match="0 members are called 'z'; name one of a "):
            await desk.nodes["a"].control.leave("z")

    rehearse(story)
