"""A connection to the file, as the journal wants it.

Job: pragmas, and the migrations in order, under the write lock, so that of two relays that start one makes the tables.
Rules: nothing here reads rows: a journal of millions opens as fast as an empty one. A file that is not ours is left
alone.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final, NamedTuple

from relay.journal.faults import Unusable
from relay.journal.sqlite.troubles import fault
from relay.journal.statements import migrations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from relay.errors import Fault

LOCK_S: Final = 2.0
"""How long another process may hold the file. Below a lease: whoever cannot write must know it while he still may."""

OURS: Final = 0x524C4A31
"""The application id in the file's head: RLJ1."""

OLDEST_LIBRARY: Final = (3, 37, 0)

_MIGRATIONS: Final = migrations("relay.journal.sqlite")


class Place(NamedTuple):
    """Where the file is, what for, and how long to wait for its lock."""

    path: Path
    lock_s: float
    writes: bool

    @property
    def url(self) -> str:
        """As in ``[journal] url``."""
        return f"sqlite:///{self.path}"

    def fault(self, error: sqlite3.Error) -> Fault:
        """What ``error`` is to others."""
        return fault(error, self.url, self.lock_s)

    def file(self) -> tuple[int, int] | None:
        """Which file has the name now."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def connect(self) -> sqlite3.Connection:
        """Raises `sqlite3.Error`, or `Unusable` for a file that is not ours."""
        if sqlite3.sqlite_version_info < OLDEST_LIBRARY:
            raise Unusable(f"the journal needs SQLite 3.37 or newer; this Python has {sqlite3.sqlite_version}")
        connection = sqlite3.connect(self.path, timeout=self.lock_s, isolation_level=None, cached_statements=256)
        try:
            _prepare(connection, self)
        except BaseException:
            connection.close()
            raise
        return connection


def _prepare(connection: sqlite3.Connection, place: Place) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    if not place.writes:
        connection.execute("PRAGMA query_only = ON")
        return
    _check_owner(connection, place)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise Unusable(f"the journal {place.url} ([journal] url) can have no write-ahead log; put it on a local disk")
    # In a write-ahead log FULL means that a commit has been synced when it returns; NORMAL would lose the last ones.
    connection.execute("PRAGMA synchronous = FULL")
    _migrate(connection, place)


def _check_owner(connection: sqlite3.Connection, place: Place) -> None:
    # In this order: who makes the tables signs them in the same transaction, so where they are the signature is.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    if owner != OURS and tables:
        raise Unusable(f"the file of {place.url} ([journal] url) is another program's database; name another file")


def _migrate(connection: sqlite3.Connection, place: Place) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        _bring_up(connection, place)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _bring_up(connection: sqlite3.Connection, place: Place) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(_MIGRATIONS):
        raise Unusable(f"the journal {place.url} ([journal] url) was made by a newer relay; run that one")
    for number, script in enumerate(_MIGRATIONS[version:], version + 1):
        for statement in _split(script):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number}")
    connection.execute(f"PRAGMA application_id = {OURS}")


def _split(script: str) -> Iterator[str]:
    """One statement after another; the library's own way would commit in between."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
