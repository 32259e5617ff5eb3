"""What becomes of pictures on each route: they reach the ring, are refused, or on Claude's route are left out."""

import json
import socket
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from attrs import define, evolve, field
from structlog.testing import capture_logs

from p2pexo.api.picture_fetching import FetchLimits, Pictures
from p2pexo.generation.content import parts
from p2pexo.generation.events import Delta, Event, Finished, FinishReason, Usage
from p2pexo.generation.request import PicturePart, Request

PNG = b"\x89PNG\r\n\x1a\n" + b"0123456789"
PNG64 = b64encode(PNG).decode()
DATA_URL = f"data:image/png;base64,{PNG64}"

PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "claude": "/v1/messages",
    "count": "/v1/messages/count_tokens",
    "ollama": "/api/chat",
    "generate": "/api/generate",
}
FETCHING = ("chat", "responses", "claude", "count")


async def describe(request: Request) -> AsyncIterator[Event]:
    """Says what the user said last, pictures and all."""
    pieces = parts(request.messages[-1])
    text = "".join(f"<{part.media_type}>" if isinstance(part, PicturePart) else part for part in pieces)
    yield Delta(0, (1,), text)
    yield Finished(FinishReason.STOP, Usage(7, 1))


def body(route: str, picture: str, **more: Any) -> dict[str, Any]:
    """A question about a picture, which is an address or base64."""
    text = {"type": "text", "text": "?"}
    asked: dict[str, Any] = {"model": "Parrot-135M", "stream": False}
    is_address = ":" in picture
    match route:
        case "chat":
            url = picture if is_address else f"data:image/png;base64,{picture}"
            content: Any = [{"type": "image_url", "image_url": {"url": url}}, text]
        case "responses":
            url = picture if is_address else f"data:image/png;base64,{picture}"
            content = [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "?"}]
            return asked | {"input": [{"role": "user", "content": content}]} | more
        case "claude" | "count":
            given = {"type": "base64", "media_type": "image/png", "data": picture}
            content = [{"type": "image", "source": {"type": "url", "url": picture} if is_address else given}, text]
            asked |= {"max_tokens": 5} if route == "claude" else {}
        case "generate":
            return asked | {"prompt": "?", "images": [picture]} | more
        case _:
            return asked | {"messages": [{"role": "user", "content": "?", "images": [picture]}]} | more
    return asked | {"messages": [{"role": "user", "content": content}]} | more


@define
class Shop:
    """A web server with one picture, and what was asked of it."""

    url: str
    asked: list[str] = field(factory=list)


