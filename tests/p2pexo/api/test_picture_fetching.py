"""Fetching pictures from a server on this machine, which the guard is told to take for a public one."""

import gzip
import ssl
import traceback
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from attrs import define, field
from structlog.testing import capture_logs

from networking.certificates import make_self_signed
from p2pexo.api.fields import Fields
from p2pexo.api.messages import read_messages
from p2pexo.api.picture_fetching import FetchLimits, Pictures
from p2pexo.api.picture_transport import GuardedTransport, PictureFetchError, resolve
from p2pexo.api.public_addresses import is_public
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import Request

PNG = b"\x89PNG\r\n\x1a\n" + b"0123456789" * 10
OTHER = b"\xff\xd8\xff\xe0" + b"other"

Reply = Callable[[trio.SocketStream], Awaitable[None]]


def reply(body: bytes = PNG, status: str = "200 OK", **headers: str) -> Reply:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]

    async def send(stream: trio.SocketStream) -> None:
        await stream.send_all("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    return send


def redirect(where: str, body: bytes = b"") -> Reply:
    return reply(body, "302 Found", location=where)


async def endless(stream: trio.SocketStream) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n" + PNG)
    while True:
        await stream.send_all(PNG * 1000)


async def silent(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def mute(stream: trio.SocketStream) -> None:
    """Hangs up."""


async def rude(stream: trio.SocketStream) -> None:
    await stream.send_all(b"root:x:0:0 is what I have to say\r\n\r\n")


@define
class Web:
    """A server at ``http://pictures.example:port`` that answers each path as it is told."""

    replies: dict[str, Reply]
    port: int = 0
    heads: list[str] = field(factory=list)

    def url(self, path: str, host: str = "pictures.example") -> str:
        return f"http://{host}:{self.port}{path}"

    async def answer(self, stream: trio.SocketStream) -> None:
        received = bytearray()
        while b"\r\n\r\n" not in received:
            received += await stream.receive_some()
        self.heads.append(received.decode())
        path = received.split(b" ")[1].decode()
        try:
            await self.replies[path](stream)
        except trio.BrokenResourceError:
            pass
        finally:
            await trio.aclose_forcefully(stream)


@asynccontextmanager
async def serving(**replies: Reply) -> AsyncGenerator[Web]:
    web = Web({f"/{name}": each for name, each in replies.items()})
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    web.port = listener.socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, web.answer, [listener])
        yield web
        nursery.cancel_scope.cancel()


HOSTS = {
    "pictures.example": ["127.0.0.1"],
    "inner.example": ["10.0.0.7"],
    "both.example": ["127.0.0.1", "10.0.0.7"],
    "nowhere.example": [],
}


async def look_up(host: str, port: int) -> Sequence[str]:
    return HOSTS[host] if host in HOSTS else await resolve(host, port)


def on_loopback(address: str) -> bool:
    """127.0.0.1 stands for the public internet."""
    return address == "127.0.0.1" or is_public(address)


def pictures(**limits: Any) -> Pictures:
    return Pictures(FetchLimits(**limits), look_up, on_loopback)


def a_request(*urls: str) -> Request:
    content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    body = Fields({"messages": [{"role": "user", "content": [*content, {"type": "text", "text": "What is it?"}]}]})
    return Request("r", "tests/Seer", read_messages(body, sees=True))


def run(test: Callable[[Web], Awaitable[None]], **replies: Reply) -> None:
    async def main() -> None:
        with trio.fail_after(20):
            async with serving(**replies) as web:
                await test(web)

    trio.run(main)


def refusal(limits: dict[str, Any] | None = None, /, **replies: Reply) -> InvalidRequestError:
    """Why the picture at ``/x`` is not fetched."""
    refusals: list[InvalidRequestError] = []

    async def test(web: Web) -> None:
        with pytest.raises(InvalidRequestError) as refused:
            await pictures(**limits or {}).fetched(a_request(web.url("/x")))
        refusals.append(refused.value)

    run(test, **replies)
    return refusals[0]


def test_a_request_without_addresses_is_left_as_it_is() -> None:
    async def main() -> None:
        request = a_request("data:image/png;base64," + b64encode(PNG).decode())
        assert await pictures().fetched(request) is request

    trio.run(main)


def test_fetched_pictures_are_as_if_they_had_been_sent_along() -> None:
    async def test(web: Web) -> None:
        inline = f"data:image/png;base64,{b64encode(PNG).decode()}"
        other = f"data:image/jpeg;base64,{b64encode(OTHER).decode()}"
        request = a_request(web.url("/a"), inline, web.url("/b"))
        assert await pictures().fetched(request) == a_request(inline, inline, other)

    run(test, a=reply(), b=reply(OTHER))


def test_the_server_sees_the_name_and_no_more_than_it_needs() -> None:
    async def test(web: Web) -> None:
        await pictures().fetched(a_request(web.url("/a")))
        (head,) = web.heads
        assert f"Host: pictures.example:{web.port}\r\n" in head
        assert "accept-encoding: identity" in head.lower()
        assert "cookie" not in head.lower()

    run(test, a=reply())


def test_a_picture_that_stands_in_a_request_twice_is_fetched_once() -> None:
    async def test(web: Web) -> None:
        request = await pictures().fetched(a_request(web.url("/a"), web.url("/a")))
        assert len(request.messages[0].pictures) == 2
        assert len(web.heads) == 1

    run(test, a=reply())


def test_pictures_are_fetched_side_by_side_but_not_all_at_once() -> None:
    waiting = 0
    most = 0
    two_there = trio.Event()

    async def slow(stream: trio.SocketStream) -> None:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        if waiting == 2:
            two_there.set()
        await two_there.wait()
        await trio.testing.wait_all_tasks_blocked()
        waiting -= 1
        await reply()(stream)

    async def test(web: Web) -> None:
        request = await pictures(at_once=2).fetched(a_request(*(web.url(f"/{name}") for name in "abcd")))
        assert len(request.messages[0].pictures) == 4
        assert most == 2

    run(test, a=slow, b=slow, c=slow, d=slow)


def test_a_redirect_is_followed_from_name_to_name() -> None:
    async def test(web: Web) -> None:
        request = await pictures().fetched(a_request(web.url("/a")))
        assert request.messages[0].pictures[0].media_type == "image/png"
        assert len(web.heads) == 2

    run(test, a=redirect("/b"), b=reply())


@pytest.mark.parametrize(
    ("replies", "word"),
    [
        ({"x": mute}, "does not answer as a web server should"),
        ({"x": rude}, "does not answer as a web server should"),
        ({"x": reply(status="404 Not Found")}, "status 404"),
        ({"x": reply(status="304 Not Modified", body=b"")}, "status 304"),
        ({"x": reply(b"root:x:0:0:root")}, "no picture"),
        ({"x": reply(b"")}, "no picture"),
        ({"x": redirect("/x")}, "more than 3 redirects"),
        ({"x": redirect("http://10.0.0.7/")}, "'10.0.0.7' is not on the public internet"),
        ({"x": redirect("http://169.254.169.254/latest/meta-data/")}, "not on the public internet"),
        ({"x": redirect("http://inner.example/")}, "'inner.example' is not on the public internet"),
        ({"x": redirect("http://both.example/")}, "not on the public internet"),
        ({"x": redirect("//[::1]/")}, "not on the public internet"),
        ({"x": redirect("file:///etc/hostname")}, "not plain http or https"),
        ({"x": redirect("http://user:secret@pictures.example/")}, "not plain http or https"),
        ({"x": redirect("gopher://pictures.example/")}, "not plain http or https"),
    ],
)
def test_a_picture_that_cant_be_fetched_is_a_fault_of_the_field_that_names_it(
    replies: dict[str, Reply], word: str
) -> None:
    error = refusal(**replies)
    assert word in error.message
    assert error.param == "messages[0].content[0].image_url.url"
    assert error.message.startswith(error.param)
    assert "root:" not in error.message
    assert "secret" not in error.message


def test_what_is_too_large_is_not_read_to_its_end() -> None:
    assert "larger than 1 MiB" in refusal({"bytes_each": 1 << 20}, x=endless).message
    assert "too large together" in refusal({"bytes_together": 1 << 20}, x=endless).message


def test_the_bodies_of_redirects_are_not_read() -> None:
    async def endless_redirect(stream: trio.SocketStream) -> None:
        await stream.send_all(b"HTTP/1.1 302 Found\r\nlocation: /b\r\n\r\n")
        while True:
            await stream.send_all(b"x" * 100_000)

    async def test(web: Web) -> None:
        request = await pictures().fetched(a_request(web.url("/a")))
        assert len(request.messages[0].pictures) == 1

    run(test, a=endless_redirect, b=reply())


def test_a_silent_server_is_given_up() -> None:
    assert "within 0.05 seconds" in refusal({"seconds": 0.05}, x=silent).message


def test_packed_content_is_no_picture() -> None:
    packed = reply(gzip.compress(PNG), **{"content-encoding": "gzip"})
    assert "no picture" in refusal(x=packed).message


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/x",
        "http://localhost:{port}/x",
        "http://LOCALHOST.:{port}/x",
        "http://127.1:{port}/x",
        "http://2130706433:{port}/x",
        "http://0x7f.0.0.1:{port}/x",
        "http://0177.0.0.1:{port}/x",
        "http://0.0.0.0:{port}/x",
        "http://0:{port}/x",
        "http://[::1]:{port}/x",
        "http://[::ffff:127.0.0.1]:{port}/x",
        "http://[::ffff:7f00:1]:{port}/x",
        "http://①②⑦.0.0.1:{port}/x",
        "http://10.0.0.7/x",
        "http://192.168.1.1/x",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fe80::1]/x",
        "http://inner.example/x",
        "http://both.example/x",
        "http://nowhere.example/x",
        "https://inner.example/x",
    ],
)
def test_nothing_but_the_public_internet_is_connected_to(url: str) -> None:
    async def test(web: Web) -> None:
        guarded = Pictures(resolve=look_up)
        with pytest.raises(InvalidRequestError, match=r"not on the public internet|no address|not an address"):
            await guarded.fetched(a_request(url.format(port=web.port)))
        assert web.heads == []

    run(test, x=reply())


