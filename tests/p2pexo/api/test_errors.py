"""Every kind of error has a status, a type and a code. Pure."""

import json

import pytest

from p2pexo.api.dialects import Dialect, dialect_of
from p2pexo.api.errors import (
    FAULTS,
    WRONG_KEY,
    RefusedError,
    answer_to,
    claude_error,
    fault_of_status,
    internal_error,
    ollama_error,
    openai_error,
)
from p2pexo.generation.errors import ErrorReport, GenerationError, from_report


def all_kinds(cls: type[GenerationError] = GenerationError) -> set[str]:
    return {cls.kind}.union(*(all_kinds(sub) for sub in cls.__subclasses__()))


def test_the_table_knows_every_kind() -> None:
    assert set(FAULTS) == all_kinds()


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_every_error_is_the_same_in_a_body_and_in_a_stream(kind: str) -> None:
    report = ErrorReport(kind, "what happened", "field")
    answer = answer_to(from_report(report))
    assert json.loads(answer.body) == openai_error(report)
    assert json.loads(answer_to(from_report(report), Dialect.CLAUDE, "req_1").body) == claude_error(report, "req_1")
    assert json.loads(answer_to(from_report(report), Dialect.OLLAMA).body) == ollama_error(report)
    assert set(json.loads(answer.body)["error"]) == {"message", "type", "param", "code"}
    assert ("retry-after" in answer.headers) != ("x-should-retry" in answer.headers) or answer.status < 500


def test_an_unknown_kind_is_an_internal_error() -> None:
    assert answer_to(from_report(ErrorReport("from the future", "x"))).status == 500


def test_a_retry_time_of_the_error_itself_wins() -> None:
    assert answer_to(from_report(ErrorReport("overloaded", "x", retry_after_s=42))).headers == {"retry-after": "42"}


def test_a_context_overflow_is_a_400_with_its_code() -> None:
    answer = answer_to(from_report(ErrorReport("context_length_exceeded", "x")))
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, "context_length_exceeded")


def test_refusals_carry_their_headers() -> None:
    answer = answer_to(RefusedError(WRONG_KEY, "no key", www_authenticate="B"))
    assert answer.headers == {"www-authenticate": "B"}


def test_an_unforeseen_error_tells_no_detail() -> None:
    assert answer_to(internal_error()).status == 500


def test_claude_has_a_status_of_its_own_for_overload() -> None:
    report = ErrorReport("overloaded", "full")
    statuses = [answer_to(from_report(report), dialect, "req_1").status for dialect in Dialect]
    assert statuses == [503, 529, 503]
    assert claude_error(report, "req_1") == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "full"},
        "request_id": "req_1",
    }


@pytest.mark.parametrize(
    ("status", "phrase", "claude"),
    [
        (401, "Unauthorized", "authentication_error"),
        (403, "Forbidden", "permission_error"),
        (404, "Not Found", "not_found_error"),
        (405, "Method Not Allowed", "invalid_request_error"),
        (408, "Request Timeout", "timeout_error"),
        (418, "I'm a Teapot", "invalid_request_error"),
        (429, "Too Many Requests", "rate_limit_error"),
        (501, "Not Implemented", "api_error"),
    ],
)
def test_an_error_without_a_meaning_says_its_status(status: int, phrase: str, claude: str) -> None:
    fault = fault_of_status(status)
    assert (fault.openai.type, fault.openai.code, fault.claude) == (phrase, status, claude)


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/messages", Dialect.CLAUDE),
        ("/messages/", Dialect.CLAUDE),
        ("//v1/v1/messages/count_tokens", Dialect.CLAUDE),
        ("/v1/messages/no/such", Dialect.CLAUDE),
        ("/api/chat", Dialect.OLLAMA),
        ("/ollama/api/tags", Dialect.OLLAMA),
        ("/v1/chat/completions", Dialect.OPENAI),
        ("/v1/responses", Dialect.OPENAI),
        ("/nowhere", Dialect.OPENAI),
        ("/", Dialect.OPENAI),
    ],
)
def test_the_path_tells_the_dialect(path: str, dialect: Dialect) -> None:
    assert dialect_of(path) is dialect
