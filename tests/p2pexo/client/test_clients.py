"""Both clients against real nodes: without a loop, on trio, and on asyncio."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import httpx
import pytest
import trio

from p2pexo.client import (
    AccessDeniedError,
    AsyncClient,
    BrokenStreamError,
    Client,
    ContextLengthError,
    EngineError,
    Finished,
    InvalidRequestError,
    Message,
    Model,
    ModelNotFoundError,
    NodeError,
    Note,
    NotFoundError,
    OverloadedError,
    PlacementFailedError,
    Text,
    Timeouts,
    UnexpectedAnswerError,
    UnreachableError,
    UnsupportedParameterError,
    Usage,
)
from p2pexo.generation import errors
from p2pexo.generation.events import Delta, Event, Failed
from p2pexo.generation.request import Request

MODEL = "tests/Parrot-135M"
WORDS = [Text("one"), Text(" two"), Text(" three")]
END = Finished("stop", Usage(7, 4))

Story = Callable[[], Coroutine[Any, Any, None]]
LOOPS: dict[str, Callable[[Story], None]] = {"trio": trio.run, "asyncio": lambda story: asyncio.run(story())}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    return LOOPS[request.param]


async def endless(request: Request) -> AsyncIterator[Event]:
    yield Delta(0, (1,), "for ever")
    await trio.sleep_forever()


async def broken(request: Request) -> AsyncIterator[Event]:
    yield Delta(0, (1,), "half")
    yield Failed(errors.EngineError("stage 1 is gone").report())


class TestWithoutALoop:
    def test_a_whole_answer(self, node: Any) -> None:
        with Client(node.url) as client:
            answer = client.chat("parrot-135m", "one two three", temperature=0.5, seed=7)
        assert (answer.text, answer.finish_reason, answer.usage) == ("one two three", "stop", Usage(7, 4))
        (asked,) = node.generator.requests
        assert (asked.sampling.temperature, asked.sampling.seed) == (0.5, 7)

    def test_a_streamed_answer(self, node: Any) -> None:
        with Client(node.url) as client, client.stream_chat(MODEL, [Message("user", "one two three")]) as events:
            assert list(events) == [Note("loading the model"), *WORDS, END]

    def test_leaving_the_block_cancels(self, start_node: Any) -> None:
        node = start_node(endless)
        with Client(node.url) as client, client.stream_chat(MODEL, "hi") as events:
            assert next(iter(events)) == Text("for ever")
        assert node.generator.cancelled.wait(10)

    def test_models_and_the_cluster(self, node: Any) -> None:
        with Client(node.url) as client:
            assert client.models() == (Model(MODEL, 8192, "repeats"),)
            state = client.cluster()
        assert (state.cluster, state.leader, state.term) == ("desk", "peer-a", 3)
        placement = state.placement("p1")
        assert placement is not None
        assert (placement.is_ready, placement.progress, placement.stages[0].end_layer) == (True, 1.0, 30)

    def test_place_and_delete(self, node: Any) -> None:
        with Client(node.url) as client:
            assert client.place(MODEL, min_stages=2) == "p1"
            client.delete("p1")
            assert client.leave() == client.leave("mac-a") == "peer-a"
        assert node.cluster.left == ["", "mac-a"]
        assert node.cluster.placed[0].min_stages == 2
        assert node.cluster.deleted == ["p1"]

    def test_a_model_is_placed_by_a_split_and_previewed(self, node: Any) -> None:
        with Client(node.url) as client:
            client.place(MODEL, split="mac-a=0-9,mac-b=10-29")
            client.place(MODEL, replicas=2)
            shown = client.preview(MODEL, min_stages=1)
        assert [part.end_layer for part in node.cluster.placed[0].split] == [10, 30]
        assert [command.replicas for command in node.cluster.placed] == [1, 2]
        assert (shown.model, shown.chosen, shown.options[0].stages[0].node) == (MODEL, 1, "mac-a")

    def test_a_placement_is_followed_until_it_is_ready(self, node: Any, story: Any) -> None:
        node.cluster.story = story("absent", "loading", "ready")
        with Client(node.url) as client, client.follow("p1") as states:
            seen = list(states)
        assert seen[-1].is_ready
        assert all(not state.is_ready for state in seen[:-1])

    def test_a_placement_is_followed_until_it_is_gone(self, node: Any, story: Any) -> None:
        node.cluster.story = story("ready", "absent")
        with Client(node.url) as client, client.follow("p1", until="gone") as states:
            list(states)

    def test_a_placement_that_fails_says_why(self, node: Any, story: Any) -> None:
        node.cluster.story = story("loading", "failed")
        with (
            Client(node.url) as client,
            client.follow("p1") as states,
            pytest.raises(PlacementFailedError, match="cut"),
        ):
            list(states)

    def test_the_cluster_is_watched(self, node: Any) -> None:
        with Client(node.url) as client, client.watch() as states:
            assert next(iter(states)).cluster == "desk"


class TestOnALoop:
    def test_a_whole_answer(self, run: Any, node: Any) -> None:
        async def story() -> None:
            async with AsyncClient(node.url) as client:
                assert (await client.chat(MODEL, "one two three")).text == "one two three"

        run(story)

    def test_a_streamed_answer(self, run: Any, node: Any) -> None:
        async def story() -> None:
            async with AsyncClient(node.url) as client, client.stream_chat(MODEL, "one two three") as events:
                assert [event async for event in events] == [Note("loading the model"), *WORDS, END]

        run(story)

    def test_leaving_the_block_cancels(self, run: Any, start_node: Any) -> None:
        node = start_node(endless)

        async def story() -> None:
            async with AsyncClient(node.url) as client, client.stream_chat(MODEL, "hi") as events:
                assert await anext(events) == Text("for ever")

        run(story)
        assert node.generator.cancelled.wait(10)

    def test_cancelling_the_task_cancels_the_answer(self, start_node: Any) -> None:
        node = start_node(endless)

        async def story() -> None:
            async with AsyncClient(node.url) as client, client.stream_chat(MODEL, "hi") as events:
                async for _ in events:
                    scope.cancel()

        async def cancelled_on_trio() -> None:
            with scope:
                await story()

        scope = trio.CancelScope()
        trio.run(cancelled_on_trio)
        assert scope.cancelled_caught
        assert node.generator.cancelled.wait(10)

    def test_cancelling_the_task_cancels_the_answer_on_asyncio(self, start_node: Any) -> None:
        node = start_node(endless)

        async def story() -> None:
            async with AsyncClient(node.url) as client, client.stream_chat(MODEL, "hi") as events:
                async for _ in events:
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()

        with pytest.raises(asyncio.CancelledError):
            asyncio.run(story())
        assert node.generator.cancelled.wait(10)

    def test_models_the_cluster_and_commands(self, run: Any, node: Any) -> None:
        async def story() -> None:
            async with AsyncClient(node.url) as client:
                assert [model.id for model in await client.models()] == [MODEL]
                assert (await client.cluster()).term == 3
                assert await client.place(MODEL) == "p1"
                await client.delete("p1")
                assert await client.leave("mac-a") == "peer-a"

        run(story)
        assert node.cluster.deleted == ["p1"]

    def test_a_placement_is_followed_and_the_cluster_watched(self, run: Any, node: Any, story: Any) -> None:
        node.cluster.story = story("absent", "loading", "ready")

        async def tale() -> None:
            async with AsyncClient(node.url) as client:
                async with client.follow("p1") as states:
                    assert [state async for state in states][-1].is_ready
                async with client.watch() as pictures:
                    assert (await anext(pictures)).cluster == "desk"

        run(tale)

    def test_a_dead_node_is_passed_over(self, run: Any, node: Any, dead_url: str) -> None:
        async def story() -> None:
            async with AsyncClient([dead_url, node.url]) as client:
                assert (await client.chat(MODEL, "hi")).text == "hi"
                assert client.urls == (node.url, dead_url)

        run(story)

    def test_a_failure_in_mid_stream_is_raised(self, run: Any, start_node: Any) -> None:
        node = start_node(broken)

        async def story() -> None:
            async with AsyncClient(node.url) as client, client.stream_chat(MODEL, "hi") as events:
                assert await anext(events) == Text("half")
                with pytest.raises(EngineError, match="stage 1 is gone"):
                    await anext(events)

        run(story)


class TestErrors:
    @pytest.mark.parametrize(
        ("failure", "expected"),
        [
            (errors.ContextLengthError("9000 tokens"), ContextLengthError),
            (errors.OverloadedError("busy", retry_after_s=9), OverloadedError),
            (errors.EngineError("NaN"), EngineError),
        ],
    )
    def test_they_mirror_the_servers(self, start_node: Any, failure: Any, expected: type[NodeError]) -> None:
        async def script(request: Request) -> AsyncIterator[Event]:
            yield Failed(failure.report())

        with Client(start_node(script).url) as client, pytest.raises(expected, match=str(failure)) as caught:
            client.chat(MODEL, "hi")
        assert type(caught.value) is expected
        assert caught.value.retry_after_s == failure.retry_after_s

    @pytest.mark.parametrize("kind", sorted(errors._BY_KIND))
    def test_every_error_of_the_server_has_a_class_of_its_own_kind(self, start_node: Any, kind: str) -> None:
        async def script(request: Request) -> AsyncIterator[Event]:
            yield Failed(errors.ErrorReport(kind, "why"))

        with Client(start_node(script).url) as client, pytest.raises(NodeError, match="why") as caught:
            client.chat(MODEL, "hi")
        assert (type(caught.value).__name__ == errors._BY_KIND[kind].__name__) == (
            kind not in ("internal", "ring_broken")
        )

    def test_a_field_is_named(self, node: Any) -> None:
        with Client(node.url) as client:
            with pytest.raises(InvalidRequestError) as caught:
                client.chat(MODEL, "hi", temperature=99)
            assert (caught.value.param, caught.value.status) == ("temperature", 400)
            options: Any = {"modalities": ["smell"]}
            with pytest.raises(UnsupportedParameterError):
                client.chat(MODEL, "hi", **options)

    def test_what_is_not_there(self, node: Any) -> None:
        with Client(node.url) as client:
            with pytest.raises(ModelNotFoundError, match="nobody"):
                client.chat("nobody/nothing", "hi")
            with pytest.raises(NotFoundError):
                client.delete("p9")

    def test_the_key_is_sent(self, start_node: Any) -> None:
        node = start_node(api_key="secret")
        with Client(node.url) as client, pytest.raises(AccessDeniedError):
            client.models()
        with Client(node.url, api_key="secret") as client:
            assert client.models()

    def test_patience_is_the_callers_choice(self) -> None:
        seen: list[object] = []

        def handle(request: httpx.Request) -> httpx.Response:
            seen.append(request.extensions["timeout"])
            raise httpx.ReadTimeout("silence")

        impatient = Timeouts(connect_s=1, silence_s=2)
        with (
            Client(timeouts=impatient, discover=False, transport=httpx.MockTransport(handle)) as client,
            pytest.raises(UnreachableError, match="silent for 2 s"),
        ):
            client.models()
        assert seen == [{"connect": 1, "read": 2, "write": 2, "pool": 2}]

    def test_somebody_else_answers(self) -> None:
        page = httpx.MockTransport(lambda request: httpx.Response(200, text="<html>hello"))
        with Client(transport=page) as client, pytest.raises(UnexpectedAnswerError, match="html"):
            client.models()


class TestSeveralNodes:
    def test_the_next_one_is_asked_when_one_is_down(self, node: Any, dead_url: str) -> None:
        with Client([dead_url, node.url]) as client:
            assert client.chat(MODEL, "hi").text == "hi"
            assert client.urls == (node.url, dead_url)

    def test_members_are_learnt_and_take_over(self, start_node: Any) -> None:
        first, second = start_node(), start_node()
        first.knows(second)
        with Client(first.url) as client:
            assert client.chat(MODEL, "hi").text == "hi"
            assert client.urls == (first.url, second.url)
            first.stop()
            assert client.chat(MODEL, "hi").text == "hi"
        assert len(second.generator.requests) == 1

    def test_without_discovery_only_the_given_ones_are_asked(self, start_node: Any) -> None:
        first, second = start_node(), start_node()
        first.knows(second)
        with Client(first.url, discover=False) as client:
            client.models()
            assert client.urls == (first.url,)

    def test_a_watch_goes_on_at_another_node(self, start_node: Any) -> None:
        first, second = start_node(), start_node()
        with Client([first.url, second.url]) as client, client.watch() as states:
            assert next(states).term == 3
            first.stop()
            assert next(states).term == 3
            assert client.urls[0] == second.url

    def test_all_are_down(self, dead_url: str) -> None:
        with Client(dead_url) as client, pytest.raises(UnreachableError, match=dead_url):
            client.models()

    def test_an_answer_that_has_begun_is_never_asked_for_again(self) -> None:
        asked: list[str] = []

        def handle(request: httpx.Request) -> httpx.Response:
            asked.append(request.url.host)
            return httpx.Response(200, stream=_Cut(b'data: {"choices":[{"delta":{"content":"half"}}]}\n\n'))

        client = Client(["http://a", "http://b"], discover=False, transport=httpx.MockTransport(handle))
        with client, client.stream_chat(MODEL, "hi") as events:
            assert next(events) == Text("half")
            with pytest.raises(BrokenStreamError, match="broke off"):
                next(events)
        assert asked == ["a"]

    def test_an_answer_that_has_not_begun_is_asked_for_elsewhere(self, node: Any) -> None:
        real = httpx.HTTPTransport()

        def handle(request: httpx.Request) -> httpx.Response:
            return (
                httpx.Response(200, stream=_Cut(b": loading\n\n"))
                if request.url.host == "a"
                else real.handle_request(request)
            )

        client = Client(["http://a", node.url], discover=False, transport=httpx.MockTransport(handle))
        with client:
            assert client.chat(MODEL, "hi").text == "hi"


class _Cut(httpx.SyncByteStream):
    """A body that breaks off."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __iter__(self) -> Iterator[bytes]:
        yield self._content
        raise httpx.RemoteProtocolError("incomplete chunked read")
