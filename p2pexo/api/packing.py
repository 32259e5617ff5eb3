"""Bodies that clients send packed. The cap holds for what comes out, so that a small body can't fill the memory. Pure."""

import zlib

from p2pexo.api.errors import TOO_LARGE, RefusedError
from p2pexo.generation.errors import InvalidRequestError

_GZIP = frozenset({"gzip", "x-gzip"})
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
"""Tells zlib to expect the header of a gzip member."""


def is_packed(encoding: str) -> bool:
    """Whether a ``Content-Encoding`` says that the body must be unpacked."""
    return encoding.strip().lower() not in ("", "identity")


def unpack(body: bytes, encoding: str, limit: int) -> bytes:
    """What was packed. Raises RefusedError (415: not gzip; 413: more than ``limit`` bytes), InvalidRequestError (broken)."""
    if encoding.strip().lower() not in _GZIP:
        message = f"a body packed with {encoding!r} can't be read here; send it as gzip, or not packed"
        raise RefusedError(415, message, accept_encoding="gzip")
    try:
        return _gunzip(body, limit)
    except zlib.error as error:
        raise InvalidRequestError(f"the body is not valid gzip: {error}") from error


def _gunzip(body: bytes, limit: int) -> bytes:
    """One member and no more: no client sends several, and millions of empty ones would take for ever."""
    member = zlib.decompressobj(_GZIP_WINDOW)
    unpacked = member.decompress(body, limit + 1)
    if len(unpacked) > limit:
        raise RefusedError(TOO_LARGE, f"the body is larger than {limit >> 20} MiB when unpacked; send less at once")
    if not member.eof:
        raise InvalidRequestError("the body is not valid gzip: it ends too early")
    if member.unused_data:
        raise InvalidRequestError("the body is not valid gzip: something follows its end")
    return unpacked
