"""Faults that users of such systems really met (the case's number is in each name), on the chat route of a real ring."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from end_to_end.cluster import EMBEDDED_MODEL, RealCluster, real_cluster
from end_to_end.conftest import sdk

REPLACEMENT = "\ufffd"


def body(**more: Any) -> dict[str, Any]:
    return {
        "model": EMBEDDED_MODEL,
        "messages": [{"role": "user", "content": "Tell me a long story about a ship."}],
        "temperature": 0,
        "max_tokens": 20,
    } | more


def post(url: str, content: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{url}/v1/chat/completions", json=content, timeout=90)


def answer(url: str, **more: Any) -> dict[str, Any]:
    response = post(url, body(**more))
    assert response.status_code == 200, response.text
    return response.json()


def chunks(url: str, **more: Any) -> list[dict[str, Any]]:
    """The chunks of a stream, which must end with [DONE] and hold valid UTF-8 alone."""
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body(stream=True, **more), timeout=90) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        raw = b"".join(response.iter_bytes())
    events = [event for event in raw.decode("utf-8", errors="strict").split("\n\n") if event.startswith("data: ")]
    data = [event.removeprefix("data: ") for event in events]
    assert data.count("[DONE]") == 1
    assert data[-1] == "[DONE]"
    return [json.loads(each) for each in data[:-1]]


def text_of(stream: list[dict[str, Any]]) -> str:
    return "".join(choice["delta"].get("content") or "" for chunk in stream for choice in chunk["choices"])


def error_of(response: httpx.Response) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert "Traceback" not in response.text
    return error


class TestT1Characters:
    EMOJI = ({"role": "user", "content": "Repeat this: " + "🦄 " * 20},)
    WHOLE = 13 * 3
    """A unicorn is three tokens of this model."""

    def test_joined_deltas_equal_the_whole_text_without_broken_characters(self, three_stages: RealCluster) -> None:
        url = three_stages[0].url
        whole = answer(url, messages=self.EMOJI, max_tokens=self.WHOLE)["choices"][0]["message"]["content"]
        streamed = chunks(url, messages=self.EMOJI, max_tokens=self.WHOLE)
        assert text_of(streamed) == whole
        assert REPLACEMENT not in text_of(streamed)

    @pytest.mark.parametrize("limit", range(1, 7))
    def test_an_answer_cut_in_the_middle_of_a_character_is_the_same_both_ways(
        self, three_stages: RealCluster, limit: int
    ) -> None:
        url = three_stages[0].url
        whole = answer(url, messages=self.EMOJI, max_tokens=limit)["choices"][0]["message"]["content"]
        assert text_of(chunks(url, messages=self.EMOJI, max_tokens=limit)) == whole


class TestT7Chunks:
    def test_a_stream_has_one_id_one_role_and_one_finish_reason(self, three_stages: RealCluster) -> None:
        stream = chunks(three_stages[0].url)
        assert len({chunk["id"] for chunk in stream}) == 1
        assert len({chunk["model"] for chunk in stream}) == 1
        (created,) = {chunk["created"] for chunk in stream}
        assert isinstance(created, int)
        assert {chunk["object"] for chunk in stream} == {"chat.completion.chunk"}
        choices = [choice for chunk in stream for choice in chunk["choices"]]
        assert [choice["delta"].get("role") for choice in choices].count("assistant") == 1
        assert choices[0]["delta"]["role"] == "assistant"
        assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["length"]
        assert all(chunk.get("usage") is None for chunk in stream)

    def test_usage_comes_on_one_last_chunk_when_it_is_asked_for(self, three_stages: RealCluster) -> None:
        *before, last = chunks(three_stages[0].url, stream_options={"include_usage": True})
        assert last["choices"] == []
        usage = last["usage"]
        assert usage["completion_tokens"] == 20
        assert usage["total_tokens"] == usage["prompt_tokens"] + 20
        assert all(chunk["usage"] is None for chunk in before)

    def test_the_sdk_stream_helper_reads_it(self, three_stages: RealCluster) -> None:
        question = body(messages=[{"role": "user", "content": "What is the capital of France?"}], max_tokens=60)
        with sdk(three_stages[0].url).chat.completions.stream(**question) as stream:
            final = stream.get_final_completion()
        assert final.choices[0].message.role == "assistant"
        assert final.choices[0].finish_reason == "stop"


class TestP3Parameters:
    OPTIONAL = (
        *("temperature", "top_p", "stop", "seed", "tools", "tool_choice", "response_format", "stream_options", "user"),
        *("n", "max_completion_tokens", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs"),
        *("top_logprobs", "top_k", "min_p", "metadata", "store", "parallel_tool_calls", "reasoning_effort"),
    )

    def test_null_is_as_if_absent(self, three_stages: RealCluster) -> None:
        url = three_stages[0].url
        content = body(**dict.fromkeys(self.OPTIONAL), max_tokens=2)
        assert post(url, content).status_code == 200

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("temperature", -0.5),
            ("temperature", 99),
            ("temperature", "hot"),
            ("top_p", 0),
            ("top_p", 2),
            ("stop", 5),
            ("stop", [1]),
            ("messages", "hello"),
            ("max_tokens", 0),
            ("max_tokens", -1),
            ("max_tokens", 1.5),
            ("max_completion_tokens", "5"),
            ("n", 0),
            ("top_logprobs", 21),
            ("seed", "lucky"),
        ],
    )
    @pytest.mark.parametrize("stream", [False, True])
    def test_a_bad_value_is_refused_by_name(
        self, three_stages: RealCluster, name: str, value: object, stream: bool
    ) -> None:
        response = post(three_stages[0].url, body(stream=stream, **{name: value}))
        assert response.status_code == 400
        error = error_of(response)
        assert error["param"].startswith(name)
        assert name in error["message"]
        assert error["type"] == "invalid_request_error"


class TestP10Messages:
    @pytest.mark.parametrize("messages", [[], None, [{}], [{"role": "user"}], "absent"])
    def test_messages_that_say_nothing_are_refused(self, three_stages: RealCluster, messages: Any) -> None:
        content = body(messages=messages)
        if messages == "absent":
            del content["messages"]
        response = post(three_stages[0].url, content)
        assert response.status_code == 400
        assert "messages" in error_of(response)["param"]

    @pytest.mark.parametrize(
        "messages",
        [
            [{"role": "user", "content": ""}],
            [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
        ],
    )
    def test_empty_text_and_a_last_word_of_the_assistant_are_answered_or_refused_in_words(
        self, three_stages: RealCluster, messages: Any
    ) -> None:
        response = post(three_stages[0].url, body(messages=messages, max_tokens=2))
        assert response.status_code in (200, 400)
        if response.status_code == 400:
            error_of(response)


class TestP11Names:
    @pytest.mark.parametrize("name", ["no-such-model", "", None, "HuggingFaceTB", "smollm2", "../../etc/passwd"])
    @pytest.mark.parametrize("stream", [False, True])
    def test_an_unknown_model_is_not_found_and_nothing_is_loaded(
        self, three_stages: RealCluster, name: str | None, stream: bool
    ) -> None:
        before = [view.id for view in three_stages[0].snapshot().placements]
        response = httpx.post(
            f"{three_stages[0].url}/v1/chat/completions", json=body(model=name, stream=stream), timeout=10
        )
        assert response.status_code == 404
        error = error_of(response)
        assert error["code"] == "model_not_found"
        assert EMBEDDED_MODEL in error["message"]
        assert [view.id for view in three_stages[0].snapshot().placements] == before

    @pytest.mark.parametrize(
        "name", [EMBEDDED_MODEL.lower(), EMBEDDED_MODEL.partition("/")[2], "smollm2-135m-instruct"]
    )
    def test_letter_case_and_the_owner_may_be_left_out_and_the_answer_says_the_full_id(
        self, three_stages: RealCluster, name: str
    ) -> None:
        assert answer(three_stages[0].url, model=name, max_tokens=1)["model"] == EMBEDDED_MODEL


class TestH11Errors:
    def test_bad_json(self, three_stages: RealCluster) -> None:
        response = httpx.post(f"{three_stages[0].url}/v1/chat/completions", content=b'{"model": ')
        assert response.status_code == 400
        assert error_of(response)["type"] == "invalid_request_error"

    def test_unknown_route_and_wrong_method(self, three_stages: RealCluster) -> None:
        unknown = httpx.get(f"{three_stages[0].url}/v1/no/such/thing")
        assert unknown.status_code == 404
        assert (error_of(unknown)["type"], error_of(unknown)["code"]) == ("Not Found", 404)
        wrong = httpx.get(f"{three_stages[0].url}/v1/chat/completions")
        assert wrong.status_code == 405
        assert "POST" in wrong.headers["allow"]
        assert error_of(wrong)["code"] == 405

    def test_the_sdk_raises_the_exception_that_fits(self, three_stages: RealCluster) -> None:
        client = sdk(three_stages[0].url)
        with pytest.raises(openai.NotFoundError) as missing:
            client.chat.completions.create(**body(model="no-such-model"))
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as bad:
            client.chat.completions.create(**body(temperature=99))
        assert bad.value.param == "temperature"


@pytest.fixture(scope="module")
def edited(
    cache: Path, edited_models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Generator[RealCluster]:
    """A node that offers copies of the model, each with one thing changed."""
    directories = [argument for path in edited_models.values() for argument in ("--model-dir", str(path))]
    with real_cluster(tmp_path_factory.mktemp("edited"), 1, ("--cache", str(cache), *directories)) as running:
        yield running


@pytest.fixture
def only_one_model(edited: RealCluster) -> Generator[RealCluster]:
    yield edited
    for placement in edited[0].snapshot().placements:
        httpx.delete(f"{edited[0].url}/v1/placements/{placement.id}", timeout=30)


class TestP7Context:
    MODEL = "local/short-context"
    CONTEXT = 512

    def prompt(self, url: str, tokens: int) -> list[dict[str, str]]:
        """A prompt of exactly so many tokens: each further word costs one."""
        little = answer(url, model=self.MODEL, messages=[{"role": "user", "content": "go"}], max_tokens=1)
        words = tokens - little["usage"]["prompt_tokens"]
        return [{"role": "user", "content": "go" + " go" * words}]

    @pytest.mark.parametrize("stream", [False, True])
    def test_a_prompt_over_the_context_is_refused_with_both_sizes(
        self, only_one_model: RealCluster, stream: bool
    ) -> None:
        url = only_one_model[0].url
        messages = self.prompt(url, self.CONTEXT + 200)
        response = post(url, body(model=self.MODEL, messages=messages, stream=stream))
        assert response.status_code == 400
        error = error_of(response)
        assert error["code"] == "context_length_exceeded"
        assert str(self.CONTEXT) in error["message"]
        assert str(self.CONTEXT + 200) in error["message"]

    def test_an_answer_ends_at_the_context(self, only_one_model: RealCluster) -> None:
        url = only_one_model[0].url
        messages = self.prompt(url, self.CONTEXT - 5)
        never_ends = {"0": -100, "2": -100}  # the model's end tokens
        ended = answer(url, model=self.MODEL, messages=messages, max_tokens=100, logit_bias=never_ends)
        assert ended["usage"]["prompt_tokens"] == self.CONTEXT - 5
        assert ended["choices"][0]["finish_reason"] == "length"
        assert ended["usage"]["completion_tokens"] == 5


class TestT14EndTokens:
    QUESTION = ({"role": "user", "content": "What is the capital of France?"},)

    def test_every_end_token_that_the_model_lists_ends_the_answer(self, only_one_model: RealCluster) -> None:
        url = only_one_model[0].url
        listed = answer(url, model="local/ends-early", messages=self.QUESTION, max_tokens=60)["choices"][0]
        assert listed["finish_reason"] == "stop"
        assert listed["message"]["content"] == "The capital of France is Paris"

    def test_the_end_token_of_the_tokenizer_counts_although_the_config_names_another(
        self, only_one_model: RealCluster
    ) -> None:
        url = only_one_model[0].url
        ended = answer(url, model="local/ends-elsewhere", messages=self.QUESTION, max_tokens=200)["choices"][0]
        assert ended["finish_reason"] == "stop"
        assert "<|im_end|>" not in ended["message"]["content"]


class TestF1Templates:
    @pytest.mark.parametrize("model", ["local/without-template", "local/broken-template"])
    def test_a_model_without_a_usable_template_is_refused_in_words_and_others_go_on(
        self, only_one_model: RealCluster, model: str
    ) -> None:
        url = only_one_model[0].url
        response = post(url, body(model=model))
        assert 400 <= response.status_code < 500, response.text
        assert "template" in error_of(response)["message"]
        assert answer(url, model="local/ends-elsewhere", max_tokens=1)["usage"]["completion_tokens"] == 1
