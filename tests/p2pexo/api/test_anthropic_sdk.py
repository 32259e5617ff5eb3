"""What the official Anthropic SDK makes of our messages and errors."""

import threading
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import httpx
import pytest
import trio
from anthropic import Anthropic
from pydantic import BaseModel

from p2pexo.api.guard import AccessRules
from p2pexo.generation.errors import ContextLengthError, EngineError, OverloadedError, UnavailableError
from p2pexo.generation.events import Delta, Event, Failed, Finished, FinishReason, Started, ToolCallDelta, Usage
from p2pexo.generation.request import FormatKind, Request, Role

MODEL = "tests/Parrot-135M"
ASK: dict[str, Any] = {"model": MODEL, "max_tokens": 50, "messages": [{"role": "user", "content": "one two three"}]}
ADD: Any = {"name": "add", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}


def client_of(node: Any, api_key: str = "none", max_retries: int = 0) -> Anthropic:
    return Anthropic(base_url=node.url, api_key=api_key, max_retries=max_retries)


async def thinker(request: Request) -> AsyncIterator[Event]:
    """Thinks, says something, and calls a tool twice."""
    yield Started(11)
    yield Delta(0, (1,), "", reasoning="let me ")
    yield Delta(1, (2,), "", reasoning="see")
    yield Delta(2, (3,), "Adding.")
    yield Delta(3, (4,), "", tool_calls=(ToolCallDelta(0, "toolu_1", "add"),))
    yield Delta(4, (5,), "", tool_calls=(ToolCallDelta(0, arguments='{"a"'),))
    yield Delta(5, (6,), "", tool_calls=(ToolCallDelta(0, arguments=": 2}"),))
    yield Delta(6, (7,), "", tool_calls=(ToolCallDelta(1, "toolu_2", "add", "{}"),))
    yield Finished(FinishReason.TOOL_CALLS, Usage(11, 8, reasoning_tokens=2))


def test_a_message(node: Any) -> None:
    reply = client_of(node).messages.create(**ASK)
    (block,) = reply.content
    assert block.type == "text"
    assert block.text == "one two three"
    assert (reply.stop_reason, reply.model, reply.usage.input_tokens) == ("end_turn", MODEL, 7)


def test_a_stream_of_events(node: Any) -> None:
    events = list(client_of(node).messages.create(**ASK, stream=True))
    assert [event.type for event in events if event.type != "content_block_delta"] == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


@pytest.mark.parametrize("helper", [False, True])
def test_thoughts_text_and_tool_calls(start_node: Any, helper: bool) -> None:
    client = client_of(start_node(thinker))
    if helper:
        with client.messages.stream(**ASK, tools=[ADD]) as stream:
            reply: Any = stream.get_final_message()
    else:
        reply = client.messages.create(**ASK, tools=[ADD])
    thought, text, first, second = reply.content
    assert (thought.thinking, thought.signature != "") == ("let me see", True)
    assert text.text == "Adding."
    assert (first.id, first.name, first.input) == ("toolu_1", "add", {"a": 2})
    assert (second.id, second.input) == ("toolu_2", {})
    assert (reply.stop_reason, reply.usage.input_tokens, reply.usage.output_tokens) == ("tool_use", 11, 8)


def test_an_answer_goes_back_as_history(start_node: Any) -> None:
    node = start_node(thinker)
    client = client_of(node)
    reply = client.messages.create(**ASK, tools=[ADD])
    results: Any = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "2"}]
    turns: Any = [
        *ASK["messages"],
        {"role": "assistant", "content": reply.content},
        {"role": "user", "content": results},
    ]
    client.messages.create(**ASK | {"messages": turns}, tools=[ADD])
    assert [message.role for message in node.generator.requests[-1].messages] == [Role.USER, Role.ASSISTANT, Role.TOOL]


def test_the_stop_sequence_is_reported(start_node: Any) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        yield Started(3)
        yield Delta(0, (1,), "safe")
        yield Finished(FinishReason.STOP, Usage(3, 2), stop_text=request.stop[0])

    client = client_of(start_node(script))
    reply = client.messages.create(**ASK, stop_sequences=["###"])
    assert (reply.stop_reason, reply.stop_sequence) == ("stop_sequence", "###")
    with client.messages.stream(**ASK, stop_sequences=["###"]) as stream:
        assert stream.get_final_message().stop_sequence == "###"


