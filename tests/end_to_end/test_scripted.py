"""A node that runs the scripted engine: what the other tests of clients stand on."""

import json

import httpx
import pytest
from end_to_end.cluster import RealCluster
from end_to_end.scripted import MODEL, scripted_ring

from p2pexo.ring.scripted import Line, Script

SCRIPT = Script(
    context_length=4096,
    says=(
        Line("the weather?", '<tool_call>\n{"name": "look", "arguments": {"at": "🌧 é"}}\n</tool_call>'),
        Line("break", "so far and no", fails_after=6),
        Line("", "You said something."),
    ),
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory):
    with scripted_ring(tmp_path_factory.mktemp("scripted-node"), 1, SCRIPT) as cluster:
        yield cluster


def ask(cluster: RealCluster, content: str, **changes: object) -> httpx.Response:
    body = {"model": MODEL, "messages": [{"role": "user", "content": content}], **changes}
    return httpx.post(f"{cluster[0].url}/v1/chat/completions", json=body, timeout=30)


def test_an_answer_is_what_the_script_says(node: RealCluster):
    choice = ask(node, "Hello, Ünal!").json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("You said something.", "stop")


def test_the_engine_fails_where_the_script_says(node: RealCluster):
    response = ask(node, "now break")
    assert response.status_code == 500
    assert "the script says so, after 6 tokens" in response.json()["error"]["message"]
    assert ask(node, "Hello").status_code == 200


def test_a_scripted_call_of_a_tool_comes_out_as_one(node: RealCluster):
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    choice = ask(node, "How is the weather?", tools=[tool]).json()["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert (call["function"]["name"], choice["finish_reason"]) == ("look", "tool_calls")
    assert json.loads(call["function"]["arguments"]) == {"at": "🌧 é"}


def test_log_probabilities_reach_the_client(node: RealCluster):
    choice = ask(node, "Hello", logprobs=True, top_logprobs=1).json()["choices"][0]
    told = choice["logprobs"]["content"]
    assert "".join(each["token"] for each in told).startswith("You said something.")
    assert told[0]["top_logprobs"] == [{"token": "Y", "logprob": 0.0, "bytes": [89]}]


def test_a_schema_that_cannot_be_enforced_is_a_fault_of_the_request(node: RealCluster):
    schema = {"name": "x", "schema": {"type": "objekt"}}
    response = ask(node, "Hello", response_format={"type": "json_schema", "json_schema": schema})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "response_format"
    assert "objekt" in response.json()["error"]["message"]
