"""Our own SDK against a real cluster of two nodes, with the scripted engine where the text must be known."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import httpx
import pytest
import trio
from end_to_end.cluster import RealCluster, real_cluster, wait_for

from p2pexo.cli.fleet import free_ports
from p2pexo.client import (
    AsyncClient,
    ChatEvent,
    Client,
    EngineError,
    Finished,
    InvalidRequestError,
    Logprobs,
    Message,
    Picture,
    PlacementDeletedError,
    Reasoning,
    Text,
    Tool,
    ToolCallPart,
)
from p2pexo.ring.scripted import Line, Script

MODEL = "local/scripted"
SCRIPT = Script(
    context_length=4096,
    says=(
        Line("the weather?", '<tool_call>\n{"name": "look", "arguments": {"at": "Ulm"}}\n</tool_call>'),
        Line("think", "<think>Let me see.</think>It is so."),
        Line("break", "so far and no", fails_after=6),
        Line("at length", "for ever and ever " * 200, token_s=0.05),
        Line("", "You said something."),
    ),
)
SAID = "You said something."
PNG = b"\x89PNG\r\n\x1a\n"
LOOK = Tool("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})

Story = Callable[[], Coroutine[Any, Any, None]]
LOOPS: dict[str, Callable[[Story], None]] = {"trio": trio.run, "asyncio": lambda story: asyncio.run(story())}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[RealCluster]:
    folder = tmp_path_factory.mktemp("own-sdk")
    model = folder / "scripted"
    model.mkdir()
    SCRIPT.write(model)
    arguments = ("--engine", "scripted", "--model-dir", str(model), "--cache", str(folder / "cache"))
    with real_cluster(folder, 2, arguments) as cluster:
        cluster.place(MODEL, min_stages=2)
        yield cluster


@pytest.fixture
def client(cluster: RealCluster) -> Generator[Client]:
    with Client(cluster[0].url) as client:
        yield client


def test_a_whole_answer_with_its_figures(client: Client):
    answer = client.chat(MODEL, "Hello, Ünal!")
    assert (answer.text, answer.finish_reason) == (SAID, "stop")
    assert answer.usage.completion_tokens == len(SAID) + 1
    assert answer.first_token_s is not None


def test_several_answers_come_side_by_side(client: Client):
    with client.stream_chat(MODEL, "Hello", n=3) as events:
        told = list(events)
    assert {event.choice for event in told if isinstance(event, Text)} == {0, 1, 2}
    assert isinstance(told[-1], Finished)
    assert told[-1].reasons == ("stop",) * 3
    assert [each.text for each in client.chat(MODEL, "Hello", n=3).choices] == [SAID] * 3


def test_likelihoods_are_told_for_every_token(client: Client):
    with client.stream_chat(MODEL, "Hello", logprobs=True, top_logprobs=1) as events:
        assert any(isinstance(event, Logprobs) for event in events)
    tokens = client.chat(MODEL, "Hello", logprobs=True, top_logprobs=1).logprobs
    assert "".join(each.token for each in tokens).startswith(SAID)
    assert (tokens[0].logprob, tokens[0].top[0].token, tokens[0].bytes) == (0.0, "Y", (ord("Y"),))


def test_thoughts_are_kept_apart_from_what_is_said(client: Client):
    with client.stream_chat(MODEL, "Please think") as events:
        told = list(events)
    assert "".join(each.text for each in told if isinstance(each, Reasoning)).strip() == "Let me see."
    assert "".join(each.text for each in told if isinstance(each, Text)).strip() == "It is so."


def test_a_call_comes_in_typed_pieces_and_its_result_goes_back(client: Client):
    talk = [Message("user", "How is the weather?")]
    with client.stream_chat(MODEL, talk, tools=[LOOK]) as events:
        parts = [event for event in events if isinstance(event, ToolCallPart)]
    assert (parts[0].name, bool(parts[0].id)) == ("look", True)
    answer = client.chat(MODEL, talk, tools=[LOOK])
    assert answer.finish_reason == "tool_calls"
    talk += [answer.message, Message("tool", "sunny", tool_call_id=answer.tool_calls[0].id)]
    assert client.chat(MODEL, talk, tools=[LOOK]).text == SAID


def test_a_limit_ends_an_answer_with_its_reason(client: Client):
    answer = client.chat(MODEL, "Hello", max_completion_tokens=3)
    assert (answer.text, answer.finish_reason) == (SAID[:3], "length")


def test_a_stop_string_is_not_told(client: Client):
    answer = client.chat(MODEL, "Hello", stop=" some")
    assert (answer.text, answer.finish_reason) == ("You said", "stop")


def test_a_model_that_cannot_see_refuses_a_picture(client: Client):
    with pytest.raises(InvalidRequestError, match="picture") as caught:
        client.chat(MODEL, [Message("user", ["What is this?", Picture.from_bytes(PNG)])])
    assert caught.value.status == 400


def test_a_failure_in_mid_stream_comes_after_the_text_before_it(client: Client):
    heard: list[ChatEvent] = []
    with client.stream_chat(MODEL, "now break") as events, pytest.raises(EngineError, match="after 6 tokens"):
        for event in events:
            heard.append(event)
    assert "".join(event.text for event in heard if isinstance(event, Text)) == "so far"
    assert client.chat(MODEL, "Hello").text == SAID


@pytest.mark.parametrize("run", LOOPS.values(), ids=LOOPS)
def test_the_same_on_a_loop(cluster: RealCluster, run: Callable[[Story], None]):
    async def story() -> None:
        async with AsyncClient(cluster[0].url) as client:
            answer = await client.chat(MODEL, "Hello", n=2, logprobs=True)
            assert [each.text for each in answer.choices] == [SAID] * 2
            async with client.stream_chat(MODEL, "at length") as events:
                async for event in events:
                    if isinstance(event, Text):
                        break
            with pytest.raises(EngineError):
                await client.chat(MODEL, "now break")

    run(story)


def test_the_next_node_is_asked_when_the_first_is_not_there(cluster: RealCluster):
    with Client([f"http://127.0.0.1:{free_ports(1)[0]}", cluster[1].url]) as client:
        assert client.chat(MODEL, "Hello").text == SAID
        assert set(client.urls) >= {cluster[0].url, cluster[1].url}


def test_leaving_the_block_ends_the_answer_in_the_cluster(cluster: RealCluster, client: Client):
    with client.stream_chat(MODEL, "at length") as events:
        assert any(isinstance(event, Text) for event in events)
        assert running(cluster) == 1
    wait_for("nothing runs any more", lambda: running(cluster) == 0)


def running(cluster: RealCluster) -> float:
    """Answers that the first node is giving now, by its own count."""
    lines = httpx.get(f"{cluster[0].url}/metrics", timeout=10).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("p2pexo_requests_running{"))


def test_a_deleted_placement_ends_its_stream_and_is_followed_to_its_end(cluster: RealCluster):
    with Client(cluster[0].url) as client:
        (placement,) = client.cluster().placements
        with client.stream_chat(MODEL, "at length") as events:
            assert any(isinstance(event, Text) for event in events)
            client.delete(placement.id)
            with pytest.raises(PlacementDeletedError):
                list(events)
        with client.follow(placement.id, until="gone") as states:
            list(states)
        placed = client.place(MODEL, min_stages=2)
        with client.follow(placed) as states:
            assert [state.state for state in states][-1] == "ready"
        assert client.chat(MODEL, "Hello").text == SAID
