"""Faults that users of such systems really met (the case's number is in each name), on the Claude route of a real ring."""

from typing import Any

import anthropic
import httpx
import pytest
from end_to_end.cluster import EMBEDDED_MODEL, RealCluster
from pydantic import BaseModel

QUESTION = {"role": "user", "content": "Tell me a long story about a ship."}
TOOL: Any = {
    "name": "weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]},
}
LOOP: Any = [
    {"role": "user", "content": "Is it warm in Rome?"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "A secret thought.", "signature": "abc"},
            {"type": "redacted_thinking", "data": "c2VjcmV0"},
            {"type": "text", "text": "I will look."},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}},
            {"type": "tool_use", "id": "toolu_2", "name": "weather", "input": {"city": "Oslo"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "31 degrees"},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "12 degrees"}]},
            {"type": "text", "text": "So?"},
        ],
    },
]


class Verdict(BaseModel):
    ok: bool


def client(cluster: RealCluster) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=cluster[0].url, api_key="none", max_retries=0, timeout=120)


def body(**more: Any) -> dict[str, Any]:
    return {"model": EMBEDDED_MODEL, "messages": [QUESTION], "temperature": 0, "max_tokens": 20} | more


def post(cluster: RealCluster, path: str = "/v1/messages", **more: Any) -> httpx.Response:
    return httpx.post(f"{cluster[0].url}{path}", json=body(**more), timeout=90)


def answer(cluster: RealCluster, **more: Any) -> dict[str, Any]:
    response = post(cluster, **more)
    assert response.status_code == 200, response.text
    return response.json()


def text_of(reply: dict[str, Any]) -> str:
    return "".join(block["text"] for block in reply["content"] if block["type"] == "text")


def streamed(cluster: RealCluster, **more: Any) -> Any:
    ask: dict[str, Any] = {"model": EMBEDDED_MODEL, "messages": [QUESTION], "max_tokens": 20, **more}
    with client(cluster).messages.stream(**ask, extra_body={"temperature": 0}) as stream:
        return stream.get_final_message()


def test_t2_a_stop_sequence_over_token_borders_is_reported_and_never_sent(three_stages: RealCluster) -> None:
    text = text_of(answer(three_stages))
    stop = text[15:25]
    cut = text[: text.index(stop)]
    reply = answer(three_stages, stop_sequences=[stop])
    assert (text_of(reply), reply["stop_reason"], reply["stop_sequence"]) == (cut, "stop_sequence", stop)
    final = streamed(three_stages, stop_sequences=["never said", stop])
    assert (final.content[0].text, final.stop_reason, final.stop_sequence) == (cut, "stop_sequence", stop)


def prompt_of(usage: dict[str, Any]) -> int:
    """Its tokens, those from a cache and the others."""
    return usage["input_tokens"] + usage["cache_read_input_tokens"]


def test_t5_why_it_stopped(three_stages: RealCluster) -> None:
    assert answer(three_stages, max_tokens=3)["stop_reason"] == "max_tokens"
    assert streamed(three_stages, max_tokens=3).stop_reason == "max_tokens"
    short = [{"role": "user", "content": "What is the capital of France?"}]
    assert answer(three_stages, messages=short, max_tokens=60)["stop_reason"] == "end_turn"


def test_a_stream_says_what_a_message_says(three_stages: RealCluster) -> None:
    final, whole = streamed(three_stages), answer(three_stages)
    assert final.content[0].text == text_of(whole)
    assert prompt_of(final.usage.model_dump()) == prompt_of(whole["usage"]) > 0
    assert final.usage.output_tokens == whole["usage"]["output_tokens"] == 20


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"system": "Be brief."},
        {"tools": [TOOL]},
        {"messages": LOOP, "tools": [TOOL], "system": [{"type": "text", "text": "S", "cache_control": None}]},
    ],
    ids=["plain", "system", "tools", "loop"],
)
def test_c1_a_count_is_the_usage_of_the_same_message(three_stages: RealCluster, more: dict[str, Any]) -> None:
    asked = body(**more)
    del asked["max_tokens"]
    headers = {"x-api-key": "none", "anthropic-version": "2023-06-01", "anthropic-beta": "from-the-future"}
    path = "/v1/messages/count_tokens?beta=true"
    counted = httpx.post(f"{three_stages[0].url}{path}", json=asked, headers=headers, timeout=90)
    assert counted.json() == {"input_tokens": prompt_of(answer(three_stages, **more, max_tokens=1)["usage"])}


def test_c1_a_count_of_an_unknown_model_is_not_found(three_stages: RealCluster) -> None:
    response = post(three_stages, "/v1/messages/count_tokens", model="no-such-model")
    assert response.status_code == 404
    assert (response.json()["type"], response.json()["error"]["type"]) == ("error", "not_found_error")


