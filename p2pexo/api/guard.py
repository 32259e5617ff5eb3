"""Who may talk to the API: by Host (DNS rebinding), by Origin (foreign web pages), by API key. Decisions are pure."""

import hmac
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from attrs import field, frozen

from p2pexo.api.errors import WRONG_KEY, RefusedError

_OPEN_PATHS = ("/", "/health")
_OPEN_PREFIX = "/assets/"
"""Reachable without the key: the page asks for it, and a health check has none."""

ANY = "*"

_NOT_IN_A_HOST = frozenset("@/?#\\")


def _lowered(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower().rstrip("./") for name in names)


@frozen
class AccessRules:
    """What is let in besides loopback and the address that the connection itself came in on."""

    own_names: frozenset[str] = field(default=frozenset(), converter=_lowered)
    """Names of this machine, such as ``studio`` and ``studio.local``."""
    allowed_hosts: frozenset[str] = field(default=frozenset(), converter=_lowered)
    """Host names under which a proxy reaches this node; ``*`` lets any name in, and with it DNS rebinding."""
    allowed_origins: frozenset[str] = field(default=frozenset(), converter=_lowered)
    """Origins such as ``https://chat.example`` whose pages may use the API; ``*`` lets every web page in."""
    api_key: str | None = field(default=None, repr=False)
    """None: whoever reaches the port may use it."""


@frozen
class Caller:
    """What a request says about where it comes from. ``headers`` are looked up by lower-case name."""

    method: str
    path: str
    headers: Mapping[str, str]
    local_address: str
    """The address of this machine that the client connected to."""

    @property
    def origin(self) -> str | None:
        return self.headers.get("origin")

    @property
    def is_preflight(self) -> bool:
        return self.method == "OPTIONS" and self.origin is not None and "access-control-request-method" in self.headers


def check(rules: AccessRules, caller: Caller) -> None:
    """Raises RefusedError: 403 for a foreign Host or Origin, 401 without the key. A preflight carries no key."""
    host = caller.headers.get("host")
    if host and ANY not in rules.allowed_hosts and not _is_ours(rules, _host_name(host), caller.local_address):
        raise RefusedError(403, f"the host {host!r} is not a name of this node; use --allow-host to add it")
    if caller.origin is not None and not origin_is_allowed(rules, caller):
        raise RefusedError(403, f"pages of {caller.origin!r} may not use this node; use --allow-origin to add it")
    if rules.api_key is not None and not caller.is_preflight and not _is_open(caller.path):
        _check_key(rules.api_key, caller.headers)


def origin_is_allowed(rules: AccessRules, caller: Caller) -> bool:
    """Allowed by setting, or a page that this node itself serves, or one from this machine."""
    origin = (caller.origin or "").lower()
    if ANY in rules.allowed_origins or origin in rules.allowed_origins:
        return True
    scheme, _, host = origin.partition("://")
    if scheme not in ("http", "https"):
        return False
    return host == caller.headers.get("host", "").lower() or _is_ours(rules, _host_name(host), caller.local_address)


def cors_headers(rules: AccessRules, caller: Caller) -> dict[str, str]:
    """What lets a page of an allowed origin read the answer; nothing for other callers."""
    if caller.origin is None or not origin_is_allowed(rules, caller):
        return {}
    headers = {
        "access-control-allow-origin": caller.origin,
        "access-control-expose-headers": "retry-after, request-id, x-request-id",
        "vary": "Origin",
    }
    return headers | _preflight_headers(caller) if caller.is_preflight else headers


def is_loopback(host: str) -> bool:
    """Whether an address to listen on, or a host name, can be reached from this machine alone."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return _unmapped(address).is_loopback


def _preflight_headers(caller: Caller) -> dict[str, str]:
    return {
        "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
        "access-control-allow-headers": caller.headers.get("access-control-request-headers", ""),
        "access-control-max-age": "600",
    }


def _is_ours(rules: AccessRules, host: str | None, local_address: str) -> bool:
    if host is None:
        return False
    return is_loopback(host) or host in rules.own_names or host in rules.allowed_hosts or _same(host, local_address)


def _host_name(host: str) -> str | None:
    """The name in ``name:port``, lower-case, without the brackets of an IPv6 address; None if it is none."""
    if not _NOT_IN_A_HOST.isdisjoint(host):
        return None
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return None
    return name.rstrip(".") if name else None


def _same(host: str, address: str) -> bool:
    try:
        return _unmapped(ip_address(host)) == _unmapped(ip_address(address))
    except ValueError:
        return False


def _unmapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _is_open(path: str) -> bool:
    return path in _OPEN_PATHS or path.startswith(_OPEN_PREFIX)


def _check_key(api_key: str, headers: Mapping[str, str]) -> None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    if not hmac.compare_digest(given.encode(), api_key.encode()):
        message = "the API key is wrong" if given else "this node wants an API key: send it as a Bearer token"
        raise RefusedError(WRONG_KEY, message, www_authenticate="Bearer")
