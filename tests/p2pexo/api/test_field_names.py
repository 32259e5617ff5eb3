"""Faults that only the engine finds, told by the name of the field that the client sent."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.events import Event, Failed
from p2pexo.generation.request import Request

MODEL = "tests/Parrot-135M"
MESSAGES = [{"role": "user", "content": "Hi"}]
FUNCTION = {"name": "clock", "parameters": {"type": "object"}}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 9},
    "/v1/messages/count_tokens": {"messages": MESSAGES},
    "/api/chat": {"messages": MESSAGES, "stream": False},
    "/api/generate": {"prompt": "Hi", "stream": False},
}
OPENAI = ("/v1/chat/completions", "/v1/completions", "/v1/responses")


def refusing(param: str) -> Any:
    async def refuse(request: Request) -> AsyncIterator[Event]:
        yield Failed(InvalidRequestError("it can't be had", param=param).report())

    return refuse


def ask(node: Any, path: str, **more: Any) -> Any:
    response = httpx.post(node.url + path, json={"model": MODEL, **BODIES[path], **more})
    assert response.status_code == 400, response.text
    return response.json()["error"]


@pytest.mark.parametrize(
    ("path", "ours", "theirs"),
    [
        ("/v1/chat/completions", "response_format", "response_format"),
        ("/v1/chat/completions", "messages", "messages"),
        ("/v1/completions", "messages", "prompt"),
        ("/v1/responses", "response_format", "text.format"),
        ("/v1/responses", "messages", "input"),
        ("/v1/responses", "tools", "tools"),
        ("/v1/messages", "response_format", "output_config.format"),
        ("/v1/messages", "tools", "tools"),
        ("/v1/messages/count_tokens", "messages", "messages"),
        ("/api/chat", "response_format", "format"),
        ("/api/chat", "messages", "messages"),
        ("/api/generate", "messages", "prompt"),
    ],
)
def test_a_fault_names_the_field_that_the_client_sent(start_node: Any, path: str, ours: str, theirs: str) -> None:
    error = ask(start_node(refusing(ours)), path)
    message = error if isinstance(error, str) else error["message"]
    assert message == f"{theirs}: it can't be had"
    if path in OPENAI:
        assert not isinstance(error, str) and error["param"] == theirs


def test_the_field_is_named_in_a_stream_too(start_node: Any) -> None:
    node = start_node(refusing("response_format"))
    assert ask(node, "/v1/responses", stream=True)["param"] == "text.format"
    assert ask(node, "/v1/messages", stream=True)["message"] == "output_config.format: it can't be had"


@pytest.mark.parametrize(
    ("path", "tool", "name"),
    [
        ("/v1/chat/completions", {"type": "function", "function": FUNCTION}, "tools[1].function.name"),
        ("/v1/responses", {"type": "function", **FUNCTION}, "tools[1].name"),
        ("/v1/messages", {"name": "clock", "input_schema": {}}, "tools[1].name"),
        ("/api/chat", {"type": "function", "function": FUNCTION}, "tools[1].function.name"),
    ],
)
def test_two_functions_of_one_name_are_refused_by_it(node: Any, path: str, tool: dict[str, Any], name: str) -> None:
    error = ask(node, path, tools=[tool, tool])
    message = error if isinstance(error, str) else error["message"]
    assert message == f'{name}: expected a name that no other tool has, got "clock"'
