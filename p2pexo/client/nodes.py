"""The nodes that a client knows, and which of them to ask next. Pure."""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from p2pexo.client.cluster import ClusterState


class Nodes:
    """Any node of a cluster answers for all of it, so the one that answered last is asked again."""

    def __init__(self, urls: Iterable[str]) -> None:
        """Raises ValueError for what is no URL of a node."""
        self._urls = list(dict.fromkeys(_checked(url) for url in urls))
        if not self._urls:
            raise ValueError("a client needs the URL of at least one node, such as http://localhost:52415")

    @property
    def urls(self) -> tuple[str, ...]:
        """In the order in which to try them."""
        return tuple(self._urls)

    def worked(self, url: str) -> None:
        self._move(url, 0)

    def failed(self, url: str) -> None:
        self._move(url, len(self._urls))

    def learn(self, state: ClusterState, told_by: str) -> None:
        """Remember where the other members answer. Loopback addresses mean something else on another machine."""
        for member in state.members:
            url = member.api_url.rstrip("/")
            if url and not member.is_me and (not is_loopback(url) or is_loopback(told_by)) and url not in self._urls:
                self._urls.append(url)

    def _move(self, url: str, place: int) -> None:
        self._urls.remove(url)
        self._urls.insert(place, url)


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def urls_of(urls: str | Sequence[str]) -> tuple[str, ...]:
    return (urls,) if isinstance(urls, str) else tuple(urls)


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not a URL; write one like http://localhost:52415")
    return url.rstrip("/").removesuffix("/v1")
