"""Packed bodies: what works, what is refused, and that a bomb is stopped by what comes out of it."""

import gzip
import json
import zlib
from typing import Any

import httpx
import pytest

from p2pexo.api.errors import RefusedError
from p2pexo.api.packing import is_packed, unpack
from p2pexo.generation.errors import InvalidRequestError

PACKED = gzip.compress(b'{"a":1}', mtime=0)


@pytest.mark.parametrize(
    ("encoding", "packed"), [("", False), ("identity", False), (" Identity ", False), ("gzip", True), ("br", True)]
)
def test_what_says_that_a_body_is_packed(encoding: str, packed: bool) -> None:
    assert is_packed(encoding) is packed


@pytest.mark.parametrize(("body", "expected"), [(PACKED, b'{"a":1}'), (gzip.compress(b"", mtime=0), b"")])
def test_gzip_is_unpacked(body: bytes, expected: bytes) -> None:
    assert unpack(body, "GZIP", 100) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        PACKED[:-1],
        PACKED[:10],
        b"",
        PACKED + b"x",
        PACKED + PACKED,
        PACKED[:-8] + b"\0" * 8,
        zlib.compress(b"{}"),
    ],
)
def test_broken_gzip_is_a_wrong_request(body: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="gzip"):
        unpack(body, "gzip", 100)


@pytest.mark.parametrize("encoding", ["br", "zstd", "deflate", "gzip, gzip"])
def test_other_packings_are_refused_with_what_works(encoding: str) -> None:
    with pytest.raises(RefusedError, match="gzip") as refusal:
        unpack(PACKED, encoding, 100)
    assert refusal.value.fault.status == 415
    assert refusal.value.headers == {"accept-encoding": "gzip"}


@pytest.mark.parametrize("size", [99, 100, 101, 10_000_000])
def test_the_cap_holds_for_what_comes_out(size: int) -> None:
    bomb = gzip.compress(b" " * size)
    if size <= 100:
        assert len(unpack(bomb, "gzip", 100)) == size
        return
    with pytest.raises(RefusedError) as refusal:
        unpack(bomb, "gzip", 100)
    assert refusal.value.fault.status == 413


def ask(node: Any, body: bytes, encoding: str) -> httpx.Response:
    return httpx.post(f"{node.url}/v1/chat/completions", content=body, headers={"content-encoding": encoding})


def test_a_node_reads_packed_bodies(node: Any) -> None:
    body = json.dumps({"model": "parrot-135m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    assert ask(node, gzip.compress(body), "gzip").json()["choices"][0]["message"]["content"] == "hi"
    assert ask(node, body, "identity").status_code == 200
    bomb = gzip.compress(b" " * (65 << 20), 1)
    assert [ask(node, gzip.compress(body)[:-9], "gzip").status_code, ask(node, bomb, "gzip").status_code] == [400, 413]
    assert ask(node, body, "br").json()["error"]["code"] == 415
