"""Models that leave when nobody uses them, on whole nodes in virtual time."""

import pytest
import trio
from attrs import evolve

from p2pexo.cluster.commands import PlaceCommand, ReleaseCommand, send_command
from p2pexo.cluster.facts import Deletion
from p2pexo.cluster.observed import observe
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.events import Delta, Event, Finished
from p2pexo.generation.request import Message, Request, Role

MODEL = "owner/model"


def request(id: str = "r1", keep_alive_s: float | None = None) -> Request:
    return Request(id, MODEL, (Message(Role.USER, "count"),), keep_alive_s=keep_alive_s)


async def ask(node, id: str = "r1", keep_alive_s: float | None = None) -> None:
    """The whole answer, nothing missing."""
    async with node.router.generate(request(id, keep_alive_s)) as events:
        received: list[Event] = [event async for event in events]
    assert isinstance(received[-1], Finished), received
    assert sum(isinstance(event, Delta) for event in received) == 10


def is_gone(desk) -> bool:
    return not desk.running() and all(node.placement() is None for node in desk.nodes.values())


def deletion(node) -> Deletion:
    (one,) = observe(node.overlay.view).placements.deletions
    return one


@pytest.mark.parametrize("keep_alive_s", [None, 20.0])
def test_a_model_that_a_request_loaded_leaves_when_it_was_idle_for_so_long(
    rehearse, keep_alive_s: float | None
) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", "c", a=1000, b=80_000, c=80_000)
        await ask(desk.nodes["a"], keep_alive_s=keep_alive_s)
        ended, kept = trio.current_time(), keep_alive_s or 300.0
        await trio.sleep(kept - 1)
        assert desk.running()
        await desk.until(lambda: is_gone(desk))
        assert trio.current_time() - ended == pytest.approx(kept, abs=3)
        assert deletion(desk.nodes["a"]).idle
        await ask(desk.nodes["a"], "r2")

    rehearse(story)


def test_each_use_prolongs_the_stay(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a")
        for number in range(5):
            await ask(desk.nodes["a"], f"r{number}", 20.0)
            await trio.sleep(15)
        assert len(desk.stages) == 1

    rehearse(story)


def test_what_a_person_placed_stays(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b")
        await ask(desk.nodes["a"], keep_alive_s=0.5)
        await desk.nodes["b"].control.place(PlaceCommand(MODEL))
        await ask(desk.nodes["a"], "r2", 0.0)
        await desk.nodes["b"].control.unload(MODEL)
        await trio.sleep(1000)
        assert len(desk.running()) == 1
        assert desk.nodes["a"].placement().keep_alive_s is None

    rehearse(story)


def test_a_keep_alive_of_nothing_ends_with_the_last_answer_and_breaks_none(rehearse) -> None:
    async def story(desk) -> None:
        desk.prefill_s = 5.0
        await desk.add("a", "b")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, desk.nodes["a"], "r1", 0.0)
            await desk.until(lambda: desk.running() and desk.running()[0].requests)
            await trio.sleep(4)
            nursery.start_soon(ask, desk.nodes["b"], "r2")
        await desk.until(lambda: is_gone(desk), within_s=5)
        assert len(desk.stages) == 1

    rehearse(story)


def test_an_unload_waits_for_the_answers_of_others(rehearse) -> None:
    async def story(desk) -> None:
        desk.prefill_s = 5.0
        await desk.add("a", "b")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, desk.nodes["a"])
            await desk.until(lambda: desk.running() and desk.running()[0].requests)
            await desk.nodes["b"].control.unload(MODEL)
            await trio.sleep(1)
            assert desk.running()
        await desk.until(lambda: is_gone(desk), within_s=5)

    rehearse(story)


def test_an_idle_model_is_gone_when_the_unload_returns(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b")
        await ask(desk.nodes["a"])
        await desk.nodes["b"].control.unload(MODEL)
        assert desk.nodes["b"].placement() is None
        await desk.nodes["b"].control.unload(MODEL)

    rehearse(story)


def test_a_request_that_comes_while_the_model_leaves_is_answered_by_the_next_ring(rehearse) -> None:
    """Asked again and again at every moment round the end; not one answer breaks."""

    async def story(desk) -> None:
        await desk.add("a", "b", "c", a=1000, b=80_000, c=80_000)
        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(ask, desk.nodes["abc"[number % 3]], f"r{number}", 0.0)
                await trio.sleep(0.037 * (number % 60))
        assert len(desk.stages) > 2, "the ring never left, so that nothing was shown"
        await desk.until(lambda: is_gone(desk))

    rehearse(story)


def test_a_ring_that_nobody_came_back_for_leaves_too(rehearse) -> None:
    async def story(desk) -> None:
        desk.load_s = 10.0
        await desk.add("a")
        with trio.move_on_after(5):
            await ask(desk.nodes["a"])
        await desk.until(lambda: desk.nodes["a"].placement().state == "ready")
        await trio.sleep(299)
        assert desk.running()
        await desk.until(lambda: is_gone(desk))

    rehearse(story)


def test_everyone_sees_how_long_it_stays(rehearse) -> None:
    async def story(desk) -> None:
        desk.prefill_s = 10.0
        await desk.add("a", "b")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, desk.nodes["a"], "r1", 42.0)
            await desk.until(
                lambda: all((seen := n.placement()) and seen.keep_alive_s == 42 for n in desk.nodes.values())
            )
            assert desk.nodes["b"].placement().idle_since is None
        await desk.until(lambda: all(node.placement().idle_since for node in desk.nodes.values()))
        await ask(desk.nodes["b"], "r2", -1.0)
        await desk.until(lambda: all(node.placement().keep_alive_s is None for node in desk.nodes.values()))
        await trio.sleep(1000)
        assert desk.running()

    rehearse(story)


def test_without_a_leader_it_stays_and_leaves_once_there_is_one(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", a=1000)
        await ask(desk.nodes["b"], keep_alive_s=2.0)
        await desk.remove("a")
        await desk.until(lambda: is_gone(desk))
        await ask(desk.nodes["b"], "r2")

    rehearse(story)


def test_a_ring_formed_anew_is_not_ended_by_what_was_known_of_the_old_one(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a")
        await ask(desk.nodes["a"])
        (placement,) = observe(desk.nodes["a"].overlay.view).placements.placements
        older = evolve(placement.epoch, count=0)
        with pytest.raises(InvalidRequestError, match="stays"):
            await send_command(desk.nodes["a"].overlay, ReleaseCommand(placement.id, older, "idle"))
        assert desk.running()

    rehearse(story)
