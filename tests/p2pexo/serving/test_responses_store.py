"""The file that stored responses are kept in."""

import stat
from pathlib import Path

import pytest

from p2pexo.generation.request import Message, Role, ToolCall
from p2pexo.generation.text import Prompt
from p2pexo.serving.responses_store import LIFETIME_S, ResponseDatabase, StoredResponse

NOW = 1_000_000.0


def response(id: str = "resp_1", text: str = "hi") -> StoredResponse:
    call = ToolCall("c", "f", "{}")
    said = Message(Role.ASSISTANT, "ok", (call,), reasoning=Prompt("hm"))
    return StoredResponse(id, (Message(Role.USER, text), said), '{"id":"x"}')


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "responses.sqlite3"


@pytest.fixture
def database(path: Path) -> ResponseDatabase:
    return ResponseDatabase(path)


def test_what_was_stored_comes_back(database: ResponseDatabase) -> None:
    database.put(response(), NOW)
    assert database.get("resp_1", NOW) == response()
    assert database.get("resp_2", NOW) is None


def test_it_outlives_a_restart(database: ResponseDatabase, path: Path) -> None:
    database.put(response(), NOW)
    assert ResponseDatabase(path).get("resp_1", NOW) == response()


def test_what_was_deleted_is_gone(database: ResponseDatabase) -> None:
    database.put(response(), NOW)
    assert database.delete("resp_1")
    assert not database.delete("resp_1")
    assert database.get("resp_1", NOW) is None


def test_it_is_forgotten_after_its_time(database: ResponseDatabase) -> None:
    database.put(response(), NOW)
    assert database.get("resp_1", NOW + LIFETIME_S - 1) is not None
    assert database.get("resp_1", NOW + LIFETIME_S) is None
    database.put(response("resp_2"), NOW + LIFETIME_S)
    assert not database.delete("resp_1")


def test_the_oldest_make_room(path: Path) -> None:
    database = ResponseDatabase(path, max_bytes=500)
    for number in range(10):
        database.put(response(f"resp_{number}"), NOW + number)
    kept = [number for number in range(10) if database.get(f"resp_{number}", NOW)]
    assert 0 < len(kept) < 10
    assert kept == list(range(10 - len(kept), 10))


def test_nobody_else_can_read_it(database: ResponseDatabase, path: Path) -> None:
    database.put(response(), NOW)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_was_deleted_leaves_no_trace_in_the_file(database: ResponseDatabase, path: Path) -> None:
    database.put(response("resp_secret"), NOW)
    database.delete("resp_secret")
    assert b"resp_secret" not in b"".join(each.read_bytes() for each in path.parent.iterdir())
