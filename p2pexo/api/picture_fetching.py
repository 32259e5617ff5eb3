"""Fetches the pictures that a request names by their addresses, between reading the request and sending it on."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from http import HTTPStatus
from ssl import SSLContext

import httpx
import structlog
import trio
from attrs import define, evolve, frozen

from p2pexo.api.picture_transport import GuardedTransport, PictureFetchError, Resolve, resolve
from p2pexo.api.pictures import MEDIA_TYPES, AwaitedPicture, NotAPictureError, picture_of
from p2pexo.api.public_addresses import is_public
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import Message, PicturePart, Request

log = structlog.get_logger(__name__)


@frozen
class FetchLimits:
    seconds: float = 15.0
    """For all pictures of a request together. Raise it and a client waits longer for a refusal; lower it and slow servers' pictures are missed."""
    redirects: int = 3
    """For each picture. Raise it and one address costs more connections; lower it and shortened links don't arrive."""
    bytes_each: int = 10 << 20
    """Raise it and larger photographs pass; lower it and a hostile server costs less memory."""
    bytes_together: int = 12 << 20
    """Of one request. More than this would, as text, not fit the frame that carries the request to its ring."""
    pictures: int = 100
    """Different addresses in one request. Raise it and a request can make the node knock at more doors."""
    at_once: int = 8
    """Fetched at the same time, for all requests of this node. Lower it and many pictures take longer."""


@define
class _Budget:
    """What may still be read for one request."""

    bytes_left: int

    def spend(self, count: int) -> None:
        self.bytes_left -= count
        if self.bytes_left < 0:
            raise PictureFetchError("the pictures of this request are too large together")


Fetched = Mapping[str, PicturePart | PictureFetchError]
"""By address."""


class Pictures:
    def __init__(
        self,
        limits: FetchLimits | None = None,
        resolve: Resolve = resolve,
        is_allowed: Callable[[str], bool] = is_public,
    ) -> None:
        """``is_allowed``: whether an IP address may be connected to."""
        self._limits = limits or FetchLimits()
        self._resolve = resolve
        self._is_allowed = is_allowed
        self._slots = trio.CapacityLimiter(self._limits.at_once)

    async def fetched(self, request: Request, *, leave_out_lost: bool = False) -> Request:
        """The request with all its pictures.

        One that can't be fetched is left out with a warning in the log, or else raises InvalidRequestError that names
        the field with its address.
        """
        awaited = {str(picture.url): picture for picture in _awaited(request)}
        if not awaited:
            return request
        self._check_count(awaited)
        found = await self._fetch_all(awaited)
        messages = (_with_found(message, found, leave_out_lost) for message in request.messages)
        return evolve(request, messages=tuple(messages))

    def _check_count(self, awaited: Mapping[str, AwaitedPicture]) -> None:
        surplus = list(awaited.values())[self._limits.pictures :]
        if surplus:
            raise InvalidRequestError(
                f"{surplus[0].param}: {len(awaited)} pictures are to be fetched; at most {self._limits.pictures} are",
                param=surplus[0].param,
            )

    async def _fetch_all(self, urls: Iterable[str]) -> Fetched:
        found: dict[str, PicturePart | PictureFetchError] = {}
        budget = _Budget(self._limits.bytes_together)
        deadline = trio.current_time() + self._limits.seconds

        async def fetch(url: str) -> None:
            try:
                with trio.fail_at(deadline):
                    async with self._slots:
                        found[url] = await _picture(await self._get(client, url, budget))
            except PictureFetchError as error:
                found[url] = error
            except trio.TooSlowError:
                found[url] = PictureFetchError(f"it did not arrive within {self._limits.seconds:g} seconds")

        transport = GuardedTransport(self._ssl_context, self._resolve, self._is_allowed)
        client = httpx.AsyncClient(transport=transport, headers=_HEADERS, timeout=None, trust_env=False)
        async with client, trio.open_nursery() as nursery:
            for url in urls:
                nursery.start_soon(fetch, url)
        return found

    async def _get(self, client: httpx.AsyncClient, url: str, budget: _Budget) -> bytes:
        """Redirects are followed here, since httpx would read whatever stands in them. Raises PictureFetchError."""
        request = client.build_request("GET", url)
        try:
            for _ in range(self._limits.redirects + 1):
                response = await client.send(request, stream=True)
                try:
                    if response.next_request is None:
                        return await self._body(response, budget)
                finally:
                    await response.aclose()
                request = response.next_request
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise PictureFetchError("its server can't be reached") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # Not its text, nor as a cause that a log would show: what the server said may stand in it.
            kind = type(error).__name__
            raise PictureFetchError(f"its server does not answer as a web server should ({kind})") from None
        raise PictureFetchError(f"it leads to more than {self._limits.redirects} redirects")

    async def _body(self, response: httpx.Response, budget: _Budget) -> bytes:
        if response.status_code != HTTPStatus.OK:
            raise PictureFetchError(f"its server answers with the status {response.status_code}")
        body = bytearray()
        async for chunk in response.aiter_raw():
            budget.spend(len(chunk))
            body += chunk
            if len(body) > self._limits.bytes_each:
                raise PictureFetchError(f"it is larger than {self._limits.bytes_each >> 20} MiB")
        return bytes(body)

    @cached_property
    def _ssl_context(self) -> SSLContext:
        """Made only when it is needed: it reads all the certificates that are trusted."""
        return httpx.create_ssl_context(trust_env=False)


_SHOWN_CHARACTERS = 100

_HEADERS = {"user-agent": "p2pexo", "accept": ", ".join(MEDIA_TYPES), "accept-encoding": "identity"}


async def _picture(content: bytes) -> PicturePart:
    try:
        return await trio.to_thread.run_sync(lambda: picture_of(content, b64encode(content).decode("ascii")))
    except NotAPictureError as error:
        raise PictureFetchError(f"what is there is no picture: {error}") from error


def _awaited(request: Request) -> Iterator[AwaitedPicture]:
    for message in request.messages:
        yield from (each for each in message.pictures if isinstance(each, AwaitedPicture))


def _with_found(message: Message, found: Fetched, leave_out_lost: bool) -> Message:
    if not message.pictures:
        return message
    pictures = (_found(each, found, leave_out_lost) for each in message.pictures)
    return evolve(message, pictures=tuple(each for each in pictures if each is not None))


def _found(picture: PicturePart, found: Fetched, leave_out_lost: bool) -> PicturePart | None:
    if not isinstance(picture, AwaitedPicture):
        return picture
    match found[str(picture.url)]:
        case PicturePart() as fetched:
            return evolve(fetched, position=picture.position)
        case PictureFetchError() as error if leave_out_lost:
            log.warning("a picture is left out, since it can't be fetched", **_place(picture), exc_info=error)
            return None
        case PictureFetchError() as error:
            message = f"{picture.param}: the picture can't be fetched: {error}"
            raise InvalidRequestError(message, param=picture.param) from error


def _place(picture: AwaitedPicture) -> dict[str, str]:
    """Without the query, which may be as good as a key."""
    url = httpx.URL(picture.url)
    return {"param": picture.param, "host": url.host, "path": url.path[:_SHOWN_CHARACTERS]}
