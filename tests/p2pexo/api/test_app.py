"""The routes over a real socket, as a plain HTTP client sees them."""

import json
import threading
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import httpx
import pytest
import trio

from p2pexo.generation.errors import EngineError, InsufficientMemoryError, OverloadedError
from p2pexo.generation.events import Delta, Event, Failed, Finished, FinishReason, Usage, Waiting
from p2pexo.generation.request import Request

MODEL = "tests/Parrot-135M"


def body(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "one two three"}], **fields}


def chunks(text: str) -> list[str]:
    return [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]


def test_a_completion_carries_text_usage_and_the_full_model_id(node: Any) -> None:
    answer = httpx.post(f"{node.url}/v1/chat/completions", json=body(model="parrot-135m"))
    assert answer.status_code == 200
    reply = answer.json()
    assert reply["model"] == MODEL
    assert reply["id"].startswith("chatcmpl-")
    assert reply["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "one two three", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert reply["usage"]["total_tokens"] == 11


def test_a_stream_has_the_text_of_the_completion(node: Any) -> None:
    answer = httpx.post(f"{node.url}/v1/chat/completions", json=body(stream=True))
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, done = chunks(answer.text)
    assert done == "[DONE]"
    text = "".join(json.loads(each)["choices"][0]["delta"].get("content", "") for each in events)
    assert text == "one two three"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "status", "code", "header"),
    [
        (OverloadedError("busy", retry_after_s=9), 503, "overloaded", ("retry-after", "9")),
        (InsufficientMemoryError("too big"), 503, "insufficient_memory", ("x-should-retry", "false")),
        (EngineError("NaN"), 500, 500, ("x-should-retry", "false")),
    ],
)
def test_a_failure_before_the_first_token_has_its_true_status(
    start_node: Any, stream: bool, failure: Any, status: int, code: Any, header: tuple[str, str]
) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        yield Waiting("a moment")
        yield Failed(failure.report())

    answer = httpx.post(f"{start_node(script).url}/v1/chat/completions", json=body(stream=stream))
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert answer.json()["error"]["message"] == str(failure)
    assert answer.headers[header[0]] == header[1]


def test_a_failure_in_mid_stream_is_an_error_event_and_then_done(start_node: Any) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        yield Delta(0, (1,), "half")
        yield Failed(EngineError("stage 1 is gone").report())

    answer = httpx.post(f"{start_node(script).url}/v1/chat/completions", json=body(stream=True))
    assert answer.status_code == 200
    *_, error, done = chunks(answer.text)
    assert json.loads(error)["error"] == {
        "message": "stage 1 is gone",
        "type": "InternalServerError",
        "param": None,
        "code": 500,
    }
    assert done == "[DONE]"
    assert all(json.loads(each)["choices"][0]["finish_reason"] is None for each in chunks(answer.text)[:-2])


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_breaks_off_never_looks_complete(start_node: Any, stream: bool) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        yield Delta(0, (1,), "half")

    answer = httpx.post(f"{start_node(script).url}/v1/chat/completions", json=body(stream=stream))
    assert "broke off" in answer.text
    assert '"finish_reason":"stop"' not in answer.text
    assert answer.status_code == (200 if stream else 500)


def test_an_unforeseen_error_is_a_500_without_a_trace(start_node: Any) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        raise ZeroDivisionError("secret detail")
        yield

    answer = httpx.post(f"{start_node(script).url}/v1/chat/completions", json=body())
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "InternalServerError"
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


