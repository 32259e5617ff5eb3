"""HTTP to public addresses alone. Where a connection goes is what was checked: no second look-up can answer otherwise."""

import socket
from collections.abc import Awaitable, Callable, Sequence
from ssl import SSLContext

import httpx
import trio

from p2pexo.api.public_addresses import is_public

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The IP addresses of a host name. Raises PictureFetchError if there are none."""


class PictureFetchError(Exception):
    """Why a picture could not be fetched, in words for the client: nothing that a server said is in them."""


async def resolve(host: str, port: int) -> Sequence[str]:
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise PictureFetchError(f"no address is known for the host {host!r}") from error
    return tuple(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


class GuardedTransport(httpx.AsyncHTTPTransport):
    """Each request, and so each redirect, is checked anew. No proxy is used, and no connection is kept."""

    def __init__(
        self, ssl_context: SSLContext, resolve: Resolve = resolve, is_allowed: Callable[[str], bool] = is_public
    ) -> None:
        super().__init__(verify=ssl_context, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))
        self._resolve = resolve
        self._is_allowed = is_allowed

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises PictureFetchError for what must not be fetched, httpx.TransportError for what went wrong."""
        addresses = await self._addresses(request.url)
        for address in addresses[:-1]:
            try:
                return await super().handle_async_request(_to(address, request))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await super().handle_async_request(_to(addresses[-1], request))

    async def _addresses(self, url: httpx.URL) -> Sequence[str]:
        """Those of the host. One that isn't public spoils them all: nobody has such a pair by accident."""
        if url.scheme not in _PORTS or url.userinfo or not url.host:
            raise PictureFetchError("it leads to an address that is not plain http or https")
        host = _host(url)
        addresses = await self._resolve(host, url.port or _PORTS[url.scheme])
        if not addresses or not all(map(self._is_allowed, addresses)):
            raise PictureFetchError(f"the host {host!r} is not on the public internet")
        return addresses


_PORTS = {"http": 80, "https": 443}


def _host(url: httpx.URL) -> str:
    return url.raw_host.decode("ascii")


def _to(address: str, request: httpx.Request) -> httpx.Request:
    """The same request to an address instead of a name; the ``Host`` header and the certificate go by the name."""
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": _host(request.url)},
    )
