"""What the HTTP floor refuses by itself is told in the words of the dialect whose route was asked."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from p2pexo.api.guard import AccessRules

DIALECTS = {
    "openai": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "claude": "/v1/messages",
    "ollama": "/api/chat",
    "ollama below": "/ollama/api/chat",
}

REFUSALS: dict[str, tuple[str, str, dict[str, Any], int, str, str | int | None, str]] = {
    # by case: method, what is put behind the path, options; status, OpenAI's type and code, Claude's type
    "no such route": ("POST", "/no/such", {}, 404, "Not Found", 404, "not_found_error"),
    "wrong method": ("PUT", "", {}, 405, "Method Not Allowed", 405, "invalid_request_error"),
    "not JSON": ("POST", "", {"content": b"{"}, 400, "invalid_request_error", None, "invalid_request_error"),
    "not an object": ("POST", "", {"content": b"[]"}, 400, "invalid_request_error", None, "invalid_request_error"),
    "too large": (
        "POST",
        "",
        {"content": b" " * 5000},
        413,
        "invalid_request_error",
        "request_too_large",
        "request_too_large",
    ),
    "packed with br": (
        "POST",
        "",
        {"content": b"x", "headers": {"content-encoding": "br"}},
        415,
        "Unsupported Media Type",
        415,
        "invalid_request_error",
    ),
    "foreign host": (
        "POST",
        "",
        {"content": b"{}", "headers": {"host": "evil.example"}},
        403,
        "Forbidden",
        403,
        "permission_error",
    ),
    "unknown model": (
        "POST",
        "",
        {"json": {"model": "no/such", "messages": [{"role": "user", "content": "x"}], "prompt": "x", "input": "x"}},
        404,
        "invalid_request_error",
        "model_not_found",
        "not_found_error",
    ),
}


def answers(
    client: httpx.Client, dialect: str, method: str, behind: str, options: dict[str, Any]
) -> Iterator[httpx.Response]:
    """With and without a stream, where the body says so."""
    options = {"headers": {}, **options}
    url = f"{DIALECTS[dialect]}{behind}"
    if "json" not in options:
        yield client.request(method, url, **options)
        return
    wanted = {"responses": {"messages", "prompt"}, "completions": {"messages", "input"}}.get(
        dialect, {"prompt", "input"}
    )
    body = {name: value for name, value in options["json"].items() if name not in wanted}
    for stream in (False, True):
        limit = {"max_tokens": 5} if dialect == "claude" else {}
        yield client.request(method, url, json={**body, **limit, "stream": stream})


@pytest.mark.parametrize("dialect", DIALECTS)
def test_refusals_speak_the_dialect(start_node: Any, dialect: str) -> None:
    node = start_node(max_body_bytes=4096)
    with httpx.Client(base_url=node.url) as client:
        for case, (method, behind, options, status, openai, code, claude) in REFUSALS.items():
            for answer in answers(client, dialect, method, behind, options):
                assert answer.status_code == status, case
                assert answer.headers["content-type"] == "application/json", case
                assert ("allow" in answer.headers) == (status == 405), case
                check(dialect, answer, openai, code, claude)


def check(dialect: str, answer: httpx.Response, openai_type: str, code: str | int | None, claude_type: str) -> None:
    body = answer.json()
    if dialect == "claude":
        assert set(body) == {"type", "error", "request_id"}
        assert (body["type"], body["error"]["type"]) == ("error", claude_type)
        assert body["request_id"] == answer.headers["request-id"]
    elif dialect.startswith("ollama"):
        assert set(body) == {"error"}
        assert isinstance(body["error"], str)
    else:
        assert set(body["error"]) == {"message", "type", "param", "code"}
        assert (body["error"]["type"], body["error"]["code"]) == (openai_type, code)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_missing_key_is_told_in_the_dialect(start_node: Any, dialect: str) -> None:
    node = start_node(rules=AccessRules(api_key="secret"))
    answer = httpx.post(f"{node.url}{DIALECTS[dialect]}", json={})
    assert answer.status_code == 401
    error = answer.json()["error"]
    if dialect.startswith("ollama"):
        assert "API key" in error
    else:
        assert error["type"] == ("authentication_error" if dialect == "claude" else "invalid_request_error")