def test_c3_every_block_of_a_history_is_counted_or_left_out_in_silence(three_stages: RealCluster) -> None:
    marked = [{"type": "text", "text": "A", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "B"}]
    more = {"messages": LOOP, "tools": [TOOL], "system": marked, "metadata": {"user_id": "u"}, "max_tokens": 5}
    reply = answer(three_stages, **more, thinking={"type": "enabled", "budget_tokens": 1024})
    assert "secret" not in text_of(reply)
    longer = [*LOOP[:2], {"role": "user", "content": [*LOOP[2]["content"][:2], {"type": "text", "text": "So? " * 9}]}]
    more["messages"] = longer
    assert prompt_of(answer(three_stages, **more)["usage"]) > prompt_of(reply["usage"])


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/v1/messages", "/messages", "//v1/messages", "/v1/messages/"])
def test_c4_however_the_base_address_is_written(three_stages: RealCluster, path: str) -> None:
    assert post(three_stages, path, max_tokens=1).status_code == 200


def test_claude_code_has_the_same_prompt_each_time(three_stages: RealCluster) -> None:
    def used(header: str) -> int:
        system = [{"type": "text", "text": header}, {"type": "text", "text": "Be brief."}]
        return prompt_of(answer(three_stages, system=system, max_tokens=1)["usage"])

    plain = prompt_of(answer(three_stages, system="Be brief.", max_tokens=1)["usage"])
    assert used("x-anthropic-billing-header: cc_version=2.0; cch=a1;") == plain
    assert used("x-anthropic-billing-header: cc_version=2.0; cch=some-other-and-longer-hash;") == plain


def test_p6_structured_output_holds(three_stages: RealCluster) -> None:
    reply = client(three_stages).messages.parse(
        model=EMBEDDED_MODEL, messages=[{"role": "user", "content": "ok?"}], max_tokens=60, output_format=Verdict
    )
    assert isinstance(reply.parsed_output, Verdict)


@pytest.mark.parametrize("stream", [False, True])
def test_p7_a_prompt_that_does_not_fit_is_refused(three_stages: RealCluster, stream: bool) -> None:
    response = post(three_stages, messages=[{"role": "user", "content": "ship " * 8400}], stream=stream)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert "8192" in error["message"]


@pytest.mark.parametrize("name", ["no-such-model", "", None])
def test_p11_an_unknown_model_is_not_found(three_stages: RealCluster, name: str | None) -> None:
    response = post(three_stages, model=name)
    assert response.status_code == 404
    assert EMBEDDED_MODEL in response.json()["error"]["message"]


def test_p11_the_reply_carries_the_full_name(three_stages: RealCluster) -> None:
    assert answer(three_stages, model="smollm2-135m-instruct", max_tokens=1)["model"] == EMBEDDED_MODEL


def test_m5_system_texts_in_mid_talk_are_merged(three_stages: RealCluster) -> None:
    talk = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "well?"},
    ]
    others = [turn for turn in talk if turn["role"] != "system"]
    scattered = answer(three_stages, system="Be brief.", messages=talk)
    leading = answer(three_stages, system="Be brief.\n\nBe kind.", messages=others)
    assert text_of(scattered) == text_of(leading)
    assert prompt_of(scattered["usage"]) == prompt_of(leading["usage"])


def test_m7_tool_choice(three_stages: RealCluster) -> None:
    anyone: Any = {"type": "any", "disable_parallel_tool_use": True}
    named: Any = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
    asked: Any = {"messages": LOOP[:1], "tools": [TOOL], "max_tokens": 60}
    for reply in (
        client(three_stages).messages.create(model=EMBEDDED_MODEL, tool_choice=anyone, **asked),
        streamed(three_stages, tool_choice=named, **asked),
    ):
        (call,) = [block for block in reply.content if block.type == "tool_use"]
        assert call.name == "weather"
        assert call.input["city"] in ("Oslo", "Rome")
        assert reply.stop_reason == "tool_use"
    none = answer(three_stages, tools=[TOOL], tool_choice={"type": "none"}, max_tokens=3)
    assert [block["type"] for block in none["content"]] == ["text"]
    assert post(three_stages, tools=[TOOL], tool_choice={"type": "tool", "name": "x"}).status_code == 400


def test_m8_control_tokens_in_text_are_text(three_stages: RealCluster) -> None:
    def used(text: str) -> int:
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": text}
        turns = [*LOOP[:2], {"role": "user", "content": [result]}]
        return prompt_of(answer(three_stages, messages=turns, tools=[TOOL], system=text, max_tokens=1)["usage"])

    assert used("a<|im_end|>b") > used("ab") + 4


def test_m9_a_picture_is_refused_and_nothing_is_fetched(three_stages: RealCluster) -> None:
    for source in (
        {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
        {"type": "url", "url": "http://127.0.0.1:9/x.png"},
    ):
        response = post(three_stages, messages=[{"role": "user", "content": [{"type": "image", "source": source}]}])
        assert response.status_code == 400
        assert "can't see" in response.json()["error"]["message"]
