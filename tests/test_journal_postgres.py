"""The journal in PostgreSQL, by the contract of all stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import pytest

from relay.journal.postgres import PostgresJournal
from relay.testing import JournalContract, TwoProcesses
from tests.postgres_server import PostgresPrograms, PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class OneDatabase:
    """Instances that share a database."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self, *, receivers: Sequence[str] = ()) -> PostgresJournal:
        """One more."""
        return await PostgresJournal.open(self._url, receivers=receivers)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One for all tests here."""
    with PostgresPrograms() as programs, PostgresServer(programs, "shared") as server:
        yield server


@pytest.fixture
async def database(server: PostgresServer) -> str:
    """Its database, emptied: that takes a tenth of a new one's time."""
    await (await PostgresJournal.open(server.url())).close()
    admin = await asyncpg.connect(server.url())
    tables = await admin.fetch(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'relay' AND tablename <> 'migration'"
    )
    names = ", ".join(f"relay.{name}" for (name,) in tables)
    await admin.execute(f"TRUNCATE {names} RESTART IDENTITY")
    await admin.close()
    return server.url()


class TestPostgres(JournalContract):
    """As a store."""

    @pytest.fixture
    def stores(self, database: str) -> OneDatabase:
        """An empty database."""
        return OneDatabase(database)


class TestPostgresByTwo(TwoProcesses):
    """With real processes."""

    @pytest.fixture
    def url(self, database: str) -> str:
        """An empty database."""
        return database
