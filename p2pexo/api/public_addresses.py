"""Which addresses are on the public internet, so that a node may go there because somebody asks it to. Pure."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_NAT64 = ip_network("64:ff9b::/96")
"""IPv4 addresses as networks without IPv4 write them."""

_NOT_PUBLIC = (ip_network("192.0.0.0/24"), ip_network("fec0::/10"))
"""Set aside by the IETF, which Python's own table doesn't know in all its releases; and the site-local ones of old."""


def is_public(address: str) -> bool:
    """False for whatever leads to this machine or into a private network, in any spelling, and for what is no address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address):
        carried = _carried(parsed)
        return _is_public(parsed) if carried is None else _is_public(carried)
    return _is_public(parsed)


def _carried(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that packets to this one end up at."""
    if address in _NAT64:
        return IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)
