"""The official SDKs of OpenAI, Anthropic and Ollama against a real ring of three nodes: what a user's program meets."""

import json
from collections.abc import Generator
from typing import Any

import anthropic
import ollama
import openai
import pytest
from end_to_end.cluster import EMBEDDED_MODEL, RealCluster
from end_to_end.conftest import sdk

STORY = "Tell me a story about a ship."
MESSAGES: list[Any] = [{"role": "user", "content": STORY}]
VERDICT = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
JUDGE = {"name": "judge", "description": "Say whether it is good.", "parameters": VERDICT}
LIMIT = 16


def check_verdict(text: str) -> None:
    assert isinstance(json.loads(text)["ok"], bool)


class TestOpenAI:
    @pytest.fixture
    def client(self, three_stages: RealCluster) -> openai.OpenAI:
        return sdk(three_stages[1].url)

    def test_chat(self, client: openai.OpenAI) -> None:
        asked: dict[str, Any] = {"model": EMBEDDED_MODEL, "messages": MESSAGES, "max_tokens": LIMIT, "temperature": 0}
        whole = client.chat.completions.create(**asked)
        with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
            streamed = stream.until_done().current_completion_snapshot
        assert streamed.choices[0].message.content == whole.choices[0].message.content
        assert streamed.usage is not None
        assert whole.usage is not None
        assert streamed.usage.total_tokens == whole.usage.total_tokens

    def test_chat_with_a_forced_tool(self, client: openai.OpenAI) -> None:
        choice: Any = {"type": "function", "function": {"name": "judge"}}
        tools: Any = [{"type": "function", "function": JUDGE}]
        reply = client.chat.completions.create(
            model=EMBEDDED_MODEL, messages=MESSAGES, tools=tools, tool_choice=choice, temperature=0, max_tokens=60
        )
        (call,) = reply.choices[0].message.tool_calls or []
        assert call.type == "function"
        assert call.function.name == "judge"
        check_verdict(call.function.arguments)

    def test_chat_with_a_schema(self, client: openai.OpenAI) -> None:
        shape: Any = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": VERDICT, "strict": True}}
        reply = client.chat.completions.create(
            model=EMBEDDED_MODEL, messages=MESSAGES, response_format=shape, temperature=0, max_tokens=60
        )
        check_verdict(reply.choices[0].message.content or "")

    def test_responses(self, client: openai.OpenAI) -> None:
        asked: dict[str, Any] = {"model": EMBEDDED_MODEL, "input": STORY, "temperature": 0, "max_output_tokens": LIMIT}
        whole = client.responses.create(**asked)
        events = list(client.responses.create(**asked, stream=True))
        last = events[-1]
        assert last.type == "response.incomplete"
        assert last.response.output_text == whole.output_text
        assert last.response.usage == whole.usage

    def test_responses_with_a_forced_tool_and_with_a_schema(self, client: openai.OpenAI) -> None:
        asked: dict[str, Any] = {"model": EMBEDDED_MODEL, "input": STORY, "temperature": 0, "max_output_tokens": 60}
        choice: Any = {"type": "function", "name": "judge"}
        tool: Any = {"type": "function", **JUDGE}
        called = client.responses.create(**asked, tools=[tool], tool_choice=choice)
        (call,) = called.output
        assert call.type == "function_call"
        check_verdict(call.arguments)
        shape: Any = {"format": {"type": "json_schema", "name": "verdict", "schema": VERDICT, "strict": True}}
        check_verdict(client.responses.create(**asked, text=shape).output_text)

    def test_errors_before_the_stream_are_exceptions(self, client: openai.OpenAI) -> None:
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="no/such", messages=MESSAGES, stream=True)
        with pytest.raises(openai.BadRequestError):
            client.responses.create(model=EMBEDDED_MODEL, input=STORY, temperature=99, stream=True)


def asked_claude(**more: Any) -> dict[str, Any]:
    return {"model": EMBEDDED_MODEL, "messages": MESSAGES, "max_tokens": LIMIT} | more


class TestAnthropic:
    @pytest.fixture
    def client(self, three_stages: RealCluster) -> Generator[anthropic.Anthropic]:
        with anthropic.Anthropic(base_url=three_stages[1].url, api_key="none", max_retries=0) as client:
            yield client

    def test_messages(self, client: anthropic.Anthropic) -> None:
        whole = client.messages.create(**asked_claude(), extra_body={"temperature": 0})
        with client.messages.stream(**asked_claude(), extra_body={"temperature": 0}) as stream:
            streamed = stream.get_final_message()
        assert [block.text for block in streamed.content if block.type == "text"] == [
            block.text for block in whole.content if block.type == "text"
        ]
        assert streamed.usage.output_tokens == whole.usage.output_tokens == LIMIT
        counted = client.messages.count_tokens(model=EMBEDDED_MODEL, messages=MESSAGES)
        for usage in (whole.usage, streamed.usage):
            assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == counted.input_tokens

    def test_a_forced_tool(self, client: anthropic.Anthropic) -> None:
        tool: Any = {"name": "judge", "description": JUDGE["description"], "input_schema": VERDICT}
        choice: Any = {"type": "tool", "name": "judge"}
        asked = asked_claude(max_tokens=60)
        reply = client.messages.create(**asked, tools=[tool], tool_choice=choice)
        (call,) = reply.content
        assert call.type == "tool_use"
        assert reply.stop_reason == "tool_use"
        check_verdict(json.dumps(call.input))

    def test_a_schema(self, client: anthropic.Anthropic) -> None:
        shape: Any = {"format": {"type": "json_schema", "schema": VERDICT}}
        (block,) = client.messages.create(**asked_claude(max_tokens=60), output_config=shape).content
        assert block.type == "text"
        check_verdict(block.text)

    def test_errors_before_the_stream_are_exceptions(self, client: anthropic.Anthropic) -> None:
        with (
            pytest.raises(anthropic.NotFoundError),
            client.messages.stream(**asked_claude(model="no/such")),
        ):
            pass


class TestOllama:
    @pytest.fixture
    def client(self, three_stages: RealCluster) -> ollama.Client:
        return ollama.Client(host=three_stages[1].url, timeout=120)

    def test_chat(self, client: ollama.Client) -> None:
        options = {"temperature": 0, "num_predict": LIMIT}
        whole = client.chat(EMBEDDED_MODEL, MESSAGES, options=options)
        parts = list(client.chat(EMBEDDED_MODEL, MESSAGES, options=options, stream=True))
        assert "".join(part.message.content or "" for part in parts) == whole.message.content
        counts = (whole.prompt_eval_count, whole.eval_count)
        assert (parts[-1].prompt_eval_count, parts[-1].eval_count) == counts

    def test_a_schema(self, client: ollama.Client) -> None:
        reply = client.chat(EMBEDDED_MODEL, MESSAGES, format=VERDICT, options={"temperature": 0, "num_predict": 60})
        check_verdict(reply.message.content or "")

    def test_errors_before_the_stream_are_exceptions(self, client: ollama.Client) -> None:
        with pytest.raises(ollama.ResponseError) as error:
            list(client.chat("no/such", MESSAGES, stream=True))
        assert error.value.status_code == 404
