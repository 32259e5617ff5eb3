"""What LangChain makes of the Responses route."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from p2pexo.generation.events import Delta, Event, Finished, FinishReason, Started, ToolCallDelta, Usage
from p2pexo.generation.request import FormatKind, Request, Role, ToolMode

MODEL = "tests/Parrot-135M"


class Verdict(BaseModel):
    """A verdict."""

    ok: bool


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def chat(node: Any, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=MODEL, base_url=f"{node.url}/v1", api_key=SecretStr("none"), max_retries=0, use_responses_api=True, **more
    )


async def scripted(request: Request) -> AsyncIterator[Event]:
    """Calls the first tool it may call, gives JSON where JSON is wanted, and else repeats the last message."""
    yield Started(7)
    if request.tools and request.messages[-1].role is not Role.TOOL:
        yield Delta(0, (1,), "", reasoning="which city?")
        yield Delta(1, (2,), "", tool_calls=(ToolCallDelta(0, "call_1", request.tools[0].name, '{"city":'),))
        yield Delta(2, (3,), "", tool_calls=(ToolCallDelta(0, arguments='"Ulm"}'),))
        yield Finished(FinishReason.TOOL_CALLS, Usage(7, 3))
        return
    text = '{"ok": true}' if request.output_format.kind is FormatKind.JSON_SCHEMA else request.messages[-1].content
    yield Delta(0, (1,), text)
    yield Finished(FinishReason.STOP, Usage(7, 2))


@pytest.fixture
def model_node(start_node: Any) -> Any:
    return start_node(scripted)


def test_invoke_counts_tokens_and_names_the_end(model_node: Any) -> None:
    reply = chat(model_node, temperature=0.5).invoke([SystemMessage("be kind"), HumanMessage("hello")])
    assert reply.text == "hello"
    assert reply.usage_metadata is not None
    assert (reply.usage_metadata["input_tokens"], reply.usage_metadata["output_tokens"]) == (7, 2)
    assert model_node.generator.requests[0].messages[0].content == "be kind"


def test_a_stream_adds_up(model_node: Any) -> None:
    total: Any = None
    for chunk in chat(model_node).stream("hello"):
        total = chunk if total is None else total + chunk
    assert total.text == "hello"
    assert total.usage_metadata["total_tokens"] == 9


@pytest.mark.parametrize("streaming", [False, True])
def test_a_tool_loop_goes_round(model_node: Any, streaming: bool) -> None:
    model = chat(model_node, streaming=streaming).bind_tools([weather], tool_choice="weather")
    question = HumanMessage("How is the weather?")
    reply = model.invoke([question])
    assert isinstance(reply, AIMessage)
    (call,) = reply.tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Ulm"})
    assert model_node.generator.requests[0].tool_choice.mode is ToolMode.NAMED
    result = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
    assert model.invoke([question, reply, result]).text == "sunny in Ulm"
    said = model_node.generator.requests[1].messages
    assert [message.role for message in said] == [Role.USER, Role.ASSISTANT, Role.TOOL]
    assert said[1].tool_calls[0].id == said[2].tool_call_id == "call_1"


def test_structured_output(model_node: Any) -> None:
    assert chat(model_node).with_structured_output(Verdict, method="json_schema").invoke("ok?") == Verdict(ok=True)


def test_the_previous_response_is_taken_up(model_node: Any) -> None:
    model = chat(model_node, use_previous_response_id=True)
    first = model.invoke("one")
    model.invoke([HumanMessage("one"), first, HumanMessage("two")])
    assert [message.content for message in model_node.generator.requests[1].messages] == ["one", "one", "two"]
