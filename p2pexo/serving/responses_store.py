"""Answers that clients may come back to, kept in one SQLite file in the node's home."""

import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

from attrs import field, frozen

from p2pexo.generation.codec import decode, encode
from p2pexo.generation.request import Message

LIFETIME_S = 24 * 3600.0
"""How long a response is kept. Raise it and old conversations can be taken up; lower it and disk is saved."""

MAX_BYTES = 1 << 30
"""What all responses together may take, packed; the oldest go first. Raise it and busy days are kept whole."""


@frozen
class StoredResponse:
    id: str
    conversation: tuple[Message, ...]
    """Inputs and outputs up to and with this response, without instructions."""
    body: str = field(repr=False)
    """The response as its client got it: JSON text."""
    input_items: str = field(default="[]", repr=False)
    """All items that it answers, those of the responses before it among them: a JSON list."""


class ResponseDatabase:
    """Blocks; call it in a thread. It outlives restarts, so ``now`` is wall clock seconds. Raises sqlite3.Error."""

    def __init__(self, path: Path, *, lifetime_s: float = LIFETIME_S, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._lifetime_s = lifetime_s
        self._max_bytes = max_bytes

    def get(self, id: str, now: float) -> StoredResponse | None:
        with self._open() as database:
            row = database.execute(_GET, (id, now - self._lifetime_s)).fetchone()
        return decode(zlib.decompress(row[0]), StoredResponse) if row else None

    def put(self, stored: StoredResponse, now: float) -> None:
        content = zlib.compress(encode(stored))
        with self._open() as database, database:
            database.execute(_PUT, (stored.id, now, len(content), content))
            database.execute(_DELETE_OLD, (now - self._lifetime_s,))
            database.execute(_DELETE_BEYOND, (self._max_bytes,))

    def delete(self, id: str) -> bool:
        """Whether it was there."""
        with self._open() as database, database:
            return database.execute(_DELETE, (id,)).rowcount > 0

    def _open(self) -> "closing[sqlite3.Connection]":
        """Opened anew each time: that costs less than a millisecond, and nobody has to close it at the end."""
        self._path.touch(mode=0o600)  # conversations are nobody else's business
        database = sqlite3.connect(self._path)
        for statement in _PREPARE:
            database.execute(statement)
        return closing(database)


_PREPARE = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA secure_delete = ON",
    "CREATE TABLE IF NOT EXISTS responses (id TEXT PRIMARY KEY, stored_at REAL, size INTEGER, content BLOB)",
    "CREATE INDEX IF NOT EXISTS by_time ON responses (stored_at, size)",
)
_GET = "SELECT content FROM responses WHERE id = ? AND stored_at > ?"
_PUT = "INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?)"
_DELETE = "DELETE FROM responses WHERE id = ?"
_DELETE_OLD = "DELETE FROM responses WHERE stored_at <= ?"
_DELETE_BEYOND = """
    DELETE FROM responses WHERE rowid IN (
        SELECT rowid FROM (
            SELECT rowid, SUM(size) OVER (ORDER BY stored_at DESC, rowid DESC) AS up_to_here FROM responses
        ) WHERE up_to_here > ?
    )
"""
