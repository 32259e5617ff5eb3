from functools import partial

import pytest
import trio
from attrs import evolve
from structlog.testing import capture_logs

from p2pexo.cluster.commands import PlaceCommand
from p2pexo.generation.errors import EngineError
from p2pexo.generation.events import Delta, Failed, Finished, FinishReason, Started, Usage, Waiting
from p2pexo.generation.request import Message, Request, Role
from p2pexo.ring.plan import Epoch, Placement, StagePlan
from p2pexo.serving.records import KEPT_REQUESTS, Recorder, Records, RequestRecord

MODEL = "owner/model"
PLACEMENT = Placement("p1", MODEL, "r1", Epoch(3, 7, "leader"), (StagePlan("peer-a", 0, 30),))
FINISHED = Finished(FinishReason.STOP, Usage(300, 41, cached_tokens=100), queue_s=0.12345, prefill_s=0.5, decode_s=4.0)


def request(id: str = "r1", content: str = "a secret") -> Request:
    return Request(id, MODEL, (Message(Role.USER, content),))


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(RequestRecord("r1", MODEL), 10.0)


def test_an_answer_tells_when_and_where_and_how_fast(recorder: Recorder) -> None:
    recorder.told(Waiting("loading"), 10.5)
    recorder.sent(PLACEMENT, "mac-a")
    for now, event in ((11.0, Started(300, 100)), (12.0, Delta(0, (1,), "a")), (13.0, Delta(1, (2,), "b"))):
        recorder.told(event, now)
    recorder.told(FINISHED, 16.0)
    recorder.end(16.0, ended_at=1_700_000_000.0)
    assert recorder.record == RequestRecord(
        "r1",
        MODEL,
        outcome="stop",
        ended_at=1_700_000_000.0,
        total_s=6.0,
        placement="p1",
        epoch="3.7.leader",
        node="mac-a",
        rings=1,
        first_token_s=2.0,
        queue_s=0.123,
        prompt_tokens=300,
        cached_tokens=100,
        completion_tokens=41,
        prefill_tokens_per_s=400.0,
        decode_tokens_per_s=10.0,
    )


def test_the_ring_that_had_it_last_is_told_and_how_many_there_were(recorder: Recorder) -> None:
    recorder.sent(PLACEMENT, "mac-a")
    recorder.sent(evolve(PLACEMENT, epoch=Epoch(3, 8, "leader")), "mac-b")
    assert (recorder.record.epoch, recorder.record.node, recorder.record.rings) == ("3.8.leader", "mac-b", 2)


def test_a_failure_is_told_by_its_kind_and_what_has_no_end_was_cancelled(recorder: Recorder) -> None:
    recorder.told(Delta(0, (1,), "a"), 11.0)
    assert recorder.record.outcome == "cancelled"
    recorder.told(Failed(EngineError("no").report()), 12.0)
    assert recorder.record.outcome == "engine"


def watch(records: Records, asked: Request) -> None:
    async def main() -> None:
        with records.watching(asked) as recorder:
            recorder.sent(PLACEMENT, "mac-a")
            recorder.told(FINISHED, trio.current_time())

    trio.run(main)


def test_only_the_newest_are_kept() -> None:
    records = Records(lambda: 0.0)
    for number in range(KEPT_REQUESTS + 3):
        watch(records, request(f"r{number}"))
    assert [each.id for each in records.newest()] == [f"r{number}" for number in range(KEPT_REQUESTS + 2, 2, -1)]


def test_the_log_gets_one_line_without_a_word_of_what_was_said() -> None:
    with capture_logs() as lines:
        watch(Records(), request())
    (line,) = lines
    assert (line["event"], line["log_level"], line["request"], line["rings"]) == ("request ended", "info", "r1", 1)
    assert line["decode_tokens_per_s"] == 10.0
    assert "first_token_s" not in line, "not known"
    assert "secret" not in str(lines)


def test_a_fault_of_ours_is_told_as_one() -> None:
    records = Records()

    async def main() -> None:
        with records.watching(request()):
            raise KeyError("a bug")

    with pytest.raises(KeyError):
        trio.run(main)
    assert records.newest()[0].outcome == "internal"


async def answer(node, id: str) -> None:
    async with node.router.generate(request(id)) as events:
        async for _ in events:
            pass


def test_a_node_tells_of_the_requests_of_its_own_clients_and_of_no_other(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b")
        await desk.nodes["a"].control.place(PlaceCommand(MODEL))
        await desk.until(lambda: (seen := desk.nodes["a"].placement()) and seen.state == "ready")
        asker, other = desk.nodes["b"], desk.nodes["a"]
        await answer(asker, "r1")
        with trio.move_on_after(0.35):
            await answer(asker, "r2")
        cancelled, whole = asker.router.records.newest()
        assert other.router.records.newest() == ()
        assert (whole.id, whole.outcome, whole.rings, whole.completion_tokens) == ("r1", "length", 1, 10)
        assert (whole.placement, whole.node) == (asker.placement().id, desk.running()[0].node)
        assert whole.epoch == asker.placement().epoch
        assert whole.total_s == pytest.approx(1.0, abs=0.1)
        assert (cancelled.outcome, cancelled.completion_tokens) == ("cancelled", None)
        assert cancelled.first_token_s is not None

    rehearse(story)


def test_a_request_that_no_ring_ever_had_is_told_of_too(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", a=1000)
        await answer(desk.nodes["a"], "r1")
        (record,) = desk.nodes["a"].router.records.newest()
        assert (record.outcome, record.placement, record.rings) == ("insufficient_memory", "", 0)

    rehearse(story)


def test_an_answer_that_moved_tells_the_ring_where_it_ended(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b", "z", z=1000)
        await desk.nodes["a"].control.place(PlaceCommand(MODEL, replicas=2))
        asker = desk.nodes["z"]
        await desk.until(lambda: [each.state for each in asker.control.snapshot().placements] == ["ready"] * 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(answer, asker, "r1"))
            await desk.until(lambda: any(stage.requests for stage in desk.running()))
            victim = next(stage for stage in desk.running() if stage.requests)
            victim.crash()
        (record,) = asker.router.records.newest()
        assert (record.outcome, record.rings) == ("length", 2)
        assert record.node == "ab".replace(victim.node, "")

    rehearse(story)
