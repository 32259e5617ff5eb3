"""What the official OpenAI SDK makes of our answers and errors."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from p2pexo.api.guard import AccessRules
from p2pexo.generation.errors import ContextLengthError, EngineError, OverloadedError
from p2pexo.generation.events import Delta, Event, Failed
from p2pexo.generation.request import Request

MODEL = "tests/Parrot-135M"
ASK: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "one two three"}]}


def client_of(node: Any, api_key: str = "none", max_retries: int = 0) -> OpenAI:
    return OpenAI(base_url=f"{node.url}/v1", api_key=api_key, max_retries=max_retries)


def test_a_completion(node: Any) -> None:
    reply = client_of(node).chat.completions.create(**ASK)
    assert reply.choices[0].message.content == "one two three"
    assert reply.usage is not None
    assert reply.usage.total_tokens == 11


def test_a_stream_with_usage(node: Any) -> None:
    stream = client_of(node).chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True})
    *chunks, last = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "one two three"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert last.usage is not None
    assert last.usage.completion_tokens == 4


def test_the_stream_helper(node: Any) -> None:
    with client_of(node).chat.completions.stream(**ASK) as stream:
        completion = stream.get_final_completion()
    message = completion.choices[0].message
    assert (message.role, message.content) == ("assistant", "one two three")
    assert completion.model == MODEL


def test_models(node: Any) -> None:
    client = client_of(node)
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody/nothing")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (ContextLengthError("9000 tokens, context 8192"), openai.BadRequestError),
        (OverloadedError("full"), openai.InternalServerError),
        (EngineError("NaN"), openai.InternalServerError),
    ],
)
def test_failures_raise_the_right_class(start_node: Any, stream: bool, failure: Any, error: type[Exception]) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        yield Failed(failure.report())

    with pytest.raises(error, match=str(failure)):
        client_of(start_node(script)).chat.completions.create(**ASK, stream=stream)


@pytest.mark.parametrize(
    ("change", "error", "param"),
    [
        ({"temperature": 99}, openai.BadRequestError, "temperature"),
        ({"model": "nope"}, openai.NotFoundError, "model"),
        ({"n": 99}, openai.BadRequestError, "n"),
    ],
)
def test_refusals_carry_the_param(node: Any, change: dict[str, Any], error: type[openai.APIError], param: str) -> None:
    with pytest.raises(error) as refusal:
        client_of(node).chat.completions.create(**{**ASK, **change})
    assert refusal.value.param == param


def test_a_failure_in_mid_stream_raises(start_node: Any) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        yield Delta(0, (1,), "half")
        yield Failed(EngineError("stage 1 is gone").report())

    stream = client_of(start_node(script)).chat.completions.create(**ASK, stream=True)
    with pytest.raises(openai.APIError, match="stage 1 is gone"):
        list(stream)


def test_an_engine_failure_is_not_tried_again(start_node: Any) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        yield Failed(EngineError("NaN").report())

    node = start_node(script)
    with pytest.raises(openai.InternalServerError):
        client_of(node, max_retries=2).chat.completions.create(**ASK)
    assert len(node.generator.requests) == 1


def test_the_api_key(start_node: Any) -> None:
    node = start_node(rules=AccessRules(api_key="secret"))
    assert client_of(node, api_key="secret").chat.completions.create(**ASK).id
    with pytest.raises(openai.AuthenticationError, match="API key is wrong"):
        client_of(node, api_key="guess").chat.completions.create(**ASK)