def test_the_address_that_was_checked_is_the_one_that_is_connected_to() -> None:
    """A name whose owner answers differently the second time gains nothing: it isn't looked up a second time."""
    answers = iter([["127.0.0.1"], ["10.0.0.7"]])

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return next(answers)

    async def test(web: Web) -> None:
        fetching = Pictures(FetchLimits(), rebinding, on_loopback)
        assert (await fetching.fetched(a_request(web.url("/a")))).messages[0].pictures[0].media_type == "image/png"
        with pytest.raises(InvalidRequestError, match="public internet"):
            await fetching.fetched(a_request(web.url("/a")))
        assert len(web.heads) == 1

    run(test, a=reply())


@pytest.mark.parametrize(("host", "is_met"), [("pictures.example", True), ("others.example", False)])
def test_a_certificate_is_checked_by_the_name_and_not_by_the_address(host: str, is_met: bool) -> None:
    certificate = make_self_signed("pictures.example")
    trusting = ssl.create_default_context(cadata=certificate.certificate)

    async def look_up_all(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async def answer(stream: trio.SocketStream) -> None:
        encrypted = trio.SSLStream(stream, certificate.context(ssl.PROTOCOL_TLS_SERVER), server_side=True)
        with suppress(trio.BrokenResourceError):
            await encrypted.receive_some()
            await encrypted.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")

    async def main() -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        url = f"https://{host}:{listener.socket.getsockname()[1]}/x"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, answer, [listener])
            transport = GuardedTransport(trusting, look_up_all, on_loopback)
            async with httpx.AsyncClient(transport=transport) as client:
                if is_met:
                    assert (await client.get(url)).text == "hi"
                else:
                    with pytest.raises(httpx.ConnectError):
                        await client.get(url)
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_another_address_of_a_host_is_tried_when_the_first_is_dead() -> None:
    async def two(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.3", "127.0.0.1"]

    async def test(web: Web) -> None:
        fetching = Pictures(FetchLimits(), two, lambda address: True)
        assert (await fetching.fetched(a_request(web.url("/a")))).messages[0].pictures[0].media_type == "image/png"

    run(test, a=reply())


def test_a_server_that_is_not_there() -> None:
    async def test(web: Web) -> None:
        with trio.socket.socket() as nobody:
            await nobody.bind(("127.0.0.1", 0))
            url = f"http://pictures.example:{nobody.getsockname()[1]}/x"
            with pytest.raises(InvalidRequestError, match="can't be reached"):
                await pictures().fetched(a_request(url))

    run(test)


def test_a_host_that_nobody_knows() -> None:
    async def unknown(host: str, port: int) -> Sequence[str]:
        raise PictureFetchError(f"no address is known for the host {host!r}")

    async def main() -> None:
        with pytest.raises(InvalidRequestError, match=r"no address is known for the host 'cat.example'"):
            await Pictures(resolve=unknown).fetched(a_request("https://cat.example/x"))

    trio.run(main)


def test_more_addresses_than_are_fetched_is_a_fault_of_the_first_one_beyond() -> None:
    async def test(web: Web) -> None:
        with pytest.raises(InvalidRequestError, match="at most 2") as refused:
            await pictures(pictures=2).fetched(a_request(*(web.url(f"/{name}") for name in "abc")))
        assert refused.value.param == "messages[0].content[2].image_url.url"
        assert web.heads == []

    run(test)


def test_what_a_server_says_is_not_logged() -> None:
    async def test(web: Web) -> None:
        with capture_logs() as logs:
            await pictures().fetched(a_request(web.url("/rude"), web.url("/text")), leave_out_lost=True)
        told = "".join("".join(traceback.format_exception(line["exc_info"])) for line in logs)
        assert "web server should (RemoteProtocolError)" in told
        assert "no picture" in told
        assert "root:" not in told

    run(test, rude=rude, text=reply(b"root:x:0:0"))


def test_a_lost_picture_can_be_left_out_with_a_warning_that_carries_the_trace() -> None:
    async def test(web: Web) -> None:
        request = a_request(web.url("/gone?key=secret"), web.url("/a"))
        with capture_logs() as logs:
            kept = await pictures().fetched(request, leave_out_lost=True)
        assert [each.hash for each in kept.messages[0].pictures] == [kept.messages[0].pictures[0].hash]
        assert kept.messages[0].content == request.messages[0].content
        (line,) = logs
        assert (line["log_level"], line["host"], line["path"]) == ("warning", "pictures.example", "/gone")
        assert "status 410" in str(line["exc_info"])
        assert line["exc_info"].__traceback__ is not None
        assert "secret" not in repr(line)

    run(test, a=reply(), **{"gone?key=secret": reply(status="410 Gone")})
