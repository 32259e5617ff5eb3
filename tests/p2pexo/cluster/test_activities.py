import pytest
import trio
from attrs import evolve

from p2pexo.cluster.activities import is_worth_telling
from p2pexo.cluster.commands import PlaceCommand
from p2pexo.cluster.facts import stage_key
from p2pexo.ring.activity import StageActivity

BUSY = StageActivity(0.5, 20.0, 4.0, 2.0, 0.01, 0.5, 300.0, 40.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"busy_share": 0.56},
        {"busy_share": 0.0},
        {"batches_per_s": 0.0},
        {"rows": 5.0},
        {"hop_s": 0.02},
        {"hop_s": None},
        {"queue_s": 0.0},
        {"decode_tokens_per_s": 35.0},
        {"requests": 4},
    ],
)
def test_a_change_that_means_something_is_told(changes: dict[str, float | None]) -> None:
    assert is_worth_telling(BUSY, evolve(BUSY, **changes))


@pytest.mark.parametrize(
    "changes",
    [{}, {"busy_share": 0.52}, {"batches_per_s": 10.0}, {"rows": 4.2}, {"hop_s": 0.0105}, {"queue_s": 0.45}],
)
def test_a_small_change_is_not(changes: dict[str, float]) -> None:
    assert not is_worth_telling(BUSY, evolve(BUSY, **changes))


def test_an_idle_stage_that_begins_to_work_is_told_however_little_it_does() -> None:
    assert is_worth_telling(StageActivity(), StageActivity(busy_share=0.01, batches_per_s=0.1))


def test_what_a_stage_is_busy_with_is_seen_by_all_and_leaves_its_own_fact_alone(rehearse) -> None:
    async def story(desk) -> None:
        await desk.add("a", "b")
        id = await desk.nodes["a"].control.place(PlaceCommand("owner/model", min_stages=2))
        await desk.until_ready("a", "b")
        teller, stage = desk.nodes["b"], desk.stage_on("b")
        rank = stage.spec.rank

        def shown() -> StageActivity | None:
            return desk.nodes["a"].placement().stages[rank].activity

        before = teller.overlay.view.facts[teller.peer][stage_key(id, rank)]
        assert shown() is None
        stage.be_busy(BUSY)
        await desk.until(lambda: shown() == BUSY)
        stage.be_busy(evolve(BUSY, busy_share=0.51))
        await trio.sleep(10)
        assert shown() == BUSY, "not worth telling"
        stage.be_busy(StageActivity())
        await desk.until(lambda: shown() == StageActivity())
        assert teller.overlay.view.facts[teller.peer][stage_key(id, rank)] == before
        await desk.nodes["a"].control.delete(id)
        await desk.until(lambda: not any(key.startswith("activity") for key in teller.overlay.view.facts[teller.peer]))

    rehearse(story)
