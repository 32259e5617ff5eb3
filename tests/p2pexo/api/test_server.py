"""The server under clients that behave badly, and under one that wants it to stop."""

import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import trio

from p2pexo.api import repairs, server, unread_bodies
from p2pexo.api.server import ListenError, serve
from p2pexo.generation.events import Delta, Event
from p2pexo.generation.request import Request

QUESTION = {"model": "parrot-135m", "messages": [{"role": "user", "content": "hi"}]}


def connect(node: Any) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.port), timeout=10)


def http_request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chat_request(**fields: Any) -> bytes:
    body = json.dumps({**QUESTION, **fields}).encode()
    return http_request("POST", "/v1/chat/completions", body, f"content-length: {len(body)}")


def read_to_end(connection: socket.socket) -> bytes:
    parts: list[bytes] = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def read_until(connection: socket.socket, wanted: bytes) -> bytes:
    read = b""
    while wanted not in read:
        part = connection.recv(65536)
        assert part, f"ended before {wanted!r}: {read!r}"
        read += part
    return read


async def chatter(request: Request) -> AsyncIterator[Event]:
    """Never ends."""
    index = 0
    while True:
        yield Delta(index, (index,), "x" * 4096)
        index += 1
        await trio.lowlevel.checkpoint()


async def one_word_then_silence(request: Request) -> AsyncIterator[Event]:
    yield Delta(0, (0,), "word")
    await trio.sleep_forever()


def test_a_connection_is_closed_when_the_client_asks_for_it(node: Any) -> None:
    with connect(node) as connection:
        connection.sendall(http_request("GET", "/health", b"", "connection: close"))
        assert read_to_end(connection).startswith(b"HTTP/1.1 200")


def test_a_connection_is_kept_and_used_again(node: Any) -> None:
    with httpx.Client() as client:
        answers = [client.post(f"{node.url}/v1/chat/completions", json=QUESTION) for _ in range(20)]
        ports = {answer.extensions["network_stream"].get_extra_info("client_addr") for answer in answers}
    assert len(ports) == 1
    assert all(answer.status_code == 200 for answer in answers)


