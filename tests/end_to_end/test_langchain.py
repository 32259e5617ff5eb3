"""LangChain's standard suites for chat models, through its own integrations, on a ring of three nodes.

Text that means something, such as the call of a tool, comes from a script. What grammars make of real weights is at the end.
"""

import json
from collections.abc import Generator
from typing import Any, Literal

import pytest
from end_to_end.cluster import EMBEDDED_MODEL, RealCluster
from end_to_end.scripted import MODEL, scripted_nodes
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests
from pydantic import BaseModel, SecretStr

from p2pexo.ring.scripted import Line, Script

pytestmark = [
    # One loop for all, since LangChain keeps its connections from test to test.
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore:.*not an async function"),
]

OTHER_MODEL = "local/other"
KEY = SecretStr("none")
GREETING = "Hello to you, and to your cat."
JOKE = {"setup": "Who sleeps all day? 🐈", "punchline": "The cat."}


def call(name: str, **arguments: Any) -> str:
    asked = json.dumps(arguments, ensure_ascii=False)
    return f'<tool_call>\n{{"name": "{name}", "arguments": {asked}}}\n</tool_call>'


SCRIPT = Script(
    context_length=4096,
    says=(
        Line("magic_function(3)? Use the tool.", call("magic_function", input=3)),
        Line("magic_function_no_args()? Use the tool.", call("magic_function_no_args")),
        Line("Pirate greeting.", call("greeting_generator", answer_style="Pirate")),
        Line("Hello!", call("magic_function", input=1)),
        Line("What is 3 + 4", call("my_adder_tool", a=3, b=4)),
        Line("San Francisco, CA?", call("get_weather", location="San Francisco, CA")),
        Line("technology company", call("unicode_customer", customer_name="你好啊集团", description="科技")),
        Line("Japanese company", call("unicode_customer", customer_name="こんにちは株式会社", description="会社")),
        Line("Think first.", f"<think>Is it the cat? {' '.join(['Yes.'] * 9)}</think>{GREETING}"),
        # Of the others the first that the schema, or the forced call, lets be said.
        Line("", GREETING),
        Line("no punchline.", json.dumps(JOKE | {"punchline": None})),
        *(
            Line("", json.dumps(JOKE, ensure_ascii=False)),
            Line("", call("Joke", **JOKE)),
            Line("", call("JokeDict", **JOKE)),
        ),
    ),
)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Generator[RealCluster]:
    folder = tmp_path_factory.mktemp("langchain")
    with scripted_nodes(folder, 3, SCRIPT, models=(MODEL, OTHER_MODEL)) as cluster:
        cluster.place(MODEL, min_stages=3)
        cluster.place(OTHER_MODEL, min_stages=2)
        yield cluster


class Standard(ChatModelIntegrationTests):
    url: str

    @pytest.fixture(autouse=True)
    def _asks_the_second_node(self, ring: RealCluster) -> None:
        type(self).url = ring[1].url

    @property
    def model_override_value(self) -> str:
        return OTHER_MODEL

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": MODEL, "base_url": self.url, "api_key": KEY}


class TestChatCompletions(Standard):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return super().chat_model_params | {"base_url": f"{self.url}/v1", "stream_usage": True}

    @property
    def supported_usage_metadata_details(self) -> Any:
        return {"invoke": ["reasoning_output"], "stream": ["reasoning_output"]}

    def invoke_with_reasoning_output(self, *, stream: bool = False) -> AIMessage:
        model = self.chat_model_class(**self.chat_model_params)
        if not stream:
            return model.invoke("Think first.")
        first, *others = model.stream("Think first.")
        return sum(others, first)


class TestResponses(TestChatCompletions):
    @property
    def chat_model_params(self) -> dict[str, Any]:
        return super().chat_model_params | {"use_responses_api": True}


class TestClaude(Standard):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatAnthropic

    @property
    def supports_json_mode(self) -> bool:
        return False  # the API has none

    @property
    def supports_anthropic_inputs(self) -> bool:
        return True


class TestOllama(Standard):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOllama

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": MODEL, "base_url": self.url}

    @property
    def has_tool_choice(self) -> bool:
        return False  # the API has none


@tool
def get_weather(location: Literal["Paris"]) -> str:
    """The weather at a place."""
    return f"It is sunny in {location}."


class Weather(BaseModel):
    sky: Literal["clear", "cloudy"]
    city: Literal["Oslo", "Rome"]


class TestRealWeights:
    """What a small model would hardly do by itself: a call, or a schema, that a grammar makes it write."""

    @pytest.fixture(params=["chat", "responses", "claude"])
    def model(self, request: pytest.FixtureRequest, three_stages: RealCluster) -> BaseChatModel:
        url = three_stages[1].url
        common: dict[str, Any] = {"model": EMBEDDED_MODEL, "api_key": KEY, "temperature": 0, "max_tokens": 40}
        if request.param == "claude":
            return ChatAnthropic(base_url=url, **common)
        return ChatOpenAI(base_url=f"{url}/v1", use_responses_api=request.param == "responses", **common)

    def test_a_forced_call_and_its_result(self, model: BaseChatModel) -> None:
        """The call is forced; what is made of its result is not."""
        question = HumanMessage("What is the weather in Paris?")
        asked = model.bind_tools([get_weather], tool_choice="any").invoke([question])
        result = get_weather.invoke(asked.tool_calls[0])
        assert isinstance(result, ToolMessage)
        assert result.content == "It is sunny in Paris."
        answered = model.bind_tools([get_weather]).invoke([question, asked, result], max_tokens=4)
        assert isinstance(answered, AIMessage)

    def test_a_schema(self, model: BaseChatModel) -> None:
        assert isinstance(model.with_structured_output(Weather).invoke("The weather in Rome?"), Weather)