class Verdict(BaseModel):
    ok: bool


def test_structured_output(start_node: Any) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        assert request.output_format.kind is FormatKind.JSON_SCHEMA
        yield Started(3)
        yield Delta(0, (1,), '{"ok":true}')
        yield Finished(FinishReason.STOP, Usage(3, 2))

    reply = client_of(start_node(script)).messages.parse(**ASK, output_format=Verdict)
    assert reply.parsed_output == Verdict(ok=True)


@pytest.mark.parametrize("beta", [False, True])
def test_tokens_are_counted(node: Any, beta: bool) -> None:
    client = client_of(node)
    messages: Any = client.beta.messages if beta else client.messages
    system = [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}]
    counted = messages.count_tokens(model=MODEL, messages=ASK["messages"], system=system, tools=[ADD])
    assert counted.input_tokens == 7
    assert node.generator.requests[-1].max_tokens == 0


def test_unknown_queries_and_headers_are_no_trouble(node: Any) -> None:
    headers = {"x-api-key": "x", "anthropic-version": "2023-06-01", "anthropic-beta": "something-2030-01-01"}
    for path in ("/v1/messages", "/v1/v1/messages", "/messages", "//v1/messages", "/v1/messages/"):
        assert httpx.post(f"{node.url}{path}?beta=true", json=ASK, headers=headers).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (ContextLengthError("9000 tokens, context 8192"), anthropic.BadRequestError),
        (OverloadedError("full"), anthropic.APIStatusError),
        (UnavailableError("no leader"), anthropic.InternalServerError),
        (EngineError("NaN"), anthropic.InternalServerError),
    ],
)
def test_failures_raise_the_right_class(start_node: Any, stream: bool, failure: Any, error: type[Exception]) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        yield Failed(failure.report())

    with pytest.raises(error, match=str(failure)):
        client_of(start_node(script)).messages.create(**ASK, stream=stream)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"extra_body": {"temperature": 2}}, anthropic.BadRequestError, "temperature"),
        ({"model": "claude-opus"}, anthropic.NotFoundError, "Parrot"),
        ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, anthropic.BadRequestError, "web_search_20250305"),
    ],
)
def test_refusals(node: Any, change: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        client_of(node).messages.create(**{**ASK, **change})
    with pytest.raises(anthropic.NotFoundError):
        client_of(node).messages.count_tokens(model="nope", messages=ASK["messages"])


@pytest.mark.parametrize("helper", [False, True])
def test_a_failure_in_mid_stream_raises(start_node: Any, helper: bool) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        yield Started(3)
        yield Delta(0, (1,), "half")
        yield Failed(EngineError("stage 1 is gone").report())

    client = client_of(start_node(script))
    with pytest.raises(anthropic.APIStatusError, match="stage 1 is gone"):
        if helper:
            with client.messages.stream(**ASK) as stream:
                stream.until_done()
        else:
            list(client.messages.create(**ASK, stream=True))


def test_pings_come_before_anything_else_is_known(start_node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pexo.api.streaming.HOLD_S", 0.02)
    monkeypatch.setattr("p2pexo.api.streaming.SILENCE_S", 0.02)
    release = threading.Event()

    async def script(request: Request) -> AsyncIterator[Event]:
        await trio.to_thread.run_sync(release.wait)
        async for event in thinker(request):
            yield event

    node = start_node(script)
    with httpx.stream("POST", f"{node.url}/v1/messages", json=ASK | {"stream": True}) as response:
        blocks = response.iter_text()
        early = next(blocks) + next(blocks)
        release.set()
        rest = "".join(blocks)
    assert set(early.split("\n\n")[:-1]) == {'event: ping\ndata: {"type":"ping"}'}
    assert "event: message_stop" in rest
    release.clear()
    with client_of(node).messages.stream(**ASK) as stream:
        release.set()
        assert stream.get_final_message().stop_reason == "tool_use"


def test_the_api_key(start_node: Any) -> None:
    node = start_node(rules=AccessRules(api_key="secret"))
    assert client_of(node, api_key="secret").messages.create(**ASK).id
    with pytest.raises(anthropic.AuthenticationError, match="API key is wrong"):
        client_of(node, api_key="guess").messages.create(**ASK)
