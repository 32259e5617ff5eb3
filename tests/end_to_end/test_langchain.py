"""LangChain's standard suites for chat models, through its own integrations, on a real ring of three nodes.

The small model neither decides to call a tool, nor ends a free text, nor copies Chinese. Where a standard test asks that
of it, the choice is forced, or the schema leaves it only a few words. Takes minutes, so it runs by ``make langchain`` alone.
"""

import os
from typing import Any, Literal, TypedDict

import pytest
from end_to_end.cluster import EMBEDDED_MODEL, RealCluster
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests, chat_models
from pydantic import BaseModel, SecretStr

pytestmark = pytest.mark.skipif(
    "P2PEXO_LANGCHAIN" not in os.environ, reason="takes minutes; run it by `make langchain`"
)

KEY = SecretStr("none")
LIMIT = 40
Setup = Literal["Who sleeps all day?", "Who is there?"]
Punchline = Literal["The cat.", "Nobody."]

# How the suite wants it said that a standard test is not for a model; where one can be forced, a test of our own does so.
ends_no_text = pytest.mark.xfail(reason="the small model doesn't end a free text in time", run=False)
decides_nothing = pytest.mark.xfail(reason="the small model doesn't decide to call a tool", run=False)
copies_nothing = pytest.mark.xfail(reason="the small model doesn't copy Chinese and Japanese", run=False)
chooses_no_tool = pytest.mark.xfail(reason="Ollama's API has no tool_choice, so no call can be forced", run=False)


class Joke(BaseModel):
    setup: Setup
    punchline: Punchline


class JokeDict(TypedDict):
    setup: Setup
    punchline: Punchline


def closed_joke_class(kind: str) -> Any:
    """In place of the suite's own jokes, whose texts are free."""
    schemas = {"pydantic": Joke, "typeddict": JokeDict, "json_schema": Joke.model_json_schema()}

    def check(joke: Any) -> None:
        if kind == "pydantic":
            assert isinstance(joke, Joke)
        else:  # of a stream also the parts, as far as they have come
            assert set(joke) <= {"setup", "punchline"}

    return schemas[kind], check


@tool
def get_weather(location: Literal["Paris"]) -> str:
    """The weather at a place."""
    return f"It is sunny in {location}."


class OnARing(ChatModelIntegrationTests):
    url: str

    @pytest.fixture(autouse=True)
    def _asks_the_second_node(self, three_stages: RealCluster) -> None:
        type(self).url = three_stages[1].url

    @pytest.fixture(autouse=True)
    def _closes_jokes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(chat_models, "_get_joke_class", closed_joke_class)

    @ends_no_text
    def test_structured_output_pydantic_2_v1(self, model: BaseChatModel) -> None: ...

    @ends_no_text
    def test_structured_output_optional_param(self, model: BaseChatModel) -> None: ...

    @decides_nothing
    def test_agent_loop(self, model: BaseChatModel) -> None: ...

    @copies_nothing
    def test_unicode_tool_call_integration(self, model: BaseChatModel, **_: Any) -> None: ...


class ForcesTools(OnARing):
    def test_forced_agent_loop(self, model: BaseChatModel) -> None:
        """The call is forced; what is made of its result is not."""
        question = HumanMessage("What is the weather in Paris?")
        call = model.bind_tools([get_weather], tool_choice="any").invoke([question])
        result = get_weather.invoke(call.tool_calls[0])
        assert isinstance(result, ToolMessage)
        assert result.content == "It is sunny in Paris."
        assert isinstance(model.bind_tools([get_weather]).invoke([question, call, result]), AIMessage)

    def test_forced_unicode_tool_call(self, model: BaseChatModel) -> None:
        """The names are the schema's, not copied from the question."""
        for name in ("你好啊集团", "こんにちは株式会社"):
            parameters = {"type": "object", "properties": {"name": {"enum": [name]}}, "required": ["name"]}
            customer = {"name": "customer", "description": "Creates a customer.", "parameters": parameters}
            asked = model.bind_tools([{"type": "function", "function": customer}], tool_choice="any")
            assert asked.invoke(f"Create {name}.").tool_calls[0]["args"] == {"name": name}


class TestChatCompletions(ForcesTools):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {
            "model": EMBEDDED_MODEL,
            "base_url": f"{self.url}/v1",
            "api_key": KEY,
            "temperature": 0,
            "max_tokens": LIMIT,
            "stream_usage": True,
        }


class TestResponses(TestChatCompletions):
    @property
    def chat_model_params(self) -> dict[str, Any]:
        return super().chat_model_params | {"use_responses_api": True}


class TestClaude(ForcesTools):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatAnthropic

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {
            "model": EMBEDDED_MODEL,
            "base_url": self.url,
            "api_key": KEY,
            "temperature": 0,
            "max_tokens": LIMIT,
        }


class TestOllama(OnARing):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOllama

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": EMBEDDED_MODEL, "base_url": self.url, "temperature": 0, "num_predict": LIMIT}

    @property
    def has_tool_choice(self) -> bool:
        return False

    @chooses_no_tool
    def test_tool_calling(self, model: BaseChatModel) -> None: ...

    @chooses_no_tool
    async def test_tool_calling_async(self, model: BaseChatModel) -> None: ...

    @chooses_no_tool
    def test_tool_calling_with_no_arguments(self, model: BaseChatModel) -> None: ...

    @chooses_no_tool
    def test_bind_runnables_as_tools(self, model: BaseChatModel) -> None: ...
