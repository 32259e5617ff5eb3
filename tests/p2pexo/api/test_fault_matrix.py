"""Every fault, in every dialect, streamed or not, comes out as docs/errors.md says."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from errors_page import ROWS

from p2pexo.generation.errors import (
    ContextLengthError,
    EngineError,
    GenerationError,
    InsufficientMemoryError,
    OverloadedError,
    PlacementDeletedError,
    RingBrokenError,
    UnavailableError,
)
from p2pexo.generation.events import Delta, Event, Failed, Started
from p2pexo.generation.request import Request

MODEL = "tests/Parrot-135M"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}

ROUTES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", CHAT),
    "completions": ("/v1/completions", {"model": MODEL, "prompt": "hi"}),
    "responses": ("/v1/responses", {"model": MODEL, "input": "hi"}),
    "claude": ("/v1/messages", {**CHAT, "max_tokens": 9}),
    "ollama": ("/api/chat", CHAT),
}

FAILURES: list[tuple[GenerationError, int]] = [
    (ContextLengthError("too long"), 0),
    (EngineError("NaN"), 0),
    (EngineError("NaN"), 3),
    (OverloadedError("full"), 0),
    (UnavailableError("no leader"), 0),
    (InsufficientMemoryError("too big"), 0),
    (PlacementDeletedError("deleted"), 0),
    (PlacementDeletedError("deleted"), 3),
    (RingBrokenError("stage 1 is gone"), 0),
    (RingBrokenError("stage 1 is gone"), 3),
]
"""What fails, and after how many tokens."""


def failing(error: GenerationError, tokens: int) -> Any:
    async def script(request: Request) -> AsyncIterator[Event]:
        if tokens:
            yield Started(1)
        for index in range(tokens):
            yield Delta(index, (index,), f"word{index} ")
        yield Failed(error.report())

    return script


@pytest.fixture
def client(node: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=node.url) as client:
        yield client


def ask(client: httpx.Client, dialect: str, stream: bool, **changes: Any) -> httpx.Response:
    path, body = ROUTES[dialect]
    return client.post(path, json={**body, "stream": stream, **changes})


def check_error(dialect: str, kind: str, body: Any) -> None:
    row = ROWS[kind]
    match dialect:
        case "ollama":
            assert isinstance(body["error"], str)
            assert set(body) == {"error"}
        case "claude":
            assert (body["type"], body["error"]["type"]) == ("error", row.claude_type)
        case _:
            code = body["error"]["code"]
            assert (body["error"]["type"], None if code is None else str(code)) == (row.openai_type, row.openai_code)


def check_status(dialect: str, kind: str, answer: httpx.Response) -> None:
    row = ROWS[kind]
    assert answer.status_code == (row.claude_status if dialect == "claude" else row.status)
    check_error(dialect, kind, answer.json())


def error_in(dialect: str, text: str) -> Any:
    """The one error of a stream, after which nothing follows but what the page says."""
    if dialect == "ollama":
        *told, last = [json.loads(line) for line in text.splitlines()]
        assert not any(line["done"] or "error" in line for line in told)
        return last
    events = [event for event in text.split("\n\n") if event and not event.startswith(":")]
    payloads = [event.partition("data: ")[2] for event in events]
    if dialect == "claude":
        assert [event.startswith("event: error\n") for event in events].index(True) == len(events) - 1
        return json.loads(payloads[-1])
    if payloads[-1] == "[DONE]":
        payloads.pop()
    if dialect == "responses":
        assert json.loads(payloads.pop())["type"] == "response.failed"
    *told, last = [json.loads(payload) for payload in payloads]
    assert not any(part.get("error") for part in told)
    assert not any(choice["finish_reason"] for part in told for choice in part.get("choices", ()))
    return last


@pytest.mark.parametrize("dialect", ROUTES)
def test_what_is_wrong_with_a_request_has_its_status(node: Any, client: httpx.Client, dialect: str) -> None:
    hot = {"temperature": "hot"}
    for stream in (False, True):
        check_status(dialect, "model_not_found", ask(client, dialect, stream, model="no/such"))
        wrong = ask(client, dialect, stream, **({"options": hot} if dialect == "ollama" else hot))
        check_status(dialect, "invalid_request", wrong)
    check_status(dialect, "invalid_request", client.post(ROUTES[dialect][0], content=b'{"stream": true'))
    assert not node.generator.requests


@pytest.mark.parametrize("dialect", ROUTES)
def test_what_fails_is_told_as_the_page_says(node: Any, client: httpx.Client, dialect: str) -> None:
    for error, tokens in FAILURES:
        node.generator.script = failing(error, tokens)
        check_status(dialect, error.kind, ask(client, dialect, False))
        streamed = ask(client, dialect, True)
        if not tokens:
            check_status(dialect, error.kind, streamed)
            continue
        assert streamed.status_code == 200
        assert "word0" in streamed.text
        check_error(dialect, error.kind, error_in(dialect, streamed.text))
        assert error.message in streamed.text
