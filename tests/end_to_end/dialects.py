"""The same question in each of the four dialects, and what their answers say, however each of them says it."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
from attrs import frozen
from errors_page import ROWS

DIALECTS = ("chat", "responses", "claude", "ollama")

PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "claude": "/v1/messages",
    "ollama": "/api/chat",
}


def body(dialect: str, model: str, prompt: str, stream: bool, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    asked: dict[str, Any] = {"model": model, "stream": stream}
    match dialect:
        case "responses":
            asked |= {"input": prompt}
        case "claude":
            asked |= {"messages": messages, "max_tokens": 1000}
        case _:
            asked |= {"messages": messages}
    return asked | more


def text_of(dialect: str, whole: Any) -> str:
    """The text of an answer that was not streamed."""
    match dialect:
        case "chat":
            return whole["choices"][0]["message"]["content"]
        case "responses":
            return whole["output"][0]["content"][0]["text"]
        case "claude":
            return whole["content"][0]["text"]
        case _:
            return whole["message"]["content"]


@frozen
class Told:
    """What came of a stream."""

    text: str
    is_complete: bool
    error: Any = None


def told(dialect: str, raw: str) -> Told:
    """Raises AssertionError if there is more than one error, or anything after it that the page doesn't name."""
    payloads = list(_payloads(dialect, raw))
    text = "".join(piece_of(dialect, payload) for payload in payloads)
    error = _error(dialect, payloads)
    return Told(text, any(_is_end(dialect, payload) for payload in payloads), error)


def _payloads(dialect: str, raw: str) -> Iterator[Any]:
    if dialect == "ollama":
        yield from (json.loads(line) for line in raw.splitlines())
        return
    assert raw.endswith("\n\n")
    events = [event for event in raw.split("\n\n") if event and not event.startswith(":")]
    data = [event.partition("data: ")[2] for event in events]
    if dialect == "chat":
        assert data.pop() == "[DONE]"
    if dialect == "responses" and data[-1] == "[DONE]":
        data.pop()
    yield from (json.loads(each) for each in data)


def _error(dialect: str, payloads: list[Any]) -> Any:
    errors = [payload for payload in payloads if payload.get("type") == "error" or "error" in payload]
    if not errors:
        return None
    assert len(errors) == 1
    after = payloads[payloads.index(errors[0]) + 1 :]
    assert [each["type"] for each in after] == (["response.failed"] if dialect == "responses" else [])
    return errors[0]


def piece_of(dialect: str, payload: Any) -> str:
    """The text that one event or line brings."""
    match dialect:
        case "chat":
            return "".join(choice["delta"].get("content") or "" for choice in payload.get("choices", ()))
        case "responses":
            return payload["delta"] if payload["type"] == "response.output_text.delta" else ""
        case "claude":
            return payload["delta"].get("text", "") if payload["type"] == "content_block_delta" else ""
        case _:
            return payload.get("message", {}).get("content", "")


def _is_end(dialect: str, payload: Any) -> bool:
    match dialect:
        case "chat":
            return any(choice["finish_reason"] for choice in payload.get("choices", ()))
        case "responses":
            return payload["type"] in ("response.completed", "response.incomplete")
        case "claude":
            return payload["type"] == "message_stop"
        case _:
            return payload.get("done", False)


def check_error(dialect: str, kind: str, error: Any) -> None:
    """That an error, in a body or in a stream, is what the page says of its kind."""
    row = ROWS[kind]
    match dialect:
        case "ollama":
            assert set(error) == {"error"}
            assert isinstance(error["error"], str)
        case "claude":
            assert (error["type"], error["error"]["type"]) == ("error", row.claude_type)
            assert error["error"]["message"]
        case _:
            code = error["error"]["code"]
            assert (error["error"]["type"], code and str(code)) == (row.openai_type, row.openai_code)
            assert error["error"]["message"]


def check_status(dialect: str, kind: str, answer: httpx.Response) -> None:
    row = ROWS[kind]
    assert answer.status_code == (row.claude_status if dialect == "claude" else row.status), answer.text
    assert answer.headers["content-type"] == "application/json"
    check_error(dialect, kind, answer.json())
