"""Several rings of one model, on whole nodes in virtual time."""

from collections import Counter

import pytest
import trio

from p2pexo.cluster.commands import PlaceCommand
from p2pexo.generation.events import Delta, Event, Finished, Waiting
from p2pexo.generation.request import Message, Request, Role

MODEL = "owner/model"
WHOLE = "0 1 2 3 4 5 6 7 8 9 "
LONG = "Once more, from the beginning. " * 200


async def two_rings(desk, *, stages: int = 1) -> None:
    """One on a (and b), one on the next machines; ``z`` runs nothing."""
    names = "abcd"[: 2 * stages]
    await desk.add(*names, "z", z=1000)
    await desk.nodes["a"].control.place(PlaceCommand(MODEL, min_stages=stages, replicas=2))
    await desk.until(lambda: all(ready(node) == 2 for node in desk.nodes.values()))


def ready(node) -> int:
    return sum(each.state == "ready" for each in node.control.snapshot().placements)


def request(id: str, *turns: str) -> Request:
    roles = (Role.USER, Role.ASSISTANT)
    return Request(id, MODEL, tuple(Message(roles[index % 2], turn) for index, turn in enumerate(turns or ("count",))))


async def answer(node, asked: Request, events: list[Event] | None = None) -> list[Event]:
    received = [] if events is None else events
    async with node.router.generate(asked) as incoming:
        async for event in incoming:
            received.append(event)
    return received


def check_whole(events: list[Event]) -> None:
    assert "".join(event.text for event in events if isinstance(event, Delta)) == WHOLE
    assert isinstance(events[-1], Finished)


def by_node(desk) -> Counter[str]:
    """How many requests each node's stages have got."""
    counts: Counter[str] = Counter()
    for stage in desk.stages:
        counts[stage.node] += len(stage.requests)
    return +counts


@pytest.mark.parametrize("asker", ["a", "b", "z"])
def test_requests_that_come_at_once_are_spread_over_the_rings(rehearse, asker: str) -> None:
    async def story(desk) -> None:
        await two_rings(desk)
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(answer, desk.nodes[asker], request(f"r{number}"))
        assert by_node(desk) == {"a": 4, "b": 4}

    rehearse(story)


def test_a_conversation_stays_with_the_ring_that_has_it_in_its_caches(rehearse) -> None:
    async def story(desk) -> None:
        await two_rings(desk)
        turns = [LONG]
        for number in range(4):
            await answer(desk.nodes["z"], request(f"r{number}", *turns))
            turns += [WHOLE, "And then?"]
        assert sorted(by_node(desk).values()) == [4]

    rehearse(story)


@pytest.mark.parametrize("fault", ["process", "link", "node"])
def test_the_answers_of_a_lost_ring_go_on_at_the_other_one_at_once(rehearse, fault: str) -> None:
    async def story(desk) -> None:
        await two_rings(desk, stages=2)
        desk.load_s = 1000.0  # no ring is formed anew in time
        asker = desk.nodes["z"]
        answers: list[list[Event]] = [[] for _ in range(8)]
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number, events in enumerate(answers):
                nursery.start_soon(answer, asker, request(f"r{number}"), events)
            await desk.until(lambda: all(any(isinstance(each, Delta) for each in events) for events in answers))
            victim = next(stage for stage in desk.running() if not stage.spec.is_first)
            match fault:
                case "process":
                    victim.crash()
                case "link":
                    desk.break_links_to(victim.status.certificate)
                case _:
                    await desk.remove(victim.node)
        for events in answers:
            check_whole(events)
        moved = [events for events in answers if any(isinstance(each, Waiting) for each in events)]
        assert len(moved) == 4
        assert trio.current_time() - began < 1.5, "ten tokens take a second, and nobody waits for anything else"
        assert sum(by_node(desk).values()) == 12

    rehearse(story)


def test_when_the_lost_ring_is_formed_anew_both_are_used_again(rehearse) -> None:
    async def story(desk) -> None:
        await two_rings(desk, stages=2)
        asker = desk.nodes["z"]
        desk.running()[0].crash()
        await desk.until(lambda: ready(asker) < 2)
        await desk.until(lambda: all(ready(node) == 2 for node in desk.nodes.values()))
        before = by_node(desk)
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(answer, asker, request(f"r{number}"))
        assert sorted((by_node(desk) - before).values()) == [4, 4]

    rehearse(story)


def test_new_requests_keep_away_from_a_ring_that_broke_one_before_the_facts_tell(rehearse) -> None:
    async def story(desk) -> None:
        await two_rings(desk)
        first = desk.stage_on("a")
        asker = desk.nodes["a"]
        async with asker.router.generate(request("r0")) as events:
            await events.receive()
            first.crash()
            async for _ in events:
                pass
        taken = len(first.requests)
        async with trio.open_nursery() as nursery:
            for number in range(1, 5):
                nursery.start_soon(answer, asker, request(f"r{number}"))
        assert len(first.requests) == taken

    rehearse(story)
