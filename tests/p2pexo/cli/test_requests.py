import io
import time

import pytest
from attrs import evolve
from rich.console import Console

from p2pexo.cli import status
from p2pexo.cli.requests import requests_table
from p2pexo.client import Client, EndedRequest, NotFoundError

WHOLE = EndedRequest(
    "r1",
    "owner/model",
    "stop",
    ended_at=1_700_000_000.0,
    total_s=2.345,
    placement="p1",
    epoch="1.2.abcdef",
    node="mac-a",
    rings=1,
    first_token_s=0.5,
    queue_s=0.0,
    prompt_tokens=300,
    cached_tokens=256,
    completion_tokens=41,
    prefill_tokens_per_s=1310.04,
    decode_tokens_per_s=41.5,
)


def rows(*requests: EndedRequest) -> list[str]:
    console = Console(file=io.StringIO(), width=200)
    console.print(requests_table(requests))
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_a_request_shows_where_it_was_answered_and_how_fast() -> None:
    title, _, row = rows(WHOLE)
    ended = time.strftime("%H:%M:%S", time.localtime(1_700_000_000.0))
    assert title == "Last requests of this node"
    assert row == (f"{ended} stop owner/model mac-a (1.2.abcdef) 300 256 41 0 s 1310 tokens/s 41.5 tokens/s 2.35 s")


def test_one_that_moved_says_so_and_what_is_not_known_is_left_open() -> None:
    broken = EndedRequest("r2", "owner/model", "ring_broken", 1_700_000_000.0, 31.0, "p1", "1.4.abcdef", "mac-b", 3)
    assert rows(broken)[2].endswith("ring_broken owner/model mac-b (1.4.abcdef, ring 3) – – – – – – 31 s")
    nowhere = EndedRequest("r3", "owner/model", "unavailable")
    assert "unavailable owner/model – –" in rows(nowhere)[2]


@pytest.fixture
def node(make, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(Client, "cluster", lambda self: make.snapshot(1))
    monkeypatch.setattr(
        Client, "requests", lambda self: tuple(evolve(WHOLE, model=f"model-{number}") for number in range(8))
    )
    return monkeypatch


@pytest.mark.parametrize("count", [0, 3, 20])
def test_status_shows_as_many_of_the_newest_as_it_is_told(node, capsys: pytest.CaptureFixture[str], count: int) -> None:
    status.status(requests=count)
    shown = capsys.readouterr().out
    assert [f"model-{number}" in shown for number in range(8)] == [number < count for number in range(8)]
    assert ("Last requests" in shown) == (count > 0)


def test_a_node_of_an_older_version_tells_of_none(node, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(self: Client) -> None:
        raise NotFoundError("no such route", status=404)

    node.setattr(Client, "requests", refuse)
    status.status()
    assert "Last requests" not in capsys.readouterr().out
