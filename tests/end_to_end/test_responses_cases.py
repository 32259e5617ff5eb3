"""Faults that users of such systems really met (the case's number is in each name), on the Responses route of a real ring."""

import json
from typing import Any

import httpx
import openai
import pytest
from end_to_end.cluster import EMBEDDED_MODEL, RealCluster
from openai import OpenAI
from pydantic import BaseModel

PIXEL = "data:image/png;base64,iVBORw0KGgo="
STORY = "My name is Zebulon and I live in a lighthouse on a small island in the north. Say hello."
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


class Verdict(BaseModel):
    ok: bool


def client(cluster: RealCluster, node: int = 0) -> OpenAI:
    return OpenAI(base_url=f"{cluster[node].url}/v1", api_key="none", max_retries=0, timeout=120)


def post(cluster: RealCluster, node: int = 0, **more: Any) -> httpx.Response:
    body = {"model": EMBEDDED_MODEL, "input": STORY, "temperature": 0, "max_output_tokens": 20} | more
    return httpx.post(f"{cluster[node].url}/v1/responses", json=body, timeout=120)


def respond(cluster: RealCluster, node: int = 0, **more: Any) -> dict[str, Any]:
    answer = post(cluster, node, **more)
    assert answer.status_code == 200, answer.text
    return answer.json()


def text_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] for part in item.get("content", ()))


def test_the_stream_has_the_text_of_the_whole(three_stages: RealCluster) -> None:
    whole = respond(three_stages)
    ask: Any = {"model": EMBEDDED_MODEL, "input": STORY, "temperature": 0, "max_output_tokens": 20, "stream": True}
    events: Any = list(client(three_stages, 1).responses.create(**ask))
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == text_of(whole)
    assert events[-1].response.usage.output_tokens == whole["usage"]["output_tokens"] == 20
    assert {event.response.id for event in events if hasattr(event, "response")} == {events[0].response.id}


def test_r1_a_conversation_goes_on_at_any_node(three_stages: RealCluster) -> None:
    first = respond(three_stages)
    second = respond(three_stages, node=2, input="And what is my name?", previous_response_id=first["id"])
    assert second["usage"]["input_tokens"] > first["usage"]["total_tokens"]
    assert httpx.get(f"{three_stages[1].url}/v1/responses/{first['id']}").json() == first


@pytest.mark.parametrize("stream", [False, True])
def test_r1_what_is_not_stored_is_never_ignored(three_stages: RealCluster, stream: bool) -> None:
    kept_out = respond(three_stages, store=False)["id"]
    for missing in (kept_out, kept_out[:-1], "resp_of_nobody"):
        answer = post(three_stages, previous_response_id=missing, stream=stream)
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "previous_response_not_found"
        assert missing in answer.json()["error"]["message"]


def test_r3_what_agents_send_is_taken(three_stages: RealCluster) -> None:
    history = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": '{"city":"Rome"}'},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "31 degrees"}]},
        {"role": "user", "content": "So?"},
    ]
    tools = [WEATHER, {"type": "custom", "name": "patch"}, {"type": "web_search"}, {"type": "mcp"}]
    respond(three_stages, input=history, tools=tools, tool_choice="none")
    refused = post(three_stages, input=[{"type": "telepathy"}])
    assert refused.status_code == 400
    assert "telepathy" in refused.json()["error"]["message"]


def test_m4_instructions_and_developer_items_render_as_one_system_block(three_stages: RealCluster) -> None:
    user = {"role": "user", "content": "Who are you?"}
    parted = respond(three_stages, instructions="Be brief.", input=[{"role": "developer", "content": "Be kind."}, user])
    joined = respond(three_stages, input=[{"role": "system", "content": "Be brief.\n\nBe kind."}, user])
    assert parted["usage"]["input_tokens"] == joined["usage"]["input_tokens"]
    assert text_of(parted) == text_of(joined)


def test_m7_a_required_call_is_made(three_stages: RealCluster) -> None:
    response: Any = client(three_stages).responses.create(
        model=EMBEDDED_MODEL, input="Is it warm?", tools=[WEATHER], tool_choice="required", max_output_tokens=60
    )
    (call,) = (item for item in response.output if item.type == "function_call")
    assert (call.name, json.loads(call.arguments)["city"] in ("Oslo", "Rome")) == ("weather", True)


@pytest.mark.parametrize("seed", range(3))
def test_p6_a_schema_is_kept(three_stages: RealCluster, seed: int) -> None:
    response = client(three_stages).responses.parse(
        model=EMBEDDED_MODEL,
        input="Is the sky blue?",
        text_format=Verdict,
        max_output_tokens=60,
        extra_body={"seed": seed},
    )
    assert isinstance(response.output_parsed, Verdict)


@pytest.mark.parametrize("stream", [False, True])
def test_p7_a_prompt_that_does_not_fit_is_refused(three_stages: RealCluster, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError, match="8192") as caught:
        client(three_stages).responses.create(
            model=EMBEDDED_MODEL, input="word " * 8400, truncation="auto", stream=stream
        )
    assert caught.value.code == "context_length_exceeded"


@pytest.mark.parametrize("model", ["no-such-model", "", None])
def test_p11_an_unknown_model_is_not_answered_by_another(three_stages: RealCluster, model: str | None) -> None:
    answer = post(three_stages, model=model)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert EMBEDDED_MODEL in answer.json()["error"]["message"]


def test_m9_a_picture_is_refused(three_stages: RealCluster) -> None:
    picture = [{"role": "user", "content": [{"type": "input_image", "image_url": PIXEL}]}]
    answer = post(three_stages, input=picture)
    assert answer.status_code == 400
    assert "pictures" in answer.json()["error"]["message"]
