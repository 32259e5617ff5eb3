"""Models that leave because another one needs their memory, on whole nodes in virtual time."""

from typing import Any

import pytest
import trio
from attrs import evolve

from p2pexo.cluster.commands import PlaceCommand
from p2pexo.cluster.observed import observe
from p2pexo.generation.errors import InsufficientMemoryError
from p2pexo.generation.events import Event, Finished
from p2pexo.generation.request import Message, Request, Role

MODELS = ("owner/model", "owner/second", "owner/third")
ROOM_FOR_ONE = 200_000
ROOM_FOR_TWO = 300_000


async def desk_of(desk: Any, *names: str, budget: int) -> Any:
    """The first of these nodes, all of which know three models of one size."""
    await desk.add(*names, **dict.fromkeys(names, budget))
    for node in desk.nodes.values():
        (card,) = node.store.known
        node.store.known = tuple(evolve(card, id=id) for id in MODELS)
    return desk.nodes[names[0]]


async def ask(node: Any, model: str, id: str = "r") -> None:
    request = Request(f"{id} {model}", model, (Message(Role.USER, "count"),))
    async with node.router.generate(request) as events:
        received: list[Event] = [event async for event in events]
    assert isinstance(received[-1], Finished), received


def placed(node: Any) -> set[str]:
    return {each.model for each in observe(node.overlay.view).placements.placements}


def test_the_model_used_longest_ago_makes_room_and_comes_back_when_it_is_asked_for(rehearse) -> None:
    async def story(desk) -> None:
        node = await desk_of(desk, "a", budget=ROOM_FOR_TWO)
        for model in (*MODELS[:2], MODELS[0]):
            await ask(node, model)
            await trio.sleep(2)
        await ask(node, MODELS[2])
        assert placed(node) == {MODELS[0], MODELS[2]}
        await ask(node, MODELS[1])
        assert placed(node) == {MODELS[1], MODELS[2]}

    rehearse(story)


def test_it_is_told_who_left_for_whom(rehearse) -> None:
    async def story(desk) -> None:
        node = await desk_of(desk, "a", budget=ROOM_FOR_ONE)
        await ask(node, MODELS[0])
        assert node.control.snapshot().warnings == ()
        await ask(node, MODELS[1])
        (warning,) = node.control.snapshot().warnings
        assert warning == f"{MODELS[0]} was idle, and {MODELS[1]} needed its memory"
        await ask(node, MODELS[2])
        (warning,) = node.control.snapshot().warnings
        assert warning == f"{MODELS[1]} was idle, and {MODELS[2]} needed its memory"

    rehearse(story)


def test_a_model_in_use_stays_and_the_other_one_is_refused(rehearse) -> None:
    async def story(desk) -> None:
        desk.prefill_s = 10.0
        node = await desk_of(desk, "a", budget=ROOM_FOR_ONE)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, node, MODELS[0])
            await desk.until(lambda: desk.running() and desk.running()[0].requests)
            with pytest.raises(InsufficientMemoryError):
                await node.control.place(PlaceCommand(MODELS[1]))
        assert placed(node) == {MODELS[0]}

    rehearse(story)


def test_one_that_only_its_own_node_knows_to_be_used_stays_too(rehearse) -> None:
    """Facts of who is idle come late; the node of stage 0 is asked."""

    async def story(desk) -> None:
        node = await desk_of(desk, "a", "b", budget=ROOM_FOR_ONE)
        await node.control.place(PlaceCommand(MODELS[2]))  # fills one of the two
        await ask(node, MODELS[0])
        await trio.sleep(30)
        other = next(each for each in desk.nodes.values() if each.worker.first_stage(_id(node, MODELS[0])))
        with other.idle_rings.use(_id(node, MODELS[0]), None):
            with pytest.raises(InsufficientMemoryError):
                await node.control.place(PlaceCommand(MODELS[1]))
            assert placed(node) == {MODELS[0], MODELS[2]}
        await node.control.place(PlaceCommand(MODELS[1]))
        assert placed(node) == {MODELS[1], MODELS[2]}

    rehearse(story)


def test_what_a_person_placed_makes_no_room(rehearse) -> None:
    async def story(desk) -> None:
        node = await desk_of(desk, "a", budget=ROOM_FOR_ONE)
        await node.control.place(PlaceCommand(MODELS[0]))
        await trio.sleep(1000)
        with pytest.raises(InsufficientMemoryError):
            await node.control.place(PlaceCommand(MODELS[1]))
        assert placed(node) == {MODELS[0]}

    rehearse(story)


def test_one_that_was_formed_for_somebody_who_is_about_to_come_stays(rehearse) -> None:
    async def story(desk) -> None:
        node = await desk_of(desk, "a", budget=ROOM_FOR_ONE)
        await node.control.place(PlaceCommand(MODELS[0], by_user=False))
        await desk.until_ready("a")
        with pytest.raises(InsufficientMemoryError):
            await node.control.place(PlaceCommand(MODELS[1]))
        await trio.sleep(60)
        await node.control.place(PlaceCommand(MODELS[1]))
        assert placed(node) == {MODELS[1]}

    rehearse(story)


def _id(node: Any, model: str) -> str:
    return next(each.id for each in observe(node.overlay.view).placements.placements if each.model == model)
