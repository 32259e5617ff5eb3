"""Faults that users of such systems really met (the case's number is in each name), on Ollama's routes of a real ring."""

import json
from typing import Any

import httpx
import ollama
import pytest
from end_to_end.cluster import EMBEDDED_MODEL, RealCluster
from pydantic import BaseModel

QUESTION = {"role": "user", "content": "Tell me a long story about a ship."}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class Verdict(BaseModel):
    ok: bool


def client(cluster: RealCluster) -> ollama.Client:
    return ollama.Client(host=cluster[0].url, timeout=120)


def body(options: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    options = {"temperature": 0, "num_predict": 20} | (options or {})
    return {"model": EMBEDDED_MODEL, "messages": [QUESTION], "options": options} | more


def post(cluster: RealCluster, path: str = "/api/chat", **more: Any) -> httpx.Response:
    return httpx.post(f"{cluster[0].url}{path}", json=body(**more), timeout=90)


def lines(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def answer(cluster: RealCluster, **more: Any) -> dict[str, Any]:
    (reply,) = lines(post(cluster, stream=False, **more))
    return reply


def text_of(stream: list[dict[str, Any]]) -> str:
    return "".join(line["message"]["content"] for line in stream)


def test_t2_a_stop_string_over_token_borders_is_never_sent(three_stages: RealCluster) -> None:
    text = answer(three_stages)["message"]["content"]
    stop = text[15:25]
    for stops in (stop, [stop], ["never said", stop]):
        told = lines(post(three_stages, options={"stop": stops}))
        assert text_of(told) == text[: text.index(stop)]
        assert [line.get("done_reason") for line in told] == [None] * (len(told) - 1) + ["stop"]


def test_t5_why_it_is_done(three_stages: RealCluster) -> None:
    assert answer(three_stages, options={"num_predict": 3})["done_reason"] == "length"
    short = [{"role": "user", "content": "What is the capital of France?"}]
    assert answer(three_stages, messages=short, options={"num_predict": -1})["done_reason"] == "stop"


def test_a_stream_says_what_one_object_says(three_stages: RealCluster) -> None:
    told, whole = lines(post(three_stages)), answer(three_stages)
    assert text_of(told) == whole["message"]["content"]
    assert all(line["message"]["role"] == "assistant" for line in told)
    assert (told[-1]["eval_count"], told[-1]["prompt_eval_count"]) == (20, whole["prompt_eval_count"])
    assert told[-1]["total_duration"] >= told[-1]["eval_duration"] > 0


def test_generate_is_a_chat_of_one_message_and_raw_is_none(three_stages: RealCluster) -> None:
    chat = answer(three_stages)
    (generated,) = lines(post(three_stages, "/api/generate", messages=None, prompt=QUESTION["content"], stream=False))
    assert generated["response"] == chat["message"]["content"]
    raw = {"messages": None, "prompt": "one two three four five six", "raw": True, "stream": False}
    (continued,) = lines(post(three_stages, "/api/generate", **raw))
    assert continued["prompt_eval_count"] < chat["prompt_eval_count"]
    assert continued["response"]


@pytest.mark.parametrize("form", ["json", Verdict.model_json_schema()], ids=["json", "schema"])
def test_p6_structured_output_holds(three_stages: RealCluster, form: Any) -> None:
    ask = [{"role": "user", "content": "Answer in JSON: is it ok?"}]
    reply = client(three_stages).chat(EMBEDDED_MODEL, ask, format=form, options={"temperature": 1, "num_predict": 30})
    text = reply.message.content or ""
    if form != "json":
        Verdict.model_validate_json(text)
    elif reply.done_reason == "stop":
        assert isinstance(json.loads(text), dict)
    else:
        assert text.lstrip().startswith("{")


@pytest.mark.parametrize("stream", [False, True])
def test_p7_a_prompt_that_does_not_fit_is_refused(three_stages: RealCluster, stream: bool) -> None:
    response = post(three_stages, messages=[{"role": "user", "content": "ship " * 8400}], stream=stream)
    assert response.status_code == 400
    assert "8192" in response.json()["error"]


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate", "/api/show", "/ollama/api/chat"])
def test_o5_an_unknown_model_is_not_found(three_stages: RealCluster, path: str) -> None:
    content = {"model": "no-such-model", "name": "no-such-model", "prompt": "hi"}
    response = httpx.post(f"{three_stages[0].url}{path}", json=content if path.endswith("show") else {"model": "no"})
    assert response.status_code == 404
    assert EMBEDDED_MODEL in response.json()["error"]


def test_m5_system_texts_in_mid_talk_are_merged(three_stages: RealCluster) -> None:
    hi, hello, well = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}, QUESTION
    brief, kind = {"role": "system", "content": "Be brief."}, {"role": "system", "content": "Be kind."}
    scattered = answer(three_stages, messages=[brief, hi, hello, kind, well])
    both = {"role": "system", "content": "Be brief.\n\nBe kind."}
    leading = answer(three_stages, messages=[both, hi, hello, well])
    for name in ("message", "prompt_eval_count"):
        assert scattered[name] == leading[name]


def test_m8_control_tokens_in_text_are_text(three_stages: RealCluster) -> None:
    def used(text: str) -> int:
        call = {"role": "assistant", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": text}}}]}
        turns = [QUESTION, call, {"role": "tool", "tool_name": "weather", "content": text}]
        return answer(three_stages, messages=turns, tools=[TOOL], options={"num_predict": 1})["prompt_eval_count"]

    assert used("a<|im_end|>b") > used("ab") + 4


def test_m9_a_picture_is_refused(three_stages: RealCluster) -> None:
    picture = "iVBORw0KGgo="
    for content in (
        {"messages": [QUESTION | {"images": [picture]}]},
        {"messages": None, "prompt": "x", "images": [picture]},
    ):
        path = "/api/chat" if content["messages"] else "/api/generate"
        response = post(three_stages, path, **content)
        assert response.status_code == 400
        assert "can't see" in response.json()["error"]


def test_tools_are_part_of_the_prompt(three_stages: RealCluster) -> None:
    few = {"num_predict": 1}
    with_tools = answer(three_stages, tools=[TOOL], options=few)["prompt_eval_count"]
    assert with_tools > answer(three_stages, options=few)["prompt_eval_count"]


def test_o4_editors_find_what_they_look_for(three_stages: RealCluster) -> None:
    shown = client(three_stages).show(EMBEDDED_MODEL)
    assert shown.modelinfo
    assert shown.modelinfo["llama.context_length"] == 8192
    assert shown.details
    assert shown.details.family == "llama"
    assert EMBEDDED_MODEL in [model.model for model in client(three_stages).list().models]
    assert shown.capabilities
    by_name = httpx.post(f"{three_stages[0].url}/api/show", json={"name": EMBEDDED_MODEL})
    assert by_name.json()["capabilities"] == shown.capabilities
    version = httpx.get(f"{three_stages[0].url}/api/version").json()["version"]
    assert tuple(map(int, version.split("."))) >= (0, 6, 4)
    head = httpx.head(three_stages[0].url)
    assert (head.status_code, head.content) == (200, b"")


def test_o1_a_placement_by_command_outlives_an_unload(three_stages: RealCluster) -> None:
    node = client(three_stages)
    for keep_alive in (-1, "5m", 300):
        assert node.generate(EMBEDDED_MODEL, keep_alive=keep_alive).done_reason == "load"
    assert node.chat(EMBEDDED_MODEL, [], keep_alive=0).done_reason == "unload"
    assert [model.model for model in node.ps().models] == [EMBEDDED_MODEL]
    with pytest.raises(ollama.ResponseError, match="keep_alive"):
        node.generate(EMBEDDED_MODEL, keep_alive="bad")