def test_headers_and_comments_come_while_the_first_token_does_not(start_node: Any) -> None:
    go_on = threading.Event()

    async def script(request: Request) -> AsyncIterator[Event]:
        yield Waiting("placing the\nmodel")
        await trio.to_thread.run_sync(go_on.wait)
        yield Delta(0, (1,), "late")
        yield Finished(FinishReason.LENGTH, Usage(3, 1))

    url = f"{start_node(script).url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body(stream=True), timeout=20) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        assert next(lines) == ": placing the model"
        go_on.set()
        rest = "\n".join(lines)
    assert '"content":"late"' in rest
    assert rest.count("[DONE]") == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_cancels_the_generation(start_node: Any, stream: bool) -> None:
    async def script(request: Request) -> AsyncIterator[Event]:
        yield Delta(0, (1,), "for ever")
        await trio.sleep_forever()

    node = start_node(script)
    url = f"{node.url}/v1/chat/completions"
    if stream:
        with httpx.stream("POST", url, json=body(stream=True)) as answer:
            next(answer.iter_lines())
    else:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json=body(), timeout=httpx.Timeout(10, read=0.3))
    assert node.generator.cancelled.wait(10)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("change", "param"),
    [({"temperature": 99}, "temperature"), ({"messages": "hi"}, "messages"), ({"messages": []}, "messages")],
)
def test_a_bad_field_is_named_also_with_stream(node: Any, stream: bool, change: dict[str, Any], param: str) -> None:
    answer = httpx.post(f"{node.url}/v1/chat/completions", json=body(stream=stream, **change))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert not node.generator.requests


@pytest.mark.parametrize("model", [{"model": "no-such-model"}, {"model": ""}, {"model": None}])
def test_an_unknown_model_is_404_and_points_to_known_ones(node: Any, model: dict[str, Any]) -> None:
    answer = httpx.post(f"{node.url}/v1/chat/completions", json=body(**model))
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    assert MODEL in answer.json()["error"]["message"]


@pytest.mark.parametrize("content", [b"{", b"", b"[1]", b'"x"', b'{"model":"\\ud800"}', b"\xff"])
def test_malformed_json_is_400_as_json(node: Any, content: bytes) -> None:
    answer = httpx.post(f"{node.url}/v1/chat/completions", content=content)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_wrong_method_is_405_with_allow(node: Any) -> None:
    answer = httpx.get(f"{node.url}/v1/chat/completions")
    assert answer.status_code == 405
    assert "POST" in answer.headers["allow"]
    assert answer.json()["error"]["code"] == 405


def test_an_unknown_route_names_the_base_address(node: Any) -> None:
    answer = httpx.post(f"{node.url}/v2/chat", json={})
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("Not Found", 404)
    assert f"{node.url}/v1" in error["message"]


@pytest.mark.parametrize("prefix", ["/v1", "/v1/v1", "", "//v1"])
@pytest.mark.parametrize("suffix", ["", "/"])
def test_base_addresses_are_forgiven_without_a_redirect(node: Any, prefix: str, suffix: str) -> None:
    answer = httpx.post(f"{node.url}{prefix}/chat/completions{suffix}", json=body())
    assert answer.status_code == 200
    assert httpx.get(f"{node.url}{prefix}/models{suffix}").json()["data"][0]["id"] == MODEL


@pytest.mark.parametrize("name", ["tests/Parrot-135M", "tests%2FParrot-135M", "parrot-135m"])
def test_a_model_is_found_by_its_id(node: Any, name: str) -> None:
    model = httpx.get(f"{node.url}/v1/models/{name}").json()
    assert (model["id"], model["object"], model["owned_by"]) == (MODEL, "model", "tests")
    assert isinstance(model["created"], int)
    assert httpx.get(f"{node.url}/v1/models/tests/no").status_code == 404


def test_health_answers(node: Any) -> None:
    assert httpx.get(f"{node.url}/health").json() == {"status": "ok"}


def test_the_cluster_is_shown(node: Any) -> None:
    cluster = httpx.get(f"{node.url}/v1/cluster").json()
    assert cluster["term"] == 3
    assert cluster["members"][0]["name"] == "studio <b>"
    assert cluster["placements"][0]["stages"][0]["end_layer"] == 30


