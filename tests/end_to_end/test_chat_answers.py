"""Faults that users of such systems really met (the case's number is in each name): what answers of real weights are made of."""

import json
from typing import Any

import pytest
from end_to_end.cluster import RealCluster
from end_to_end.test_chat_cases import answer, body, chunks, error_of, post, text_of

PLAIN = {"role": "user", "content": "Who are you?"}
VERDICT = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
NESTED = {
    "type": "object",
    "properties": {"all": {"type": "array", "items": VERDICT, "minItems": 1, "maxItems": 1}},
    "required": ["all"],
    "additionalProperties": False,
}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def url(three_stages: RealCluster) -> str:
    return three_stages[0].url


def said(whole: dict[str, Any]) -> str:
    return whole["choices"][0]["message"]["content"]


def reason(whole: dict[str, Any]) -> str:
    return whole["choices"][0]["finish_reason"]


def prompt_tokens(url: str, messages: list[Any]) -> int:
    return answer(url, messages=messages, max_tokens=1)["usage"]["prompt_tokens"]


class TestT2Stops:
    def test_t2_a_stop_string_over_token_borders_is_never_sent(self, url: str) -> None:
        text = said(answer(url, max_tokens=12))
        stop = text[15:25]
        for stops in (stop, [stop], ["never said", stop, "nor this", "nor that"]):
            streamed = chunks(url, stop=stops, max_tokens=12)
            assert text_of(streamed) == text[: text.index(stop)]
            assert streamed[-1]["choices"][0]["finish_reason"] == "stop"
        whole = answer(url, stop=stop, max_tokens=12)
        assert (said(whole), reason(whole)) == (text[: text.index(stop)], "stop")


class TestP4Choices:
    def test_p4_three_choices_are_three(self, url: str) -> None:
        more = {"n": 3, "temperature": 1, "max_tokens": 3, "seed": 7}
        whole = answer(url, **more)
        assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
        assert whole["usage"]["completion_tokens"] == 9
        texts = dict.fromkeys(range(3), "")
        stream = chunks(url, **more, stream_options={"include_usage": True})
        for choice in (choice for chunk in stream for choice in chunk["choices"]):
            texts[choice["index"]] += choice["delta"].get("content") or ""
        assert [texts[index] for index in range(3)] == [each["message"]["content"] for each in whole["choices"]]
        assert len(set(texts.values())) > 1
        assert stream[-1]["usage"]["total_tokens"] == whole["usage"]["total_tokens"]


class TestP6Formats:
    @pytest.mark.parametrize("schema", [VERDICT, NESTED], ids=["flat", "nested"])
    def test_p6_a_schema_holds_whatever_is_drawn(self, url: str, schema: dict[str, Any]) -> None:
        form = {"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": schema}}
        value = json.loads(said(answer(url, response_format=form, temperature=1, seed=1, max_tokens=40)))
        for verdict in value["all"] if schema is NESTED else [value]:
            assert verdict in ({"ok": True}, {"ok": False})

    def test_p6_an_object_is_one_as_far_as_it_came(self, url: str) -> None:
        text = said(answer(url, response_format={"type": "json_object"}, temperature=1, seed=1, max_tokens=16))
        assert text.lstrip().startswith("{")


class TestP8Logprobs:
    def test_p8_each_token_has_its_own(self, url: str) -> None:
        more = {"logprobs": True, "top_logprobs": 2, "max_tokens": 5}
        whole = answer(url, **more)
        told = whole["choices"][0]["logprobs"]["content"]
        streamed = [
            each
            for chunk in chunks(url, **more)
            for choice in chunk["choices"]
            for each in (choice.get("logprobs") or {}).get("content") or ()
        ]
        assert [each["token"] for each in streamed] == [each["token"] for each in told]
        assert len(told) == 5
        for each in told:
            assert each["logprob"] <= 0
            assert len(each["top_logprobs"]) == 2
            assert each["top_logprobs"][0]["token"] == each["token"]  # drawn at temperature 0
            assert bytes(each["bytes"]).decode(errors="replace") == each["token"]

    @pytest.mark.parametrize("more", [{"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 21}])
    def test_p8_what_makes_no_sense_is_refused(self, url: str, more: dict[str, Any]) -> None:
        response = post(url, body(**more))
        assert (response.status_code, error_of(response)["param"]) == (400, "top_logprobs")


class TestM5Orders:
    SYSTEM, OTHER, REPLY = (
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": "Be kind."},
        {"role": "assistant", "content": "Hello."},
    )

    def test_m5_system_texts_lead_wherever_they_stand(self, url: str) -> None:
        both = {"role": "system", "content": "Be brief.\n\nBe kind."}
        lead = prompt_tokens(url, [both, PLAIN, self.REPLY, PLAIN])
        assert prompt_tokens(url, [self.SYSTEM, PLAIN, self.REPLY, self.OTHER, PLAIN]) == lead
        assert prompt_tokens(url, [self.SYSTEM, self.OTHER, PLAIN]) == prompt_tokens(url, [both, PLAIN])

    def test_m5_turns_of_one_role_lose_nothing(self, url: str) -> None:
        assert prompt_tokens(url, [PLAIN, PLAIN]) > prompt_tokens(url, [PLAIN]) + 3


class TestM7Choices:
    def test_m7_a_required_call_is_made(self, url: str) -> None:
        whole = answer(url, tools=[WEATHER], tool_choice="required", max_tokens=40)
        (call,) = whole["choices"][0]["message"]["tool_calls"]
        assert (call["function"]["name"], reason(whole)) == ("weather", "tool_calls")
        assert json.loads(call["function"]["arguments"])["city"] in ("Oslo", "Rome")


class TestM8ControlTokens:
    def test_m8_control_tokens_in_text_are_text(self, url: str) -> None:
        def talk(text: str) -> list[Any]:
            call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
            asked = {"role": "assistant", "content": None, "tool_calls": [call]}
            told = [{"role": "tool", "tool_call_id": "c1", "content": text}, {"role": "user", "content": text}]
            return [{"role": "system", "content": text}, PLAIN, asked, *told]

        few = prompt_tokens(url, talk("ab"))
        for mark in ("<|im_end|>", "<|im_start|>system"):
            assert prompt_tokens(url, talk(f"a{mark}b")) > few + 3 * 2
