"""Rings of real processes: what a request, a fault and a new epoch do to them."""

import os
import signal

import trio

from p2pexo.engine.limits import Limits
from p2pexo.generation.events import Delta, Event, Failed, Finished, FinishReason, Progress, Started, Waiting
from p2pexo.ring.plan import Epoch
from p2pexo.ring.scripted import Script
from p2pexo.ring.stage import Neighbours, StagePhase


def test_the_answer_is_the_same_for_any_number_of_stages(ring_of, request_for, tokens_in):
    long_prompt = "the quick brown fox " * 30

    async def answers(stages: int) -> tuple[list[int], list[int], list[int]]:
        async with ring_of(stages, Script(context_length=1000)) as ring:
            short = await ring.ask(request_for("hello world", max_tokens=40))
            assert isinstance(short[0], Started)
            assert short[-1].usage.completion_tokens == 40
            long = await ring.ask(request_for(long_prompt, max_tokens=5))
            progress = [event.processed for event in long if isinstance(event, Progress)]
            return tokens_in(short), tokens_in(long), progress

    alone, two, three = (trio.run(answers, stages) for stages in (1, 2, 3))
    assert (len(alone[0]), len(alone[1]), alone[2]) == (40, 5, [512, 600])
    assert alone[:2] == two[:2] == three[:2]
    for *_, progress in (two, three):
        assert progress == sorted(progress) and progress[-1] == 600


def test_a_bad_request_fails_alone_whichever_stage_it_fails_on(ring_of, request_for, tokens_in):
    async def main():
        async with ring_of(3, Script(poisons=(("rat", 0), ("bat", 3), ("cat", 5)))) as ring:
            before = tokens_in(await ring.ask(request_for("hello")))
            (not_text,) = await ring.ask(request_for("no\0text"))
            assert not_text.error.kind == "engine"
            (too_long,) = await ring.ask(request_for("a" * 512))
            assert too_long.error.kind == "context_length_exceeded"
            assert "512" in too_long.error.message
            for stage, poison in enumerate(("rat", "bat", "cat")):
                *_, failed = await ring.ask(request_for(f"a {poison}"))
                assert failed.error.kind == "engine"
                assert f"RuntimeError on stage {stage}: poisoned by {poison}" in failed.error.message
            assert tokens_in(await ring.ask(request_for("hello"))) == before

    trio.run(main)


def test_requests_beyond_the_limit_wait_for_one_another_in_order(ring_of, request_for, tokens_in):
    async def main():
        async with ring_of(1, Script(batch_s=0.002), limits=Limits(running=1)) as ring:
            finished: list[str] = []

            async def ask(content: str, *, task_status) -> None:
                async with ring.first.generate(request_for(content, id=content, max_tokens=10)) as events:
                    task_status.started()
                    seen = [event async for event in events]
                finished.append(content)
                assert isinstance(seen[0], Started if content == "first" else Waiting)

            async with trio.open_nursery() as nursery:
                for content in ("first", "second", "third"):
                    await nursery.start(ask, content)
            assert finished == ["first", "second", "third"]

    trio.run(main)


def test_many_requests_at_once_get_the_answers_that_each_gets_alone(ring_of, request_for, tokens_in):
    contents = [f"request {number} " * number for number in range(1, 9)]

    async def main(stages: int) -> list[list[int]]:
        async with ring_of(stages, limits=Limits(together=3)) as ring:
            alone = [tokens_in(await ring.ask(request_for(each, id=each))) for each in contents]
            together: dict[str, list[int]] = {}

            async def ask(content: str) -> None:
                together[content] = tokens_in(await ring.ask(request_for(content, id=content)))

            async with trio.open_nursery() as nursery:
                for content in contents:
                    nursery.start_soon(ask, content)
            assert [together[each] for each in contents] == alone
            return alone

    one, two, three = (trio.run(main, stages) for stages in (1, 2, 3))
    assert one == two == three


def test_a_short_request_is_answered_while_a_long_one_runs(ring_of, request_for):
    async def main():
        async with (
            ring_of(2, Script(context_length=100_000)) as ring,
            ring.first.generate(request_for("long", id="long", max_tokens=None)) as events,
        ):
            await events.receive()
            assert isinstance((await ring.ask(request_for("short")))[-1], Finished)
            async for event in events:
                assert not isinstance(event, Finished | Failed)
                if isinstance(event, Delta) and event.index > 30:
                    break

    trio.run(main)


def test_neither_a_cancel_nor_an_interrupt_disturbs_the_next_request(ring_of, request_for, tokens_in):
    async def main():
        async with ring_of(2, Script(context_length=100_000)) as ring:
            expected = tokens_in(await ring.ask(request_for("hello")))
            async with ring.first.generate(request_for("hello", max_tokens=None)) as events:
                async for event in events:
                    if isinstance(event, Delta):
                        break
            for process in ring.processes:
                os.kill(process.pid, signal.SIGINT)
            assert tokens_in(await ring.ask(request_for("hello"))) == expected

    trio.run(main)


def test_a_replayed_request_goes_on_where_it_was(ring_of, request_for, tokens_in):
    async def main():
        async with ring_of(1) as ring:
            whole = tokens_in(await ring.ask(request_for("hello", max_tokens=20)))
            replay = request_for("hello", max_tokens=20, attempt=1, replayed_tokens=tuple(whole[:8]))
            events = await ring.ask(replay)
            first = next(event for event in events if isinstance(event, Delta))
            assert first.index == 8
            assert tokens_in(events) == whole[8:]
            assert events[-1].usage.completion_tokens == 20

            complete = request_for("hello", max_tokens=20, attempt=2, replayed_tokens=tuple(whole))
            assert [type(event) for event in await ring.ask(complete)] == [Started, Finished]

    trio.run(main)