def test_cluster_events_end_with_the_newest_picture(node: Any) -> None:
    with httpx.stream("GET", f"{node.url}/v1/cluster/events") as answer:
        terms: list[int] = []
        for line in answer.iter_lines():
            if line.startswith("data: "):
                terms.append(json.loads(line.removeprefix("data: "))["term"])
                if terms[-1] == node.cluster.changes:
                    break
    assert all(earlier < later for earlier, later in pairwise(terms))


def test_a_model_is_placed_and_deleted(node: Any) -> None:
    answer = httpx.post(f"{node.url}/v1/placements", json={"model": "parrot-135m", "min_stages": 2})
    assert answer.status_code == 201
    assert answer.json() == {"id": "p1"}
    (command,) = node.cluster.placed
    assert (command.model, command.min_stages, command.precision) == ("parrot-135m", 2, "auto")
    assert httpx.delete(f"{node.url}/v1/placements/p1").json() == {"id": "p1", "deleted": True}
    assert httpx.delete(f"{node.url}/v1/placements/other").status_code == 404


def test_a_model_is_placed_by_a_split(node: Any) -> None:
    split = {"model": MODEL, "split": "mac-b=10-29,mac-a=0-9"}
    assert httpx.post(f"{node.url}/v1/placements", json=split).status_code == 201
    (command,) = node.cluster.placed
    assert [str(part) for part in command.split] == ["mac-a=0-9", "mac-b=10-29"]


def test_a_dry_run_shows_the_options_and_places_nothing(node: Any) -> None:
    answer = httpx.post(f"{node.url}/v1/placements", json={"model": MODEL, "dry_run": True})
    assert answer.status_code == 200
    shown = answer.json()
    assert (shown["model"], shown["chosen"]) == (MODEL, 1)
    assert shown["options"][0]["stages"][0]["memory_bytes"] == 90
    assert shown["options"][0]["decode_tokens_per_s"] is None
    assert node.cluster.placed == []


def test_a_node_is_sent_away_by_name(node: Any) -> None:
    answer = httpx.post(f"{node.url}/v1/leave", json={"node": "mac-a"})
    assert (answer.status_code, answer.json()) == (202, {"peer": "peer-a", "leaving": True})
    assert httpx.post(f"{node.url}/v1/leave", json={}).status_code == 202
    refused = [httpx.post(f"{node.url}/v1/leave", json=body) for body in ({"node": "mac-z"}, {"nod": "mac-a"})]
    assert [(each.status_code, each.json()["error"]["param"]) for each in refused] == [(400, "node"), (400, "nod")]


@pytest.mark.parametrize(
    ("command", "param"),
    [
        ({"min_stages": 0}, "min_stages"),
        ({"precision": "half"}, "precision"),
        ({"min_stages": "2"}, "min_stages"),
        ({"min_stage": 2}, "min_stage"),
        ({"split": "mac-a"}, "split"),
        ({"split": "mac-a=0-29", "min_stages": 1}, "min_stages"),
        ({"dry_run": "yes"}, "dry_run"),
        ({"replicas": 0}, "replicas"),
        ({"split": "mac-a=0-29", "replicas": 2}, "replicas"),
    ],
)
def test_a_bad_placement_is_refused_by_name(node: Any, command: dict[str, Any], param: str) -> None:
    answer = httpx.post(f"{node.url}/v1/placements", json={"model": MODEL, **command})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_a_placement_that_does_not_fit_says_so(node: Any) -> None:
    node.cluster.failure = InsufficientMemoryError("needs 90 GB, the cluster has 64 GB")
    answer = httpx.post(f"{node.url}/v1/placements", json={"model": MODEL})
    assert answer.status_code == 503
    assert "90 GB" in answer.json()["error"]["message"]


def test_the_page_and_its_assets_are_served(node: Any) -> None:
    page = httpx.get(f"{node.url}/", headers={"accept": "text/html,*/*"})
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for name in ("app.js", "style.css"):
        assert f"/assets/{name}" in page.text
        assert httpx.get(f"{node.url}/assets/{name}").status_code == 200
    assert httpx.get(f"{node.url}/assets/..%2f__init__.py").status_code == 404
