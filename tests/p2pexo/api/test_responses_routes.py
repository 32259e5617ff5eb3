"""Responses over a real socket: the routes, and what the official OpenAI SDK makes of them."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from p2pexo.generation.errors import ContextLengthError, EngineError, OverloadedError
from p2pexo.generation.events import (
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    Started,
    ToolCallDelta,
    Usage,
)
from p2pexo.generation.request import Message, Request, Role

MODEL = "tests/Parrot-135M"
ASK: dict[str, Any] = {"model": MODEL, "input": "one two three"}
WEATHER: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def client_of(node: Any) -> OpenAI:
    return OpenAI(base_url=f"{node.url}/v1", api_key="none", max_retries=0)


def post(node: Any, **fields: Any) -> httpx.Response:
    return httpx.post(f"{node.url}/v1/responses", json={**ASK, **fields})


async def thinking_caller(request: Request) -> AsyncIterator[Event]:
    yield Started(7)
    yield Delta(0, (1,), "", reasoning="which city?")
    yield Delta(1, (2,), "Let me look.")
    yield Delta(2, (3,), "", tool_calls=(ToolCallDelta(0, "call_1", "weather"),))
    yield Delta(3, (4,), "", tool_calls=(ToolCallDelta(0, arguments='{"city":"Ulm"}'),))
    yield Finished(FinishReason.TOOL_CALLS, Usage(7, 4, reasoning_tokens=1))


async def cut_short(request: Request) -> AsyncIterator[Event]:
    yield Delta(0, (1,), "half")
    yield Finished(FinishReason.LENGTH, Usage(7, 1))


async def broken_in_the_middle(request: Request) -> AsyncIterator[Event]:
    yield Delta(0, (1,), "half")
    yield Failed(EngineError("stage 1 is gone").report())


class TestSdk:
    def test_create(self, node: Any) -> None:
        response = client_of(node).responses.create(**ASK)
        assert response.output_text == "one two three"
        assert (response.status, response.model) == ("completed", MODEL)
        assert response.usage is not None
        assert response.usage.total_tokens == 11

    def test_the_events_of_a_stream(self, node: Any) -> None:
        events = list(client_of(node).responses.create(**ASK, stream=True))
        assert events[0].type == "response.created"
        assert events[-1].type == "response.completed"
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert text == events[-1].response.output_text == "one two three"
        assert [event.sequence_number for event in events] == list(range(len(events)))

    def test_the_stream_helper_takes_reasoning_text_and_calls(self, start_node: Any) -> None:
        client = client_of(start_node(thinking_caller))
        with client.responses.stream(**ASK, tools=[WEATHER]) as stream:
            types = {event.type for event in stream}
            response: Any = stream.get_final_response()
        assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
        assert "response.function_call_arguments.done" in types
        assert json.loads(response.output[2].arguments) == {"city": "Ulm"}

    def test_parse(self, start_node: Any) -> None:
        class Answer(BaseModel):
            ok: bool

        async def script(request: Request) -> AsyncIterator[Event]:
            yield Delta(0, (1,), '{"ok":')
            yield Delta(1, (2,), " true}")
            yield Finished(FinishReason.STOP, Usage(7, 2))

        node = start_node(script)
        response = client_of(node).responses.parse(**ASK, text_format=Answer)
        assert response.output_parsed == Answer(ok=True)
        assert response.text is not None
        assert response.text.format is not None
        assert response.text.format.type == "json_schema"
        assert "ok" in node.generator.requests[0].output_format.schema

    @pytest.mark.parametrize("stream", [False, True])
    def test_what_was_cut_is_incomplete(self, start_node: Any, stream: bool) -> None:
        responses: Any = client_of(start_node(cut_short)).responses
        response = list(responses.create(**ASK, stream=True))[-1].response if stream else responses.create(**ASK)
        assert response.status == "incomplete"
        assert response.incomplete_details.reason == "max_output_tokens"

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize(
        ("failure", "error", "code"),
        [
            (ContextLengthError("9000 tokens, context 8192"), openai.BadRequestError, "context_length_exceeded"),
            (OverloadedError("full"), openai.InternalServerError, "overloaded"),
            (EngineError("NaN"), openai.InternalServerError, "500"),
        ],
    )
    def test_a_failure_before_the_first_token_has_its_true_status(
        self, start_node: Any, stream: bool, failure: Any, error: type[openai.APIStatusError], code: Any
    ) -> None:
        async def script(request: Request) -> AsyncIterator[Event]:
            yield Failed(failure.report())

        with pytest.raises(error, match=str(failure)) as caught:
            client_of(start_node(script)).responses.create(**ASK, stream=stream)
        assert caught.value.code == code

    def test_a_failure_in_mid_stream_raises(self, start_node: Any) -> None:
        stream = client_of(start_node(broken_in_the_middle)).responses.create(**ASK, stream=True)
        with pytest.raises(openai.APIError, match="stage 1 is gone"):
            list(stream)

    def test_it_is_read_again_and_deleted(self, node: Any) -> None:
        client = client_of(node)
        response = client.responses.create(**ASK, metadata={"a": "b"})
        assert client.responses.retrieve(response.id) == response
        client.responses.delete(response.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(response.id)


class TestConversations:
    @pytest.mark.parametrize("stream", [False, True])
    def test_the_previous_response_brings_inputs_and_outputs(self, node: Any, stream: bool) -> None:
        responses = client_of(node).responses
        first: Any = responses.create(**ASK, instructions="forget me", stream=stream)
        first_id = list(first)[-1].response.id if stream else first.id
        second = responses.create(model=MODEL, input="four", previous_response_id=first_id)
        responses.create(model=MODEL, input="five", previous_response_id=second.id)
        said = [(message.role, message.content) for message in node.generator.requests[-1].messages]
        assert said == [
            (Role.USER, "one two three"),
            (Role.ASSISTANT, "one two three"),
            (Role.USER, "four"),
            (Role.ASSISTANT, "four"),
            (Role.USER, "five"),
        ]
        assert second.previous_response_id == first_id

    def test_calls_and_thoughts_are_remembered(self, start_node: Any) -> None:
        node = start_node(thinking_caller)
        first = client_of(node).responses.create(**ASK, tools=[WEATHER])
        output = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
        post(node, input=[output], previous_response_id=first.id)
        user, assistant, tool = node.generator.requests[-1].messages
        assert user == Message(Role.USER, "one two three")
        assert (assistant.content, assistant.reasoning) == ("Let me look.", "which city?")
        assert [(call.id, call.arguments) for call in assistant.tool_calls] == [("call_1", '{"city":"Ulm"}')]
        assert tool == Message(Role.TOOL, "sunny", tool_call_id="call_1")

    def test_the_output_may_be_echoed_as_it_came(self, start_node: Any) -> None:
        node = start_node(thinking_caller)
        first = client_of(node).responses.create(**ASK)
        history: Any = [{"role": "user", "content": "one two three"}, *(item.model_dump() for item in first.output)]
        client_of(node).responses.create(model=MODEL, input=[*history, {"role": "user", "content": "go on"}])
        assert [message.role for message in node.generator.requests[-1].messages] == [
            Role.USER,
            Role.ASSISTANT,
            Role.USER,
        ]

    def test_an_item_reference_is_resolved(self, node: Any) -> None:
        first = post(node).json()
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        assert post(node, input=[reference, {"role": "user", "content": "x"}]).status_code == 200
        assert node.generator.requests[-1].messages[0] == Message(Role.ASSISTANT, "one two three")

    @pytest.mark.parametrize("stream", [False, True])
    def test_an_unknown_previous_response_is_named(self, node: Any, stream: bool) -> None:
        answer = post(node, previous_response_id="resp_nobody", stream=stream)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (404, "previous_response_not_found")
        assert error["param"] == "previous_response_id"
        assert "resp_nobody" in error["message"]
        assert not node.generator.requests

    @pytest.mark.parametrize("stream", [False, True])
    def test_what_is_not_to_be_stored_is_not_there(self, node: Any, stream: bool) -> None:
        answer = post(node, store=False, stream=stream)
        response_id = (
            json.loads(answer.text.split("data: ")[1].split("\n")[0])["response"]["id"]
            if stream
            else answer.json()["id"]
        )
        assert post(node, previous_response_id=response_id).status_code == 404
        assert httpx.get(f"{node.url}/v1/responses/{response_id}").status_code == 404

    def test_a_failed_response_is_not_stored(self, start_node: Any) -> None:
        node = start_node(broken_in_the_middle)
        created = json.loads(post(node, stream=True).text.split("data: ")[1].split("\n")[0])
        assert httpx.get(f"{node.url}/v1/responses/{created['response']['id']}").status_code == 404


class TestRefusals:
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"temperature": 99}, "temperature"),
            ({"input": []}, "input"),
            ({"input": [{"type": "telepathy"}]}, "input[0].type"),
            ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": PIXEL}]}]}, None),
            ({"background": True}, "background"),
        ],
    )
    def test_a_bad_field_is_named(self, node: Any, stream: bool, fields: dict[str, Any], param: str | None) -> None:
        answer = post(node, stream=stream, **fields)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == (param or "input[0].content[0].type")
        assert not node.generator.requests

    @pytest.mark.parametrize("model", ["no-such-model", "", None])
    def test_an_unknown_model_is_404(self, node: Any, model: str | None) -> None:
        answer = post(node, model=model)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")

    def test_variants_that_agents_send_are_taken(self, node: Any) -> None:
        answer = post(
            node,
            tools=[WEATHER, *({"type": kind} for kind in ("custom", "web_search", "namespace", "mcp"))],
            include=["reasoning.encrypted_content"],
            prompt_cache_key="k",
            store=False,
            input=[
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
                {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}", "status": "completed"},
                {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "sunny"}]},
                {"role": "user", "content": "so?"},
            ],
        )
        assert answer.status_code == 200
        assert [tool.name for tool in node.generator.requests[-1].tools] == ["weather"]

    @pytest.mark.parametrize("path", ["/responses", "/v1/v1/responses", "//v1/responses/"])
    def test_base_addresses_are_forgiven(self, node: Any, path: str) -> None:
        assert httpx.post(f"{node.url}{path}", json=ASK).status_code == 200
