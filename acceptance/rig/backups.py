"""Copies of a journal, taken while its relay works, and put in its place.

Rules: by the ways that the documentation names.
Must not know: relays.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from acceptance.rig.kills import PostgresStore, SqliteStore
from relay.journal.url import sqlite_path

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.rig.kills import Store
    from tests.postgres_server import PostgresPrograms


def vacuumed(store: Store, copy: Path) -> None:
    """By a statement."""
    with closing(sqlite3.connect(sqlite_path(store.url), isolation_level=None)) as source:
        source.execute("VACUUM INTO ?", (str(copy),))


def backed_up(store: Store, copy: Path) -> None:
    """As ``sqlite3 journal.db ".backup copy.db"`` does."""
    with closing(sqlite3.connect(sqlite_path(store.url))) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


FILE_WAYS = {"vacuum": vacuumed, "backup": backed_up}


class FileBackup:
    """One copy of a file."""

    def __init__(self, way: str, folder: Path) -> None:
        self._way, self._copy = FILE_WAYS[way], folder / "copy.db"

    async def take(self, store: Store) -> None:
        """Now."""
        await asyncio.to_thread(self._way, store, self._copy)

    async def restored(self) -> Store:
        """The copy is the journal from here on."""
        return SqliteStore(f"sqlite:///{self._copy}")


class ServerBackup:
    """A dump, put into another database."""

    def __init__(self, programs: PostgresPrograms, store: PostgresStore) -> None:
        self._programs, self._server = programs, store.server
        self._file = programs.directory(f"dump-{store.server.port}") / "journal.sql"

    async def take(self, store: Store) -> None:
        """Now."""
        await self._run("pg_dump", "--schema=relay", "--file", str(self._file), store.url)

    async def restored(self) -> Store:
        """The other database has the journal from here on."""
        url = self._server.url("restored")
        await self._run("createdb", "--maintenance-db", self._server.url(), "restored")
        await self._run("psql", "-v", "ON_ERROR_STOP=1", "--file", str(self._file), url)
        store = PostgresStore(self._server)
        store.url = url
        return store

    async def _run(self, *argv: str) -> None:
        await asyncio.to_thread(self._programs.run, *argv)