@pytest.fixture
def shop() -> Iterator[Shop]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shop.asked.append(self.path)
            self.send_response(200 if self.path == "/cat.png" else 404)
            self.end_headers()
            self.wfile.write(PNG)

        def log_message(self, format: str, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        shop = Shop(f"http://shop.example:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield shop
        server.shutdown()
        thread.join()


def pictures(limits: FetchLimits | None = None) -> Pictures:
    async def look_up(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"] if host == "shop.example" else [host]

    return Pictures(limits, resolve=look_up, is_allowed=lambda address: address == "127.0.0.1")


@pytest.fixture
def node(start_node: Any) -> Any:
    return start_node(describe, sees=True, pictures=pictures())


def post(node: Any, route: str, **asked: Any) -> httpx.Response:
    return httpx.post(node.url + PATHS[route], json=body(route, **asked), timeout=20)


def message_of(route: str, response: httpx.Response) -> str:
    error = response.json()["error"]
    return error if route in ("ollama", "generate") else error["message"]


@pytest.mark.parametrize("route", PATHS)
def test_a_picture_that_is_sent_along_reaches_the_ring(node: Any, route: str) -> None:
    assert post(node, route, picture=PNG64).status_code == 200
    (request,) = node.generator.requests
    (picture,) = request.messages[-1].pictures
    assert (picture.data, picture.media_type, picture.position) == (PNG64, "image/png", 0)


@pytest.mark.parametrize("route", FETCHING)
def test_a_picture_is_fetched_from_its_address(node: Any, shop: Shop, route: str) -> None:
    assert post(node, route, picture=f"{shop.url}/cat.png").status_code == 200
    assert shop.asked == ["/cat.png"]
    (request,) = node.generator.requests
    assert [picture.data for picture in request.messages[-1].pictures] == [PNG64]


@pytest.mark.parametrize("stream", [False, True])
def test_each_choice_of_an_answer_sees_the_picture(node: Any, shop: Shop, stream: bool) -> None:
    assert post(node, "chat", picture=f"{shop.url}/cat.png", n=3, stream=stream).status_code == 200
    assert shop.asked == ["/cat.png"]
    assert [len(request.messages[-1].pictures) for request in node.generator.requests] == [1, 1, 1]


LOST = ["{shop}/gone.png", "http://10.0.0.7/cat.png", "http://169.254.169.254/latest/meta-data/"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("address", LOST)
@pytest.mark.parametrize(
    ("route", "param"),
    [("chat", "messages[0].content[0].image_url.url"), ("responses", "input[0].content[0].image_url")],
)
def test_a_picture_that_cant_be_fetched_is_a_400_that_names_its_field(
    node: Any, shop: Shop, route: str, param: str, address: str, stream: bool
) -> None:
    response = post(node, route, picture=address.format(shop=shop.url), stream=stream)
    assert response.status_code == 400
    assert (response.json()["error"]["param"], response.json()["error"]["type"]) == (param, "invalid_request_error")
    assert "can't be fetched" in response.json()["error"]["message"]
    assert node.generator.requests == []


@pytest.mark.parametrize("address", LOST)
@pytest.mark.parametrize("stream", [False, True])
def test_claude_goes_on_without_a_picture_that_cant_be_fetched(
    node: Any, shop: Shop, address: str, stream: bool
) -> None:
    lost = {"type": "image", "source": {"type": "url", "url": address.format(shop=shop.url)}}
    kept = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG64}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [lost, {"type": "text", "text": "a"}, kept]}
    turns = [{"role": "user", "content": [result, lost, {"type": "text", "text": "?"}]}]
    with capture_logs() as logs:
        response = post(node, "claude", picture="", messages=turns, stream=stream)
    assert response.status_code == 200
    (request,) = node.generator.requests
    returned, said = request.messages
    assert [(each.data, each.position) for each in returned.pictures] == [(PNG64, 1)]
    assert (said.content, said.pictures) == ("?", ())
    warnings = [each for each in logs if "left out" in each["event"]]
    assert [each["param"] for each in warnings] == [
        "messages[0].content[0].content[0].source.url",
        "messages[0].content[1].source.url",
    ]
    assert all(each["exc_info"].__traceback__ is not None for each in warnings)


@pytest.mark.parametrize("route", ["claude", "count"])
def test_an_address_that_is_none_is_a_400_with_claude_too(node: Any, route: str) -> None:
    response = post(node, route, picture="file:///etc/hostname")
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert node.generator.requests == []


@pytest.mark.parametrize("picture", [PNG64, "{shop}/cat.png"])
@pytest.mark.parametrize("route", PATHS)
def test_a_model_that_cant_see_refuses_and_nothing_is_fetched(
    start_node: Any, shop: Shop, route: str, picture: str
) -> None:
    node = start_node(describe, pictures=pictures())
    response = post(node, route, picture=picture.format(shop=shop.url))
    assert response.status_code == 400
    assert "this model can't see pictures" in message_of(route, response)
    assert shop.asked == []
    assert node.generator.requests == []


@pytest.mark.parametrize(
    ("sees", "expected"), [(True, ["completion", "tools", "vision"]), (False, ["completion", "tools"])]
)
def test_clients_of_ollama_are_told_whether_a_model_sees(start_node: Any, sees: bool, expected: list[str]) -> None:
    node = start_node(describe, sees=sees)
    shown = httpx.post(f"{node.url}/api/show", json={"model": "Parrot-135M"}, timeout=20).json()
    assert shown["capabilities"] == expected


def test_a_client_that_leaves_ends_the_fetch(start_node: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://shop.example:{server.getsockname()[1]}/cat.png"
        node = start_node(describe, sees=True, pictures=pictures(FetchLimits(seconds=600)))
        asked = json.dumps(body("chat", address)).encode()
        server.settimeout(20)
        with socket.create_connection(("127.0.0.1", node.port)) as client:
            head = f"POST {PATHS['chat']} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(asked)}\r\n\r\n"
            client.sendall(head.encode() + asked)
            connection, _ = server.accept()
        with connection:
            connection.settimeout(20)
            while connection.recv(65536):
                pass
    assert node.generator.requests == []


def test_a_stored_response_keeps_its_pictures(start_node: Any, node: Any, shop: Shop) -> None:
    first = post(node, "responses", picture=f"{shop.url}/cat.png").json()
    later = post(node, "responses", picture=DATA_URL, input="And now?", previous_response_id=first["id"])
    assert later.status_code == 200
    assert shop.asked == ["/cat.png"]
    assert [len(message.pictures) for message in node.generator.requests[-1].messages] == [1, 0, 0]


def test_a_model_that_cant_see_does_not_go_on_where_another_was_shown_a_picture(node: Any) -> None:
    first = post(node, "responses", picture=PNG64).json()
    node.cluster.card = evolve(node.cluster.card, sees=False)
    later = post(node, "responses", picture="", input="And now?", previous_response_id=first["id"])
    assert later.status_code == 400
    assert later.json()["error"]["param"] == "previous_response_id"