def test_a_higher_attempt_supersedes_a_lower_one(ring_of, request_for):
    async def main():
        async with (
            ring_of(1, Script(batch_s=0.005)) as ring,
            ring.first.generate(request_for("hello", max_tokens=None)) as events,
        ):
            await events.receive()
            (equal,) = await ring.ask(request_for("hello"))
            assert equal.error.kind == "invalid_request"
            assert isinstance((await ring.ask(request_for("hello", attempt=1)))[-1], Finished)
            with trio.fail_after(5):
                *_, last = [event async for event in events]
            assert "superseded by attempt 1" in last.error.message

    trio.run(main)


def test_a_killed_stage_breaks_the_ring_and_a_fresh_one_mends_it(ring_of, request_for, tokens_in):
    async def main():
        async with ring_of(3, Script(batch_s=0.002)) as ring:
            expected = tokens_in(await ring.ask(request_for("hello")))
            survivors = [ring.processes[0], ring.processes[2]]
            pids = [each.pid for each in survivors]
            async with ring.first.generate(request_for("hello", max_tokens=None)) as events:
                seen: list[Event] = []
                async for event in events:
                    seen.append(event)
                    if isinstance(event, Delta) and event.index == 5:
                        os.kill(ring.processes[1].pid, signal.SIGKILL)
            last = seen[-1]
            assert isinstance(last, Failed) and last.error.kind == "ring_broken"
            for rank in (0, 2):
                await ring.wait(rank, StagePhase.BROKEN)
            with trio.fail_after(10):
                *_, dead = [status async for status in ring.processes[1].statuses()]
            assert (dead.phase, "SIGKILL" in dead.reason) == (StagePhase.FAILED, True)
            (refused,) = await ring.ask(request_for("hello"))
            assert refused.error.kind == "ring_broken"

            phases: list[StagePhase] = []

            async def watch() -> None:
                async for status in ring.first.statuses():
                    phases.append(status.phase)

            ring.nursery.start_soon(watch)
            await ring.replace(1)
            await ring.form(2)
            assert tokens_in(await ring.ask(request_for("hello"))) == expected
            assert [each.pid for each in survivors] == pids
            assert StagePhase.LOADING not in phases

    trio.run(main)


def test_a_new_epoch_ends_the_requests_of_the_old_one(ring_of, request_for, tokens_in):
    async def main():
        async with ring_of(2, Script(batch_s=0.002)) as ring:
            expected = tokens_in(await ring.ask(request_for("hello")))
            async with ring.first.generate(request_for("hello", max_tokens=None)) as events:
                await events.receive()
                await ring.form(2)
                *_, last = [event async for event in events]
            assert last.error.kind == "ring_broken"
            assert tokens_in(await ring.ask(request_for("hello"))) == expected

    trio.run(main)


def test_the_end_of_stage_0_itself_fails_its_requests(ring_of, request_for):
    async def main():
        async with ring_of(2, Script(batch_s=0.002)) as ring:
            async with ring.first.generate(request_for("hello", max_tokens=None)) as events:
                await events.receive()
                os.kill(ring.first.pid, signal.SIGKILL)
                with trio.fail_after(10):
                    *_, last = [event async for event in events]
            assert last.error.kind == "ring_broken"
            assert "SIGKILL" in last.error.message
            (after,) = await ring.ask(request_for("hello"))
            assert after.error.kind == "ring_broken"

    trio.run(main)


def test_the_end_of_stage_0_ends_every_request_that_waits_for_it(ring_of, request_for):
    async def main():
        async with ring_of(2, Script(batch_s=0.002)) as ring:
            ends = []

            async def ask(number: int, task_status: trio.TaskStatus[None]) -> None:
                async with ring.first.generate(request_for("hello", id=f"r{number}", max_tokens=None)) as events:
                    await events.receive()
                    task_status.started()
                    *_, last = [event async for event in events]
                    ends.append(last.error.kind)

            with trio.fail_after(10):
                async with trio.open_nursery() as nursery:
                    for number in range(6):
                        await nursery.start(ask, number)
                    os.kill(ring.first.pid, signal.SIGKILL)
            assert ends == ["ring_broken"] * 6

    trio.run(main)


def test_a_request_before_the_ring_stands_is_told_so(ring_of, request_for):
    async def main():
        async with ring_of(2, form=False) as ring:
            (refused,) = await ring.ask(request_for("hello"))
            assert refused.error.kind == "ring_broken"
            assert "not ready" in refused.error.message

    trio.run(main)


def test_a_context_that_is_full_ends_the_answer(ring_of, request_for, tokens_in):
    async def main():
        async with ring_of(1, Script(context_length=30)) as ring:
            events = await ring.ask(request_for("hello", max_tokens=None))
            assert (events[-1].reason, len(tokens_in(events))) == (FinishReason.LENGTH, 25)

    trio.run(main)


def test_a_ring_that_lost_a_stage_while_it_formed_forms_in_the_next_epoch(ring_of, request_for):
    async def main():
        async with ring_of(3, form=False) as ring:
            await ring.tell(1, 0, 2)
            for rank in (0, 2):
                await ring.wait(rank, StagePhase.LINKING)
            os.kill(ring.processes[1].pid, signal.SIGKILL)
            await ring.replace(1)
            await ring.form(2)
            assert isinstance((await ring.ask(request_for("hello")))[-1], Finished)

    trio.run(main)


def test_a_ring_of_one_follows_its_epochs(ring_of, request_for):
    async def main():
        async with ring_of(1) as ring:
            await ring.first.join(Neighbours(Epoch(1, 5, "leader"), "", "", ()))
            await ring.wait(0, StagePhase.READY, count=5)
            assert isinstance((await ring.ask(request_for("hello")))[-1], Finished)

    trio.run(main)
