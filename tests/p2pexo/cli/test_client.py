import json

import httpx
import pytest

from p2pexo.cli.chat_stream import End, Text
from p2pexo.cli.client import ApiError, ChatMessage, NothingAnswersError
from p2pexo.cli.errors import CommandError
from p2pexo.generation.codec import encode


def test_the_snapshot_comes_out_as_the_node_wrote_it(client_of, make):
    snapshot = make.snapshot(3, make.placement())
    client = client_of(lambda request: httpx.Response(200, content=encode(snapshot)))
    assert client.cluster() == snapshot


def test_models_are_listed_by_id(client_of):
    body = {"object": "list", "data": [{"id": "a/b", "object": "model"}, {"id": "c/d"}]}
    assert client_of(lambda request: httpx.Response(200, json=body)).models() == ("a/b", "c/d")


def test_placing_sends_what_was_asked_and_returns_the_id(client_of):
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(202, json={"id": "p7", "state": "loading"})

    assert client_of(handle).place("a/b", min_stages=3, precision="keep") == "p7"
    assert (seen[0].method, seen[0].url.path) == ("POST", "/v1/placements")
    assert json.loads(seen[0].content) == {"model": "a/b", "min_stages": 3, "precision": "keep"}


def test_a_precision_that_was_not_asked_for_is_not_sent(client_of):
    bodies: list[dict[str, object]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, json={"id": "p7"})

    client_of(handle).place("a/b")
    assert "precision" not in bodies[0]


def test_the_key_goes_along_with_every_request(client_of):
    seen: list[str | None] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("Authorization"))
        return httpx.Response(200, json={"data": []})

    client_of(handle, api_key="k").models()
    client_of(handle).models()
    assert seen == ["Bearer k", None]


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (
            httpx.Response(404, json={"error": {"message": "no model 'x'", "type": "t", "param": None, "code": "c"}}),
            "no model 'x'",
        ),
        (httpx.Response(502, text="<html>bad gateway</html>"), "502 Bad Gateway"),
    ],
)
def test_a_refusal_is_told_in_the_words_of_the_node(client_of, response: httpx.Response, message: str):
    client = client_of(lambda request: response)
    for ask in (client.models, lambda: client.place("x"), lambda: list(client.chat("x", [ChatMessage("user", "hi")]))):
        with pytest.raises(ApiError, match=message) as caught:
            ask()
        assert caught.value.status == response.status_code


def test_a_missing_key_is_told_with_the_way_to_give_it(client_of):
    refusal = httpx.Response(401, json={"error": {"message": "this node wants an API key"}})
    with pytest.raises(ApiError, match="this node wants an API key; give it by --api-key"):
        client_of(lambda request: refusal).cluster()


def failing(error: Exception):
    def handle(request: httpx.Request) -> httpx.Response:
        raise error

    return handle


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (httpx.ConnectError("refused"), NothingAnswersError, "nothing answers at http://localhost:52415"),
        (httpx.ConnectTimeout("slow"), NothingAnswersError, "nothing answers"),
        (httpx.ReadTimeout("slow"), CommandError, "has been silent for 60 s"),
        (
            httpx.RemoteProtocolError("peer closed"),
            CommandError,
            "the connection to http://localhost:52415 broke: peer closed",
        ),
    ],
)
def test_trouble_on_the_way_is_a_sentence(client_of, error: Exception, kind: type[Exception], message: str):
    with pytest.raises(kind, match=message):
        client_of(failing(error)).cluster()


def test_another_program_on_the_port_is_recognised(client_of):
    with pytest.raises(CommandError, match="answers, but not as p2pexo does"):
        client_of(lambda request: httpx.Response(200, text="<html>hello</html>")).cluster()


def test_a_chat_streams_and_asks_for_usage(client_of):
    bodies: list[dict[str, object]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(
            200, text='data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        )

    pieces = list(client_of(handle).chat("a/b", [ChatMessage("user", "hello")], max_tokens=5, temperature=0))
    assert pieces == [Text("hi"), End("stop", None)]
    assert bodies[0] == {
        "model": "a/b",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 5,
        "temperature": 0,
    }


def test_a_stream_that_breaks_off_is_an_error(client_of):
    client = client_of(lambda request: httpx.Response(200, text='data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'))
    with pytest.raises(CommandError, match="broke off"):
        list(client.chat("a/b", []))
