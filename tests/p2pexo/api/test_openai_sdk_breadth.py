"""What the official OpenAI SDK makes of tools, formats, several answers, log probabilities, and legacy completions."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from attrs import frozen
from openai import OpenAI
from pydantic import BaseModel

from p2pexo.generation.errors import EngineError
from p2pexo.generation.events import (
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    Likelihood,
    Started,
    TokenLogprobs,
    ToolCallDelta,
    Usage,
)
from p2pexo.generation.request import FormatKind, Request, ToolChoice, ToolMode

MODEL = "tests/Parrot-135M"
ASK: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "2+3 and 7-1?"}]}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("add", "sub")
]


def client_of(node: Any) -> OpenAI:
    return OpenAI(base_url=f"{node.url}/v1", api_key="none", max_retries=0)


@frozen
class Told:
    """Tells the same events to every request, the end and its choice excepted."""

    events: tuple[Event, ...]
    reason: FinishReason = FinishReason.STOP

    async def __call__(self, request: Request) -> AsyncIterator[Event]:
        yield Started(7)
        for event in self.events:
            yield event
        yield Finished(self.reason, Usage(7, 5))


CALLS = Told(
    (
        Delta(0, (1,), "", reasoning="two sums"),
        Delta(1, (2,), "", tool_calls=(ToolCallDelta(0, "call_a", "add"),)),
        Delta(2, (3,), "", tool_calls=(ToolCallDelta(0, arguments='{"a":2,'), ToolCallDelta(0, arguments='"b":3}'))),
        Delta(3, (4,), "", tool_calls=(ToolCallDelta(1, "call_b", "sub", "{}"),)),
    ),
    FinishReason.TOOL_CALLS,
)


def calls_of(message: Any) -> list[tuple[str, str, str]]:
    return [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls]


def test_tool_calls(start_node: Any) -> None:
    node = start_node(CALLS)
    reply = client_of(node).chat.completions.create(**ASK, tools=TOOLS, tool_choice="required")
    (choice,) = reply.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert calls_of(choice.message) == [("call_a", "add", '{"a":2,"b":3}'), ("call_b", "sub", "{}")]
    assert choice.message.model_extra == {"reasoning_content": "two sums"}
    (request,) = node.generator.requests
    assert request.tool_choice == ToolChoice(ToolMode.REQUIRED)


def test_the_stream_helper_joins_tool_calls(start_node: Any) -> None:
    with client_of(start_node(CALLS)).chat.completions.stream(**ASK, tools=TOOLS) as stream:
        (choice,) = stream.get_final_completion().choices
    assert choice.finish_reason == "tool_calls"
    assert calls_of(choice.message) == [("call_a", "add", '{"a":2,"b":3}'), ("call_b", "sub", "{}")]


def test_a_second_turn_of_a_tool_loop(node: Any) -> None:
    first = client_of(node).chat.completions
    call = {"id": "call_a", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    history: list[Any] = [
        *ASK["messages"],
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "call_a", "name": "add", "content": "5"},
    ]
    assert first.create(model=MODEL, messages=history, tools=TOOLS).choices[0].message.content == "5"
    (request,) = node.generator.requests
    assert request.messages[1].reasoning == "hm"


class Verdict(BaseModel):
    ok: bool


def test_structured_output(start_node: Any) -> None:
    node = start_node(Told((Delta(0, (1,), '{"ok":'), Delta(1, (2,), " true}"))))
    reply = client_of(node).chat.completions.parse(**ASK, response_format=Verdict)
    assert reply.choices[0].message.parsed == Verdict(ok=True)
    with client_of(node).chat.completions.stream(**ASK, response_format=Verdict) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == Verdict(ok=True)
    assert {request.output_format.kind for request in node.generator.requests} == {FormatKind.JSON_SCHEMA}


def test_structured_output_cut_by_the_limit(start_node: Any) -> None:
    node = start_node(Told((Delta(0, (1,), '{"ok":'),), FinishReason.LENGTH))
    with pytest.raises(openai.LengthFinishReasonError):
        client_of(node).chat.completions.parse(**ASK, response_format=Verdict)


def test_several_answers(node: Any) -> None:
    reply = client_of(node).chat.completions.create(**ASK, n=3)
    assert [(choice.index, choice.message.content) for choice in reply.choices] == [
        (index, "2+3 and 7-1?") for index in range(3)
    ]
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (7, 12)


def test_several_answers_in_a_stream(node: Any) -> None:
    options: Any = {"include_usage": True}
    stream = client_of(node).chat.completions.create(**ASK, n=3, stream=True, stream_options=options)
    *chunks, last = list(stream)
    assert last.usage is not None
    assert last.usage.completion_tokens == 12
    for index in range(3):
        mine = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert "".join(choice.delta.content or "" for choice in mine) == "2+3 and 7-1?"
        assert [choice.finish_reason for choice in mine].count("stop") == 1


def test_one_of_several_answers_that_fails_ends_them_all(start_node: Any) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        yield Delta(0, (1,), "half")
        if request.choice == 1:
            yield Failed(EngineError("stage 1 is gone").report())
        else:
            yield Delta(1, (2,), " more")
            yield Finished(FinishReason.STOP, Usage(7, 3))

    node = start_node(script)
    with pytest.raises(openai.InternalServerError, match="stage 1 is gone"):
        client_of(node).chat.completions.create(**ASK, n=3)
    with pytest.raises(openai.APIError, match="stage 1 is gone"):
        list(client_of(node).chat.completions.create(**ASK, n=3, stream=True))


LIKELY = TokenLogprobs(
    Likelihood(1, "né", (110, 195, 169), -0.25),
    (Likelihood(1, "né", (110, 195, 169), -0.25), Likelihood(2, "n", (110,), -1.5)),
)


def test_log_probabilities(start_node: Any) -> None:
    node = start_node(Told((Delta(0, (1,), "né", logprobs=(LIKELY,)),)))
    reply = client_of(node).chat.completions.create(**ASK, logprobs=True, top_logprobs=2)
    with client_of(node).chat.completions.stream(**ASK, logprobs=True, top_logprobs=2) as stream:
        streamed = stream.get_final_completion()
    for logprobs in (reply.choices[0].logprobs, streamed.choices[0].logprobs):
        assert logprobs is not None
        (token,) = logprobs.content or []
        assert (token.token, token.logprob, token.bytes) == ("né", -0.25, [110, 195, 169])
        assert [top.token for top in token.top_logprobs] == ["né", "n"]
    assert {request.top_logprobs for request in node.generator.requests} == {2}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"n": 17}, "n"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "div"}}, "tools": TOOLS},
            "tool_choice.function.name",
        ),
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_wrong_is_named(node: Any, change: dict[str, Any], param: str, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        client_of(node).chat.completions.create(**ASK, **change, stream=stream)
    assert refusal.value.param == param


async def echo(request: Request) -> AsyncIterator[Event]:
    yield Started(3)
    yield Delta(0, (1,), f" after {request.raw_prompt}", logprobs=(LIKELY,) if request.top_logprobs else ())
    yield Finished(FinishReason.LENGTH, Usage(3, 1))


def test_legacy_completions(start_node: Any) -> None:
    client = client_of(start_node(echo))
    reply = client.completions.create(model=MODEL, prompt=["one", "two"], echo=True)
    assert [choice.text for choice in reply.choices] == ["one after one", "two after two"]
    assert [choice.finish_reason for choice in reply.choices] == ["length", "length"]
    assert reply.usage is not None
    assert reply.usage.total_tokens == 8
    logprobs = client.completions.create(model=MODEL, prompt="one", logprobs=2).choices[0].logprobs
    assert logprobs is not None
    assert (logprobs.tokens, logprobs.text_offset) == (["né"], [0])
    assert logprobs.top_logprobs == [{"né": -0.25, "n": -1.5}]


def test_legacy_completions_in_a_stream(start_node: Any) -> None:
    chunks = list(client_of(start_node(echo)).completions.create(model=MODEL, prompt="one", n=2, stream=True))
    for index in range(2):
        assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices[0].index == index) == " after one"


def test_legacy_completions_fail_as_chats_do(start_node: Any) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        yield Delta(0, (1,), "half")
        yield Failed(EngineError("stage 1 is gone").report())

    client = client_of(start_node(script))
    with pytest.raises(openai.InternalServerError, match="stage 1"):
        client.completions.create(model=MODEL, prompt="one")
    with pytest.raises(openai.APIError, match="stage 1"):
        list(client.completions.create(model=MODEL, prompt="one", stream=True))
    with pytest.raises(openai.BadRequestError, match="suffix"):
        client.completions.create(model=MODEL, prompt="one", suffix="end")