def test_a_connection_that_fails_takes_no_other_with_it(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(connection: repairs.BoundedTCPServer) -> None:
        raise ExceptionGroup("nobody thought of this", [RuntimeError("broken")])

    with httpx.Client() as other:
        assert other.get(f"{node.url}/health").status_code == 200
        with monkeypatch.context() as patched:
            patched.setattr(repairs.BoundedTCPServer, "run", fail)
            with pytest.raises(httpx.TransportError):
                httpx.get(f"{node.url}/health")
        assert other.get(f"{node.url}/health").status_code == 200
    assert httpx.get(f"{node.url}/health").status_code == 200


REFUSED = {
    "no such route": ("POST", "/v1/nope"),
    "not offered": ("POST", "/api/embed"),
    "wrong method": ("PUT", "/v1/chat/completions"),
    "foreign page": ("POST", "/v1/chat/completions", "origin: https://evil.example"),
}
BODY_BYTES = 300_000


@pytest.mark.parametrize("refused", REFUSED)
def test_a_refused_body_leaves_its_connection_fit_for_the_next_request(node: Any, refused: str) -> None:
    method, path, *headers = REFUSED[refused]
    with connect(node) as connection:
        for _ in range(3):
            connection.sendall(http_request(method, path, b"x" * 1000, f"content-length: {BODY_BYTES}", *headers))
            connection.sendall(b"x" * (BODY_BYTES - 1000))
            head = read_until(connection, b"}").lower()
            assert head.startswith((b"http/1.1 4", b"http/1.1 501"))
            assert b"connection: close" not in head
            connection.sendall(http_request("GET", "/health"))
            assert read_until(connection, b"}").startswith(b"HTTP/1.1 200")


def test_a_refused_body_that_does_not_come_is_not_waited_for(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread_bodies, "DRAIN_S", 0.05)
    with connect(node) as connection:
        connection.sendall(http_request("POST", "/v1/nope", b"x", f"content-length: {BODY_BYTES}"))
        answer = read_to_end(connection).lower()
    assert answer.startswith(b"http/1.1 404") and b"connection: close" in answer


def test_a_connection_that_the_client_has_left_is_closed_although_its_idle_time_is_not_over(node: Any) -> None:
    with connect(node) as connection:
        connection.sendall(http_request("GET", "/health"))
        read_until(connection, b'{"status":"ok"}')
        connection.shutdown(socket.SHUT_WR)
        assert read_to_end(connection) == b""


def test_a_taken_port_is_named_with_the_way_out(node: Any) -> None:
    async def main() -> None:
        await serve(None, host="127.0.0.1", port=node.port)

    with pytest.raises(ListenError, match=rf"port {node.port} is taken .*--api-port"):
        trio.run(main)


def test_an_address_that_is_not_ours_is_refused_in_plain_words() -> None:
    async def main() -> None:
        await serve(None, host="203.0.113.7", port=0)

    with pytest.raises(ListenError, match=r"203\.0\.113\.7"):
        trio.run(main)


def slices() -> Iterator[bytes]:
    return (b"x" * 65536 for _ in range(64))


@pytest.mark.parametrize("content", [b"".join(slices()), slices()], ids=["with a length", "in chunks"])
def test_a_body_that_is_too_large_is_refused_while_it_arrives(start_node: Any, content: Any) -> None:
    node = start_node(max_body_bytes=1 << 20)
    answer = httpx.post(f"{node.url}/v1/chat/completions", content=content)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"
    assert "1 MiB" in answer.json()["error"]["message"]
    assert httpx.get(f"{node.url}/health").status_code == 200


def test_stopping_tells_open_streams_and_closes_idle_connections(start_node: Any) -> None:
    node = start_node(one_word_then_silence)
    with connect(node) as streaming, connect(node) as idle:
        idle.sendall(http_request("GET", "/health"))
        assert read_until(idle, b'{"status":"ok"}').startswith(b"HTTP/1.1 200")
        streaming.sendall(chat_request(stream=True))
        read_until(streaming, b"word")
        node.stop()
        ending = read_to_end(streaming)
        assert b"this node is stopping" in ending
        assert b"data: [DONE]\n\n" in ending
        assert ending.endswith(b"\r\n0\r\n\r\n")
        assert read_to_end(idle) == b""


def test_a_call_that_does_not_stream_gets_503_when_the_server_stops(start_node: Any) -> None:
    node = start_node(one_word_then_silence)
    with connect(node) as connection:
        connection.sendall(chat_request())
        while not node.generator.requests:
            threading.Event().wait(0.01)
        node.stop()
        assert read_to_end(connection).startswith(b"HTTP/1.1 503")


def test_a_client_that_stops_reading_is_dropped(start_node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairs, "SEND_TIMEOUT_S", 0.3)
    node = start_node(chatter)
    with connect(node) as connection:
        connection.sendall(chat_request(stream=True))
        assert node.generator.cancelled.wait(10)


def test_a_client_that_stops_reading_does_not_hold_up_the_stop(
    start_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "DRAIN_S", 0.3)
    node = start_node(chatter)
    with connect(node) as connection:
        connection.sendall(chat_request(stream=True))
        connection.recv(1)
        node.stop()


def test_many_streams_at_once_are_all_answered(node: Any) -> None:
    async def ask(client: httpx.AsyncClient, answers: list[str]) -> None:
        answer = await client.post(f"{node.url}/v1/chat/completions", json={**QUESTION, "stream": True})
        answers.append(answer.text)

    async def main() -> list[str]:
        answers: list[str] = []
        async with httpx.AsyncClient(timeout=30) as client, trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(ask, client, answers)
        return answers

    answers = trio.run(main)
    assert len(answers) == 30
    assert all(answer.count("data: [DONE]") == 1 for answer in answers)


def test_a_client_that_asks_before_it_sends_its_body_is_told_to_go_on(node: Any) -> None:
    head, _, body = chat_request().partition(b"\r\n\r\n")
    with connect(node) as connection:
        connection.sendall(head + b"\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n")
        assert read_until(connection, b"\r\n\r\n").startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert read_to_end(connection).startswith(b"HTTP/1.1 200")


def test_a_websocket_is_turned_away(node: Any) -> None:
    upgrade = (
        "upgrade: websocket",
        "connection: upgrade",
        "sec-websocket-version: 13",
        "sec-websocket-key: eHh4eHh4eHh4eHh4eHh4eA==",
    )
    with connect(node) as connection:
        connection.sendall(http_request("GET", "/v1/cluster/events", b"", *upgrade))
        assert connection.recv(65536).startswith((b"HTTP/1.1 403", b"HTTP/1.1 404", b"HTTP/1.1 400"))
    assert httpx.get(f"{node.url}/health").status_code == 200


@pytest.mark.parametrize(
    "head", ["GET /health HTTP/1.1\r\n\r\n", "no HTTP at all\r\n\r\n", "GET / HTTP/1.1\r\nx\r\n\r\n"]
)
def test_what_is_no_valid_request_is_answered_in_words(node: Any, head: str) -> None:
    with connect(node) as connection:
        connection.sendall(head.encode())
        answer = read_to_end(connection)
    start, _, body = answer.partition(b"\r\n\r\n")
    assert start.startswith(b"HTTP/1.1 400 ")
    assert "Host header" in json.loads(body)["error"]["message"]
