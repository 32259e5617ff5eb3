from collections.abc import Callable

import httpx
import pytest

from p2pexo.cli.client import Target, connect
from p2pexo.cli.errors import CommandError
from p2pexo.client import Client
from p2pexo.generation.codec import encode

Handler = Callable[[httpx.Request], httpx.Response]


def complaint(
    handler: Handler, ask: Callable[[Client], object] = Client.cluster, url: str = "http://desk:52415"
) -> str:
    """What a command says that asks a node which answers so."""
    with pytest.raises(CommandError) as caught, connect(Target(url=url), httpx.MockTransport(handler)) as client:
        ask(client)
    return str(caught.value)


def answering(response: httpx.Response) -> Handler:
    return lambda request: response


def failing(error: Exception) -> Handler:
    def handle(request: httpx.Request) -> httpx.Response:
        raise error

    return handle


def test_the_snapshot_comes_out_as_the_node_wrote_it(client_of, make):
    snapshot = make.snapshot(3, make.placement())
    assert client_of(answering(httpx.Response(200, content=encode(snapshot)))).cluster() == snapshot


def test_only_the_node_that_was_named_is_asked_and_nothing_but_what_the_command_needs(client_of):
    seen: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(str(request.url))
        return httpx.Response(200, json={"data": []})

    client_of(handle, url="http://desk:1").models()
    assert seen == ["http://desk:1/v1/models"]


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
        (httpx.Response(404, json={"error": {"message": "no model 'x'", "type": "t"}}), "no model 'x'"),
        (httpx.Response(502, text="<html>bad gateway</html>"), "the node answers 502 Bad Gateway and says no more"),
        (
            httpx.Response(401, json={"error": {"message": "this node wants an API key"}}),
            "this node wants an API key; give it by --api-key or P2PEXO_API_KEY",
        ),
    ],
)
def test_a_refusal_is_told_in_the_words_of_the_node(response: httpx.Response, message: str):
    for ask in (Client.models, lambda client: client.place("x"), lambda client: client.chat("x", "hi")):
        assert complaint(answering(response), ask) == message


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (httpx.ConnectError("refused"), "nothing answers at http://desk:52415; is `p2pexo node` running?"),
        (httpx.ConnectTimeout("slow"), "nothing answers at http://desk:52415; is `p2pexo node` running?"),
        (httpx.ReadTimeout("slow"), "http://desk:52415 has been silent for 60 s; see that node's log"),
        (httpx.RemoteProtocolError("peer closed"), "the connection to http://desk:52415 broke: peer closed"),
    ],
)
def test_trouble_on_the_way_is_a_sentence(error: Exception, message: str):
    assert complaint(failing(error)) == message


def test_another_program_on_the_port_is_recognised():
    page = answering(httpx.Response(200, text="<html>hello</html>"))
    assert complaint(page).startswith("http://desk:52415 answers, but not as p2pexo does")


def test_what_is_no_url_is_told_with_one_that_is():
    assert (
        complaint(failing(AssertionError()), url="desk") == "'desk' is not a URL; write one like http://localhost:52415"
    )


def test_a_stream_that_breaks_off_is_an_error():
    half = answering(httpx.Response(200, text='data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'))
    assert complaint(half, lambda client: client.chat("a/b", "hi")).startswith("the answer broke off")
