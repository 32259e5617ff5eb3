"""Every kind of error has a status, a type and a code. Pure."""

import json

import pytest

from p2pexo.api.errors import FAULTS, Label, RefusedError, answer_to, internal_error, openai_error
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
    answer = answer_to(
        RefusedError(401, "no key", Label("invalid_request_error", "invalid_api_key"), www_authenticate="B")
    )
    assert answer.headers == {"www-authenticate": "B"}


def test_an_unforeseen_error_tells_no_detail() -> None:
    assert internal_error().status == 500
