"""What is counted of a generation, and that every route is counted."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from p2pexo.api.metrics import Meter, Metrics
from p2pexo.cluster.snapshot import ClusterSnapshot, PlacementView, StageView
from p2pexo.generation.errors import EngineError
from p2pexo.generation.events import Delta, Event, Failed, Finished, FinishReason, Started, Usage
from p2pexo.generation.request import Request
from p2pexo.ring.activity import StageActivity


def samples(text: str) -> dict[tuple[str, ...], float]:
    """By name and the values of its labels but the buckets'."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "le" not in sample.labels and not sample.name.endswith("_created")
    }


def figures(metrics: Metrics) -> dict[tuple[str, ...], float]:
    return samples(metrics.render().decode())


def test_a_generation_is_queued_then_running_then_counted() -> None:
    metrics = Metrics()
    meter = Meter(metrics, "chat", "m", now=10.0)
    assert figures(metrics)["p2pexo_requests_queued", "chat", "m"] == 1
    meter.observe(Started(5), 11.0)
    assert figures(metrics)["p2pexo_requests_queued", "chat", "m"] == 0
    assert figures(metrics)["p2pexo_requests_running", "chat", "m"] == 1
    meter.observe(Delta(0, (1,), "a"), 12.0)
    meter.observe(Delta(1, (2, 3), "bc"), 13.0)
    meter.observe(Finished(FinishReason.STOP, Usage(5, 4, 1), queue_s=0.5, prefill_s=2.0, decode_s=1.5), 13.5)
    meter.close()
    told = figures(metrics)
    assert told["p2pexo_requests_running", "chat", "m"] == 0
    assert told["p2pexo_requests_total", "chat", "m", "stop"] == 1
    assert told["p2pexo_prompt_tokens_total", "chat", "m"] == 5
    assert told["p2pexo_completion_tokens_total", "chat", "m"] == 4
    assert told["p2pexo_time_to_first_token_seconds_sum", "chat", "m"] == 2.0
    assert told["p2pexo_time_between_tokens_seconds_sum", "chat", "m"] == 0.5
    assert told["p2pexo_queue_seconds_sum", "chat", "m"] == 0.5
    assert told["p2pexo_prefill_tokens_per_second_sum", "chat", "m"] == 2.0
    assert told["p2pexo_decode_tokens_per_second_sum", "chat", "m"] == 2.0


def test_an_answer_of_one_token_has_no_speed_of_decoding() -> None:
    metrics = Metrics()
    Meter(metrics, "chat", "m", now=0.0).observe(Finished(FinishReason.STOP, Usage(5, 1), prefill_s=2.0), 2.0)
    told = figures(metrics)
    assert told["p2pexo_prefill_tokens_per_second_count", "chat", "m"] == 1
    assert told["p2pexo_decode_tokens_per_second_count", "chat", "m"] == 0


def test_this_nodes_stages_tell_what_they_are_busy_with() -> None:
    def stage(rank: int, peer: str, activity: StageActivity | None) -> StageView:
        return StageView(rank, peer, peer, rank, rank + 1, "ready", 1.0, "", 0, 0, "", "", "", activity)

    first, second = StageActivity(0.5, 20.0, 4.0, 2.0, 0.01), StageActivity(0.9, 20.0, 4.0, 2.0)
    stages = (stage(0, "a", first), stage(1, "b", second), stage(2, "a", second), stage(3, "a", None))
    placement = PlacementView("p1", "m", "r", "1", "ready", "", True, stages)
    told = figures(Metrics(lambda: ClusterSnapshot("desk", "a", "a", 1, False, (), (placement,))))
    assert told == {
        ("p2pexo_stage_busy_share", "m", "p1", "0"): 0.5,
        ("p2pexo_stage_busy_share", "m", "p1", "2"): 0.9,
        ("p2pexo_stage_batches_per_second", "m", "p1", "0"): 20.0,
        ("p2pexo_stage_batches_per_second", "m", "p1", "2"): 20.0,
        ("p2pexo_stage_batch_tokens", "m", "p1", "0"): 4.0,
        ("p2pexo_stage_batch_tokens", "m", "p1", "2"): 4.0,
        ("p2pexo_stage_batch_requests", "m", "p1", "0"): 2.0,
        ("p2pexo_stage_batch_requests", "m", "p1", "2"): 2.0,
        ("p2pexo_stage_hop_seconds", "m", "p1", "0"): 0.01,
    }


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ([], "cancelled"),
        ([Started(1)], "cancelled"),
        ([Started(1), Failed(EngineError("x").report())], "engine"),
        ([Finished(FinishReason.LENGTH, Usage(1, 1))], "length"),
    ],
)
def test_how_a_generation_ended(events: list[Event], outcome: str) -> None:
    metrics = Metrics()
    meter = Meter(metrics, "chat", "m", now=0.0)
    for event in events:
        meter.observe(event, 1.0)
    meter.close()
    told = figures(metrics)
    assert told["p2pexo_requests_total", "chat", "m", outcome] == 1
    assert told["p2pexo_requests_queued", "chat", "m"] == told["p2pexo_requests_running", "chat", "m"] == 0


def test_applications_count_for_themselves() -> None:
    first, second = Metrics(), Metrics()
    Meter(first, "chat", "m", now=0.0).close()
    assert figures(first)
    assert not figures(second)


def test_a_node_tells_its_figures(start_node: Any) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        yield Started(2)
        yield Delta(0, (1,), "a")
        yield Finished(FinishReason.STOP, Usage(2, 2))

    node = start_node(script)
    ask = {"model": "parrot-135m", "messages": [{"role": "user", "content": "hi"}], "n": 2}
    assert httpx.post(f"{node.url}/v1/chat/completions", json=ask).status_code == 200
    assert httpx.post(f"{node.url}/v1/completions", json={"model": "parrot-135m", "prompt": "a"}).status_code == 200
    answer = httpx.get(f"{node.url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    told = samples(answer.text)
    assert told["p2pexo_requests_total", "chat", "tests/Parrot-135M", "stop"] == 2
    assert told["p2pexo_requests_total", "completions", "tests/Parrot-135M", "stop"] == 1
    assert told["p2pexo_completion_tokens_total", "chat", "tests/Parrot-135M"] == 4
