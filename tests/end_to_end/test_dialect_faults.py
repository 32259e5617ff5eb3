"""A model that requests bring up, lose and let go of, as Claude's and Ollama's clients see it."""

from collections.abc import Generator
from pathlib import Path

import anthropic
import ollama
import pytest
from end_to_end.cluster import EMBEDDED_MODEL, RealCluster, RealNode, real_cluster

STORY = "Tell me a very long story about a ship."


@pytest.fixture(scope="module")
def lone(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[RealCluster]:
    """Where no answer waits for its ring to come back."""
    arguments = ("--cache", str(cache), "--reform-timeout", "0")
    with real_cluster(tmp_path_factory.mktemp("lone"), 1, arguments) as running:
        yield running


def kill_stage(node: RealNode) -> None:
    """The one whose memory holds the model."""
    max(node.children(), key=lambda each: each.memory_info().rss).kill()


def running(node: ollama.Client) -> list[str | None]:
    return [model.model for model in node.ps().models]


def test_o1_what_a_request_brought_up_is_loaded_and_unloaded(lone: RealCluster) -> None:
    node = ollama.Client(host=lone[0].url, timeout=120)
    assert running(node) == []
    assert node.generate(EMBEDDED_MODEL, keep_alive="5m").done_reason == "load"
    assert running(node) == [EMBEDDED_MODEL]
    assert node.chat(EMBEDDED_MODEL, [], keep_alive="0m").done_reason == "unload"
    assert running(node) == []


def test_o5_a_runner_killed_in_the_middle_of_lines_ends_them_with_an_error(lone: RealCluster) -> None:
    node = ollama.Client(host=lone[0].url, timeout=120)
    parts = node.generate(EMBEDDED_MODEL, STORY, stream=True, options={"temperature": 0, "num_predict": 2000})
    seen = [next(parts) for _ in range(5)]
    kill_stage(lone[0])
    with pytest.raises(ollama.ResponseError):
        seen.extend(parts)
    assert not any(part.done for part in seen)
    lone.wait_until_ready()
    assert node.generate(EMBEDDED_MODEL, "Say: yes", options={"num_predict": 3}).done_reason


def test_a_runner_killed_in_the_middle_of_blocks_ends_them_with_an_error(lone: RealCluster) -> None:
    client = anthropic.Anthropic(base_url=lone[0].url, api_key="none", max_retries=0, timeout=120)
    kinds: list[str] = []
    with (
        pytest.raises(anthropic.APIStatusError) as failure,
        client.messages.create(
            model=EMBEDDED_MODEL, max_tokens=2000, messages=[{"role": "user", "content": STORY}], stream=True
        ) as events,
    ):
        for event in events:
            kinds.append(event.type)
            if kinds.count("content_block_delta") == 5:
                kill_stage(lone[0])
    assert failure.value.body is not None
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert "message_stop" not in kinds
