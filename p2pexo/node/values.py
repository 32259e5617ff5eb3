"""What people type, turned into values: sizes, shares of memory, addresses, durations. Pure; every error names the value."""

import ipaddress
import re
from typing import Self

from attrs import field, frozen

from p2pexo.api.durations import read_duration

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3600}


class SettingsError(ValueError):
    """Settings that contradict each other; the message names them and says what to do."""


def parse_size(text: str) -> int:
    """Bytes of ``8GB`` (decimal), ``8GiB`` (binary) or a plain number. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(f"{text!r} is not a size; write one like 8GB, 7.5GiB or 512MB")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def format_size(count: int) -> str:
    """Bytes for people, decimal like ``parse_size``: three digits at most before the unit."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit in ("B", "kB") or value >= 100 else f"{value:.1f} {unit}"


def parse_duration(text: str) -> float:
    """Seconds of ``90``, ``90s``, ``10m`` or ``1h``. Raises ValueError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write one like 90s, 10m or 1h")
    return float(match[1]) * _SECONDS[(match[2] or "s").lower()]


def parse_keep_alive(text: str) -> float:
    """Seconds, negative for ever, as Ollama reads them. Raises ValueError."""
    seconds = read_duration(text.strip())
    if seconds is None:
        raise ValueError(f"{text!r} is not a duration; write one like 5m or 300, 0 for none, or -1 for ever")
    return seconds


@frozen
class MemoryBudget:
    """How much memory placements may use: a number of bytes, or a share of what the machine has."""

    size: int | None = None
    share: float | None = field(default=None)

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``8GB`` or ``70%``. Raises ValueError."""
        if not text.strip().endswith("%"):
            return cls(size=_positive(parse_size(text), text))
        digits = text.strip()[:-1].strip()
        if not re.fullmatch(r"\d+(\.\d+)?", digits) or not 0 < float(digits) <= 100:
            raise ValueError(f"{text!r} is not a share of the memory; write one from 1% to 100%")
        return cls(share=float(digits) / 100)

    def of(self, total: int) -> int:
        """Bytes, on a machine that has ``total`` bytes; never more than that."""
        return min(total, self.size if self.size is not None else int(total * (self.share or 0)))

    def __str__(self) -> str:
        return f"{self.size}B" if self.size is not None else f"{(self.share or 0) * 100:g}%"


def _positive(count: int, text: str) -> int:
    if count <= 0:
        raise ValueError(f"{text!r} leaves no memory for a model; write a size like 8GB, or a share like 70%")
    return count


def parse_address(text: str) -> str:
    """A multiaddr, from one, or from ``host:port`` as people write it. Raises ValueError."""
    # Costs more time than all other settings together, and most nodes name no address.
    from networking.addresses import parse

    try:
        return parse(text if text.startswith("/") else _multiaddr(text)).address
    except ValueError:
        wanted = "192.168.1.7:52416 or /ip4/192.168.1.7/tcp/52416"
        raise ValueError(f"{text!r} is not an address; write one like {wanted}") from None


def parse_listen_address(text: str) -> str:
    """As ``parse_address``, but no name: it may mean any address, and more than one. Raises ValueError."""
    address = parse_address(text)
    if address.startswith("/dns"):
        raise ValueError(f"{text!r} names a host; write the IP address of this machine to listen on")
    return address


def parse_peer_address(text: str) -> str:
    """As ``parse_address``; ``/p2p/ID`` may follow, and then only that peer is accepted there. Raises ValueError."""
    from networking.identity import public_key_of
    from networking.transport import PeerId

    address, separator, peer = text.partition("/p2p/")
    try:
        _ = public_key_of(PeerId(peer)) if separator else None
    except ValueError:
        raise ValueError(f"{text!r}: {peer!r} is not the id of a node; copy it again, or leave out /p2p/…") from None
    return parse_address(address) + separator + peer


def _multiaddr(text: str) -> str:
    host, _, port = text.rpartition(":")
    return f"/{_host_part(host)}/tcp/{port}"


def _host_part(host: str) -> str:
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", bare):
            raise
        return f"dns/{bare}"
    return f"ip{address.version}/{address}"
