"""When headers go out and comments are sent: in virtual time, without a socket."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from attrs import evolve

from p2pexo.api.answers import Answer, start_answer, start_answers
from p2pexo.api.chat_wire import ChatStream, Envelope
from p2pexo.api.lifetime import Lifetime
from p2pexo.api.streaming import HOLD_S, SILENCE_S, stream, writes
from p2pexo.generation.errors import EngineError, OverloadedError
from p2pexo.generation.events import Delta, Event, Failed, Finished, FinishReason, Usage, Waiting
from p2pexo.generation.request import Message, Request, Role

REQUEST = Request("r1", "m", (Message(Role.USER, "hi"),))
END = Finished(FinishReason.STOP, Usage(1, 2))
Script = Callable[[trio.MemorySendChannel[Event]], Awaitable[None]]


class Scripted:
    def __init__(self, script: Script) -> None:
        self.script = script

    @asynccontextmanager
    async def generate(self, request: Request) -> AsyncGenerator[trio.MemoryReceiveChannel[Event]]:
        send, receive = trio.open_memory_channel[Event](100)

        async def tell() -> None:
            with send:
                await self.script(send)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell)
            yield receive
            nursery.cancel_scope.cancel()


def in_virtual_time(script: Script, use: Callable[[Answer, trio.Event], Awaitable[None]]) -> None:
    async def main() -> None:
        stopping = trio.Event()
        async with trio.open_nursery() as nursery:
            answer = start_answer(Scripted(script), REQUEST, Lifetime(nursery, stopping))
            await use(answer, stopping)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def wire() -> ChatStream:
    return ChatStream(Envelope("id", 1, "m"))


def test_a_stream_waits_for_the_first_token_before_it_answers() -> None:
    async def script(events: trio.MemorySendChannel[Event]) -> None:
        await events.send(Waiting("loading"))
        await trio.sleep(0.9)
        await events.send(Failed(OverloadedError("full").report()))

    async def use(answer: Answer, _: trio.Event) -> None:
        with pytest.raises(OverloadedError, match="full"):
            await stream(answer, wire())

    in_virtual_time(script, use)


def test_after_a_second_without_a_token_it_answers_anyway() -> None:
    async def script(events: trio.MemorySendChannel[Event]) -> None:
        await trio.sleep(HOLD_S + 1)
        await events.send(Failed(EngineError("late").report()))

    async def use(answer: Answer, _: trio.Event) -> None:
        begun = trio.current_time()
        response = await stream(answer, wire())
        assert trio.current_time() - begun == pytest.approx(HOLD_S)
        assert response.status_code == 200

    in_virtual_time(script, use)


def test_silence_is_filled_with_comments_at_once_and_then_regularly() -> None:
    async def script(events: trio.MemorySendChannel[Event]) -> None:
        await trio.sleep(2.5 * SILENCE_S)
        await events.send(END)

    async def use(answer: Answer, _: trio.Event) -> None:
        begun = trio.current_time()
        times: list[tuple[float, bytes]] = []
        async for write in writes(answer, wire()):
            times.append((round(trio.current_time() - begun, 3), write[:13]))
        comment = b": keep-alive\n"
        assert times[:3] == [(0, comment), (SILENCE_S, comment), (2 * SILENCE_S, comment)]
        assert times[3][0] == 2.5 * SILENCE_S
        assert len(times) == 4

    in_virtual_time(script, use)


def test_held_back_text_does_not_put_off_the_next_comment() -> None:
    async def script(events: trio.MemorySendChannel[Event]) -> None:
        for index in range(20):
            await trio.sleep(1)
            await events.send(Delta(index, (index,), ""))
        await events.send(END)

    async def use(answer: Answer, _: trio.Event) -> None:
        comments = [write async for write in writes(answer, wire()) if write.startswith(b":")]
        assert len(comments) >= 2

    in_virtual_time(script, use)


def test_tokens_that_are_ready_together_share_one_write() -> None:
    async def script(events: trio.MemorySendChannel[Event]) -> None:
        for index in range(5):
            await events.send(Delta(index, (index,), "x"))
        await events.send(END)

    async def use(answer: Answer, _: trio.Event) -> None:
        await trio.testing.wait_all_tasks_blocked()
        await answer.hold(HOLD_S)
        (write,) = [write async for write in writes(answer, wire())]
        assert write.count(b'"content":"x"') == 5
        assert write.endswith(b"data: [DONE]\n\n")

    in_virtual_time(script, use)


def test_a_stopping_server_ends_the_stream_with_an_error() -> None:
    async def script(events: trio.MemorySendChannel[Event]) -> None:
        await events.send(Delta(0, (0,), "x"))
        await trio.sleep_forever()

    async def use(answer: Answer, stopping: trio.Event) -> None:
        await answer.hold(HOLD_S)
        stopping.set()
        text = b"".join([write async for write in writes(answer, wire())])
        assert b"this node is stopping" in text
        assert b'"finish_reason":"stop"' not in text

    in_virtual_time(script, use)


def test_a_generator_that_raises_becomes_a_failure() -> None:
    async def script(events: trio.MemorySendChannel[Event]) -> None:
        raise ValueError("secret detail")

    async def use(answer: Answer, _: trio.Event) -> None:
        (event,) = [event async for event in answer]
        assert isinstance(event, Failed)
        assert event.error.kind == "internal"
        assert "secret" not in event.error.message

    in_virtual_time(script, use)


def several(script: Script, use: Callable[[Answer], Awaitable[None]]) -> None:
    """Two answers side by side, each told by ``script``."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            requests = (REQUEST, evolve(REQUEST, id="r1-1", choice=1))
            await use(start_answers(Scripted(script), requests, Lifetime(nursery, trio.Event())))
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_several_answers_end_with_the_last_of_them() -> None:
    async def script(events: trio.MemorySendChannel[Event]) -> None:
        await events.send(Delta(0, (0,), "x"))
        await events.send(END)

    async def use(answer: Answer) -> None:
        events = [event async for event in answer]
        assert {event.choice for event in events if isinstance(event, Delta)} == {0, 1}
        assert [event.choice for event in events if isinstance(event, Finished)] in ([0, 1], [1, 0])
        assert isinstance(events[-1], Finished)
        assert answer.ended

    several(script, use)


def test_several_answers_fail_together_and_once() -> None:
    async def script(events: trio.MemorySendChannel[Event]) -> None:
        await events.send(Delta(0, (0,), "x"))
        await trio.sleep(1)
        await events.send(Failed(EngineError("gone").report()))

    async def use(answer: Answer) -> None:
        events = [event async for event in answer]
        assert [isinstance(event, Failed) for event in events] == [False, False, True]

    several(script, use)
