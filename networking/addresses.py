"""Multiaddrs of TCP endpoints: what they mean, where we can really be dialled, whether a port is still free."""

import ipaddress
import re
import socket
from collections.abc import Iterable

import psutil
from attrs import frozen

from networking.transport import Address, TransportError

_FORM = re.compile(r"/(ip4|ip6|dns|dns4|dns6)/([^/]+)/tcp/(\d{1,5})")


@frozen
class Endpoint:
    """A host, as a number or a name, and a port."""

    kind: str
    host: str
    port: int

    @property
    def address(self) -> Address:
        return Address(f"/{self.kind}/{self.host}/tcp/{self.port}")

    @property
    def is_wildcard(self) -> bool:
        return self.host in ("0.0.0.0", "::")


def parse(address: str) -> Endpoint:
    """The endpoint that an address names. Raises ValueError with the form that is wanted."""
    match = _FORM.fullmatch(address)
    if not match or not 0 <= int(match[3]) <= 65535:
        raise ValueError(f"{address!r} is no address; write it like /ip4/192.168.1.7/tcp/52416")
    kind, host = match[1], match[2]
    if kind in ("ip4", "ip6"):
        version = ipaddress.ip_address(host).version
        if kind != f"ip{version}":
            raise ValueError(f"{address!r}: {host} is an IPv{version} address")
    return Endpoint(kind, host, int(match[3]))


def from_socket_name(name: tuple[str, int] | tuple[str, int, int, int]) -> Address:
    """The address of what ``getsockname`` or ``getpeername`` returned."""
    host = name[0].partition("%")[0]
    return Endpoint("ip6" if ":" in host else "ip4", host, name[1]).address


def source(host: str) -> str:
    """Whom to count for what comes from an IP address: of IPv6 its /64, in which one machine has as many as it likes."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def reachable(listening: Iterable[Address]) -> tuple[Address, ...]:
    """Where peers can dial us: a wildcard stands for the addresses that the interfaces have at this moment.

    Loopback is left out when there is another, since on other machines it would lead them to themselves.
    """
    found: dict[Address, None] = {}
    for endpoint in map(parse, listening):
        hosts = interface_hosts(endpoint.kind) if endpoint.is_wildcard else (endpoint.host,)
        found |= {Endpoint(endpoint.kind, host, endpoint.port).address: None for host in hosts}
    return tuple(found)


def interface_hosts(kind: str) -> tuple[str, ...]:
    """The usable addresses of this machine's interfaces, ``ip4`` or ``ip6``; loopback only if there are no others."""
    family = socket.AF_INET if kind == "ip4" else socket.AF_INET6
    entries = [
        entry.address for entries in psutil.net_if_addrs().values() for entry in entries if entry.family == family
    ]
    # A link-local IPv6 address means nothing without the name of an interface, which differs on each machine.
    hosts = [host for host in entries if "%" not in host and not (kind == "ip6" and _is_link_local(host))]
    others = [host for host in hosts if not ipaddress.ip_address(host).is_loopback]
    return tuple(dict.fromkeys(others or hosts))


def check_free(listening: Iterable[Address]) -> None:
    """Raise TransportError if we can't listen there, most often because another process does."""
    for endpoint in map(parse, listening):
        family = socket.AF_INET6 if endpoint.kind == "ip6" else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((endpoint.host, endpoint.port))
                probe.listen(1)
            except OSError as error:
                raise TransportError(
                    f"can't listen on {endpoint.address}: {error.strerror}; choose another port"
                ) from error


def _is_link_local(host: str) -> bool:
    return ipaddress.ip_address(host).is_link_local
