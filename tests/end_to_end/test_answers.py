"""The main job: whichever node is asked, and however many machines hold the model, the same answer comes."""

from typing import Any

import httpx
import psutil
import pytest
from end_to_end.cluster import EMBEDDED_MODEL, RealCluster
from end_to_end.conftest import sdk

QUESTION = "What is the capital of France?"
TOKENS = 24


def ask(url: str, **more: Any) -> tuple[str, str, int, int]:
    """Text, finish reason, prompt tokens and completion tokens of a greedy answer."""
    parameters: dict[str, Any] = {"model": EMBEDDED_MODEL, "temperature": 0, "max_tokens": TOKENS} | more
    answer = sdk(url).chat.completions.create(messages=[{"role": "user", "content": QUESTION}], **parameters)
    assert answer.usage is not None
    choice = answer.choices[0]
    return (
        choice.message.content or "",
        choice.finish_reason,
        answer.usage.prompt_tokens,
        answer.usage.completion_tokens,
    )


def ask_stream(url: str) -> tuple[str, str, int, int]:
    text, reasons, usage = "", [], None
    for chunk in sdk(url).chat.completions.create(
        model=EMBEDDED_MODEL,
        messages=[{"role": "user", "content": QUESTION}],
        temperature=0,
        max_tokens=TOKENS,
        stream=True,
        stream_options={"include_usage": True},
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert usage is not None
    assert len(reasons) == 1
    return text, reasons[0], usage.prompt_tokens, usage.completion_tokens


def test_each_node_gives_the_same_answer_streamed_or_not(three_stages: RealCluster) -> None:
    answers = {answer for node in three_stages.nodes for answer in (ask(node.url), ask_stream(node.url))}
    assert len(answers) == 1
    text, reason, prompt_tokens, completion_tokens = answers.pop()
    assert "Paris" in text
    assert reason in ("stop", "length")
    assert 30 < prompt_tokens < 45  # the chat template's own system turn and the question
    assert 0 < completion_tokens <= TOKENS


def test_each_stage_process_holds_its_layers_and_not_the_model(three_stages: RealCluster) -> None:
    three_stages.delete()  # so that no cache of earlier tests is counted
    placement = three_stages.place(split=(10, 10, 10))
    whole_model = 538e6  # of fp32 weights, tied embedding counted once
    for stage in placement.stages:
        node = three_stages.node_of(stage.peer)
        resident = max(child.memory_info().rss for child in node.children())
        assert stage.weight_bytes < 0.55 * whole_model
        assert resident < stage.weight_bytes + 160e6, f"stage {stage.rank} holds {resident / 1e6:.0f} MB"
        assert abs(resident - stage.resident_bytes) < 60e6
    inner = placement.stages[1]
    assert inner.weight_bytes < 0.3 * whole_model  # neither embedding nor head


def test_the_node_processes_hold_no_weights(three_stages: RealCluster) -> None:
    for node in three_stages.nodes:
        assert psutil.Process(node.running.pid).memory_info().rss < 260e6


@pytest.mark.parametrize("stages", [1, 2])
def test_fewer_stages_give_the_same_tokens(three_stages: RealCluster, stages: int) -> None:
    expected = ask(three_stages[0].url)
    three_stages.delete()
    try:
        placement = three_stages.place(min_stages=stages)
        assert len(placement.stages) == stages
        assert ask(three_stages[1].url) == expected
    finally:
        three_stages.delete()
        three_stages.place(min_stages=3)


def test_a_model_that_is_not_running_is_placed_when_it_is_asked_for(three_stages: RealCluster) -> None:
    expected = ask(three_stages[0].url)
    three_stages.delete()
    try:
        assert ask_stream(three_stages[2].url) == expected
    finally:
        three_stages.delete()
        three_stages.place(min_stages=3)


def test_a_dry_run_tells_what_placing_does_and_a_split_is_kept_to_the_layer(three_stages: RealCluster) -> None:
    expected = ask(three_stages[0].url)
    three_stages.delete()
    try:
        dry = {"model": EMBEDDED_MODEL, "dry_run": True, "split": three_stages.parts((3, 20, 7))}
        shown = httpx.post(f"{three_stages[2].url}/v1/placements", json=dry, timeout=30).json()
        free = httpx.post(f"{three_stages[1].url}/v1/placements", json={**dry, "split": None}, timeout=30).json()
        assert three_stages[0].placement(EMBEDDED_MODEL) is None
        assert [len(option["stages"]) for option in free["options"]] == [1, 2, 3]
        assert free["chosen"] == 1
        placement = three_stages.place(split=(3, 20, 7))
        (option,) = shown["options"]
        assert [(stage["peer"], stage["end_layer"]) for stage in option["stages"]] == [
            (stage.peer, stage.end_layer) for stage in placement.stages
        ]
        assert [stage.end_layer for stage in placement.stages] == [3, 23, 30]
        assert ask(three_stages[1].url) == expected
    finally:
        three_stages.delete()
        three_stages.place(min_stages=3)
