"""Requests on their way, on whole nodes in virtual time."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
from attrs import evolve

from p2pexo.cluster.commands import PlaceCommand
from p2pexo.generation.errors import ErrorReport
from p2pexo.generation.events import Delta, Event, Failed, Finished, Started, Waiting
from p2pexo.generation.request import Message, Request, Role, Sampling
from p2pexo.serving.settings import RouterSettings

MODEL = "owner/model"


def request(id: str = "r1") -> Request:
    return Request(id, MODEL, (Message(Role.USER, "count"),))


async def answer(node, asked: Request | None = None) -> list[Event]:
    async with node.router.generate(asked or request()) as events:
        return [event async for event in events]


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


def failure(events: list[Event]) -> ErrorReport:
    assert isinstance(events[-1], Failed), events
    return events[-1].error


async def placed(desk, *names: str, min_stages: int = 2, **options) -> str:
    await desk.add(*names, **options)
    id = await desk.nodes[names[0]].control.place(PlaceCommand(MODEL, min_stages=min_stages))
    await desk.until(lambda: all((seen := node.placement()) and seen.state == "ready" for node in desk.nodes.values()))
    return id


def test_every_node_gets_the_same_answer(rehearse) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b", "c")
        answers = [await answer(desk.nodes[name], request(name)) for name in "abc"]
        assert [type(event) for event in answers[0]] == [Started, *[Delta] * 10, Finished]
        assert answers[0] == answers[1] == answers[2]

    rehearse(story)


def test_a_seed_is_drawn_once_and_a_given_one_is_kept(rehearse) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b")
        await answer(desk.nodes["a"])
        await answer(desk.nodes["b"], evolve(request("r2"), sampling=Sampling(seed=7)))
        asked = [each for stage in desk.stages for each in stage.requests]
        assert asked[0].sampling.seed is not None
        assert asked[1].sampling.seed == 7

    rehearse(story)


def test_a_model_that_is_not_running_is_placed_and_the_client_hears_how_far_it_is(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", a=80_000, b=80_000)
        events = await answer(desk.nodes["b"])
        waiting = [event.reason for event in events if isinstance(event, Waiting)]
        assert waiting[0] == f"placing {MODEL}"
        assert any(reason.startswith("loading layers ") for reason in waiting)
        assert waiting == list(dict.fromkeys(waiting))
        assert text_of(events) == "0 1 2 3 4 5 6 7 8 9 "
        assert not desk.nodes["a"].placement().by_user

    rehearse(story)


def test_without_autoload_the_client_is_told_to_place_it(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", settings=RouterSettings(autoload=False))
        events = await answer(desk.nodes["a"])
        assert failure(events).kind == "unavailable"
        assert failure(events).retry_after_s

    rehearse(story)


def test_a_model_that_does_not_fit_fails_with_the_sizes(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", a=1000)
        assert failure(await answer(desk.nodes["a"])).kind == "insufficient_memory"

    rehearse(story)


def test_a_model_that_cannot_be_loaded_fails_with_the_reason(rehearse) -> None:
    async def story(desk) -> None:
        desk.unable = {"a"}
        await desk.add("a")
        events = await answer(desk.nodes["a"])
        assert failure(events).kind == "unavailable"
        assert "model.safetensors is cut short" in failure(events).message

    rehearse(story)


def test_a_load_that_takes_too_long_fails_in_time(rehearse) -> None:
    async def story(desk) -> None:
        desk.load_s = 1000.0
        await desk.add("a", settings=RouterSettings(load_timeout_s=20))
        began = trio.current_time()
        events = await answer(desk.nodes["a"])
        assert failure(events).kind == "unavailable"
        assert failure(events).retry_after_s
        assert trio.current_time() - began == pytest.approx(20, abs=0.1)

    rehearse(story)


WHOLE = "0 1 2 3 4 5 6 7 8 9 "


async def answer_amid_which(desk, asker: str, fault: Callable[[], Awaitable[None]], tokens: int = 3) -> list[Event]:
    """The events of an answer that meets a fault when so many tokens of it have come."""
    received: list[Event] = []
    async with desk.nodes[asker].router.generate(request()) as events:
        async for event in events:
            received.append(event)
            if isinstance(event, Delta) and event.index == tokens - 1:
                await fault()
    return received


def check_whole(events: list[Event]) -> None:
    """Each output index once, in order, and one beginning and one end."""
    deltas = [event for event in events if isinstance(event, Delta)]
    assert [event.index for event in deltas] == list(range(10))
    assert text_of(events) == WHOLE
    assert sum(isinstance(event, Started) for event in events) == 1
    assert isinstance(events[-1], Finished)


@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_an_answer_goes_on_when_a_node_is_lost_in_its_middle(rehearse, victim: str) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b", "c", "d", d=1000, min_stages=3)
        events = await answer_amid_which(desk, "d", partial(desk.remove, victim))
        check_whole(events)
        assert any(isinstance(event, Waiting) and "the ring was lost" in event.reason for event in events)

    rehearse(story)


def test_an_answer_goes_on_when_two_nodes_are_lost_at_once(rehearse) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b", "c", "d", d=1000, min_stages=3)

        async def fault() -> None:
            await desk.remove("a")
            await desk.remove("b")

        check_whole(await answer_amid_which(desk, "d", fault))

    rehearse(story)


def test_each_of_several_faults_costs_an_answer_nothing(rehearse) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b", "c", "d", d=1000, min_stages=3)
        received: list[Event] = []
        async with desk.nodes["d"].router.generate(request()) as events:
            async for event in events:
                received.append(event)
                if isinstance(event, Delta) and event.index in (0, 3, 8):
                    desk.stage_on(desk.nodes["d"].placement().stages[event.index % 3].node).crash()
        check_whole(received)

    rehearse(story)


def test_a_seed_and_the_tokens_so_far_go_with_each_attempt(rehearse) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b", "c", c=1000)
        victim = desk.nodes["c"].placement().stages[1].node
        await answer_amid_which(desk, "c", partial(desk.remove, victim))
        asked = [each for stage in desk.stages for each in stage.requests]
        assert {each.id for each in asked} == {"r1"}
        assert len({each.sampling.seed for each in asked}) == 1
        assert [each.attempt for each in asked] == sorted({each.attempt for each in asked})
        assert asked[-1].replayed_tokens == (0, 1, 2)

    rehearse(story)


def test_with_no_time_to_wait_a_lost_ring_breaks_the_answer(rehearse) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b", settings=RouterSettings(reform_timeout_s=0))
        victim = desk.nodes["a"].placement().stages[1].node
        events = await answer_amid_which(desk, "ab".replace(victim, ""), partial(desk.remove, victim))
        assert failure(events).kind == "ring_broken"
        assert text_of(events) == "0 1 2 "

    rehearse(story)


def test_an_answer_breaks_in_time_when_no_ring_comes(rehearse) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b", "c", "d", d=1000, min_stages=3)
        desk.load_s = 1000.0
        lost_at: list[float] = []

        async def fault() -> None:
            lost_at.append(trio.current_time())
            await desk.remove("b")

        events = await answer_amid_which(desk, "d", fault)
        assert failure(events).kind == "ring_broken"
        assert "was not ready within" in failure(events).message
        assert trio.current_time() - lost_at[0] == pytest.approx(30, abs=1)

    rehearse(story)


def test_an_answer_whose_model_no_longer_fits_breaks_with_the_sizes(rehearse) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b", "c", a=80_000, b=80_000, c=1000)
        events = await answer_amid_which(desk, "c", partial(desk.remove, "b"))
        assert failure(events).kind == "ring_broken"
        assert "does not fit" in failure(events).message
        assert "needs" in failure(events).message

    rehearse(story)


def test_an_answer_goes_on_when_the_machine_it_misses_comes_back_soon(rehearse) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b", "c", a=80_000, b=80_000, c=1000)

        async def fault() -> None:
            await desk.remove("b")
            await desk.add("b", b=80_000)

        check_whole(await answer_amid_which(desk, "c", fault))

    rehearse(story)


def test_a_request_that_breaks_each_ring_is_given_up_before_it_breaks_them_all(rehearse) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b", "c", "d", d=1000, min_stages=3)
        desk.deadly_token = 4
        events = await answer(desk.nodes["d"])
        assert text_of(events) == "0 1 2 3 "
        assert failure(events).kind == "engine"
        assert "at token 4 of this answer" in failure(events).message
        assert sum(stage.status.reason == "killed by SIGKILL" for stage in desk.stages) == 3
        desk.deadly_token = None
        check_whole(await answer(desk.nodes["d"], request("r2")))

    rehearse(story)


@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_a_node_lost_before_the_first_token_costs_the_client_nothing(rehearse, victim: str) -> None:
    async def story(desk) -> None:
        desk.prefill_s = 20.0
        await placed(desk, "a", "b", "c", "d", d=1000, min_stages=3)
        async with desk.nodes["d"].router.generate(request()) as events:
            received: list[Event] = [await events.receive()]
            await desk.remove(victim)
            received += [event async for event in events]
        assert text_of(received) == "0 1 2 3 4 5 6 7 8 9 "
        assert isinstance(received[-1], Finished)
        assert sum(isinstance(event, Started) for event in received) == 1

    rehearse(story)


def test_every_request_on_a_ring_ends_when_the_process_of_stage_0_dies(rehearse) -> None:
    async def story(desk) -> None:
        desk.prefill_s = 20.0
        await placed(desk, "a", "b", "c", c=1000)
        first = desk.nodes["a"].placement().stages[0].node
        ends: list[Event] = []

        async def ask(name: str, number: int) -> None:
            ends.append((await answer(desk.nodes[name], request(f"{name}{number}")))[-1])

        async with trio.open_nursery() as nursery:
            for name in "abc":
                for number in range(5):
                    nursery.start_soon(ask, name, number)
            await desk.until(lambda: len(desk.stage_on(first).requests) == 15)
            desk.stage_on(first).crash()
        assert [type(end) for end in ends] == [Finished] * 15

    rehearse(story)


@pytest.mark.parametrize("asker", ["a", "b", "c"])
def test_a_request_that_no_stream_carries_is_refused_alike_on_every_node(rehearse, asker: str) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b", "c")
        large = Request("r1", MODEL, (Message(Role.USER, "x" * (17 << 20)),))
        error = failure(await answer(desk.nodes[asker], large))
        assert (error.kind, error.param) == ("invalid_request", "messages")
        assert "17.8 MB" in error.message
        assert "16.8 MB" in error.message

    rehearse(story)


def test_the_death_of_the_leader_breaks_no_answer_and_delays_no_request(rehearse) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b", "c", a=1000)
        asker = desk.nodes["b"]
        async with asker.router.generate(request()) as events:
            await events.receive()
            await desk.remove("a")
            assert text_of([event async for event in events]) == "0 1 2 3 4 5 6 7 8 9 "
        await desk.until(lambda: asker.overlay.view.leader is None)
        again = await answer(asker, request("r2"))
        assert isinstance(again[0], Started)
        assert isinstance(again[-1], Finished)

    rehearse(story)


@pytest.mark.parametrize("asker", ["a", "b", "c"])
def test_leaving_cancels_the_request_on_the_node_of_stage_0(rehearse, asker: str) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b", "c")
        async with desk.nodes[asker].router.generate(request()) as events:
            while not isinstance(await events.receive(), Delta):
                pass
        await desk.until(lambda: any("r1" in stage.cancelled for stage in desk.stages), within_s=1)

    rehearse(story)


def test_an_error_of_the_reader_comes_out_as_it_is(rehearse) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b")
        with pytest.raises(KeyError):
            async with desk.nodes["a"].router.generate(request()) as events:
                await events.receive()
                raise KeyError("the reader's own")

    rehearse(story)


def test_deleting_the_placement_in_the_middle_of_an_answer_says_so(rehearse) -> None:
    async def story(desk) -> None:
        id = await placed(desk, "a", "b", "c")
        async with desk.nodes["c"].router.generate(request()) as events:
            await events.receive()
            await desk.nodes["b"].control.delete(id)
            received = [event async for event in events]
        assert failure(received).kind == "placement_deleted"

    rehearse(story)


def test_a_request_waits_while_the_ring_is_formed_anew(rehearse) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b", "c", min_stages=3)
        await desk.remove("c")
        events = await answer(desk.nodes["a"])
        assert isinstance(events[0], Waiting)
        assert text_of(events) == "0 1 2 3 4 5 6 7 8 9 "

    rehearse(story)


def test_a_ring_that_takes_too_long_to_form_anew_fails_the_request_in_time(rehearse) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b", "c", min_stages=3)
        desk.load_s = 1000.0
        epoch = desk.nodes["a"].placement().epoch
        await desk.remove("c")
        await desk.until(lambda: desk.nodes["a"].placement().epoch != epoch)
        began = trio.current_time()
        assert failure(await answer(desk.nodes["a"])).kind == "unavailable"
        assert trio.current_time() - began == pytest.approx(30, abs=1)

    rehearse(story)


def test_a_ring_that_can_not_be_formed_anew_fails_the_request_at_once(rehearse) -> None:
    async def story(desk) -> None:
        await placed(desk, "a", "b", a=80_000, b=80_000)
        await desk.remove("b")
        await desk.until(lambda: "does not fit" in desk.nodes["a"].placement().reason)
        events = await answer(desk.nodes["a"])
        assert failure(events).kind == "unavailable"
        assert "does not fit" in failure(events).message

    rehearse(story)


def test_more_requests_than_may_wait_are_turned_away(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", settings=RouterSettings(max_waiting=3))
        ends: list[str] = []

        async def ask(number: int) -> None:
            last = (await answer(desk.nodes["a"], request(f"r{number}")))[-1]
            ends.append(last.error.kind if isinstance(last, Failed) else "finished")

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(ask, number)
        assert sorted(ends) == ["finished"] * 3 + ["overloaded"] * 2

    rehearse(story)


def test_requests_that_waited_are_sent_in_order_of_arrival(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a")
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(answer, desk.nodes["a"], request(f"r{number}"))
                await trio.sleep(0.01)
        assert [each.id for stage in desk.stages for each in stage.requests] == [f"r{number}" for number in range(8)]

    rehearse(story)
