"""The boundary to the server: statements in, rows or a fault out, within a bounded time.

Job: own asyncpg: connections, time limits, migrations.
Rules
- A statement that was begun is carried out: whoever stops waiting cancels nothing.
- Limits at the server (a statement, a lock, a transaction left open) end below a lease, so that a relay that cannot
  write knows it while it still may send. A limit here ends what the server does not answer at all.
- What only looks is tried again on a fresh connection; what changes something is not, since it may have been done.
Must not know: what the statements do.

asyncpg, and not psycopg: it speaks the binary protocol itself (no libpq to match), prepares and keeps its statements,
and turns rows of many columns into values at the least CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import structlog

from relay.config import masked
from relay.journal.faults import Unavailable, Unusable
from relay.journal.postgres.troubles import AGAIN, CONNECTION, fault
from relay.journal.statements import load, migrations
from relay.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Sequence

STATEMENT_S: Final = 2.0
LOCK_S: Final = 1.0
IDLE_S: Final = 2.0
"""Limits at the server: one statement, one lock, a transaction that nobody goes on with."""

CONNECT_S: Final = 2.0
ANSWER_S: Final = 3.0
"""Limits here: to have a connection, and to have an answer."""

MIGRATE_S: Final = 60.0
"""For another relay that migrates, and for the migration itself."""

MAX_CONNECTIONS: Final = 8
MAX_WAITING: Final = 5_000
"""Statements at once. More means that the server does not keep up."""

_MIGRATION_LOCK: Final = 0x52656C61794A3031

SQL: Final = load("relay.journal.postgres")
_MIGRATIONS: Final = migrations("relay.journal.postgres")


class Server:
    """One database."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.place = masked(url)
        self._owner = TaskOwner("journal", self.report)
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    def __repr__(self) -> str:
        return f"<postgres {self.place}: {len(self._owner)} statements>"

    def report(self, task: str, error: BaseException) -> None:
        """Errors of statements are values, and told to those who wait: what comes here is a mistake of ours."""
        structlog.get_logger("relay.journal").error("a task of the journal died", task=task, error=repr(error))

    async def start(self) -> None:
        """Connect, and bring the tables up to date."""
        try:
            self._pool = await self._connect()
            async with asyncio.timeout(2 * MIGRATE_S):
                error = await asyncio.shield(self._owner.spawn("migrate", self._migrated(self._pool)))
        except Exception as error:
            raise fault(error, self.place, maybe=False) from error
        if error is not None:
            raise error if isinstance(error, Unusable) else fault(error, self.place, maybe=False)

    async def _connect(self) -> asyncpg.Pool[asyncpg.Record]:
        pool = asyncpg.create_pool(
            self._url,
            min_size=0,
            max_size=MAX_CONNECTIONS,
            timeout=CONNECT_S,
            reset=_no_reset,
            server_settings={
                "application_name": "relay",
                "statement_timeout": _ms(STATEMENT_S),
                "lock_timeout": _ms(LOCK_S),
                "idle_in_transaction_session_timeout": _ms(IDLE_S),
                "jit": "off",
            },
        )
        return await pool

    async def _migrated(self, pool: asyncpg.Pool[asyncpg.Record]) -> Exception | None:
        """A task of its own, which ends with the pool: the driver's way out of a transaction waits for the server."""
        try:
            await self._migrate(pool)
        except Exception as error:  # noqa: BLE001 - whoever starts waits for it, unless he has stopped
            return error
        return None

    async def _migrate(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        async with pool.acquire(timeout=CONNECT_S) as connection, connection.transaction():
            for limit in ("lock_timeout", "statement_timeout"):
                await connection.execute("SELECT set_config($1, $2, true)", limit, _ms(MIGRATE_S))
            await connection.execute(SQL["lock_migrations"], _MIGRATION_LOCK)
            await connection.execute(SQL["prepare_schema"])
            await connection.execute(SQL["prepare_versions"])
            version = await connection.fetchval(SQL["version"])
            if version > len(_MIGRATIONS):
                raise Unusable(f"the journal {self.place} ([journal] url) was made by a newer relay; run that one")
            for number, script in enumerate(_MIGRATIONS[version:], version + 1):
                await connection.execute(script)
                await connection.execute(SQL["migrated"], number)

    async def look(self, name: str, *arguments: Any) -> Sequence[asyncpg.Record]:
        """The rows of a statement that changes nothing."""
        return await self._run(name, arguments, changes=False)

    async def change(self, name: str, *arguments: Any) -> Sequence[asyncpg.Record]:
        """The rows of a statement, once it is committed."""
        return await self._run(name, arguments, changes=True)

    async def _run(self, name: str, arguments: Sequence[Any], *, changes: bool) -> Sequence[asyncpg.Record]:
        if self._pool is None:
            raise Unavailable("the journal is closed")
        if len(self._owner) >= MAX_WAITING:
            raise Unavailable(f"the journal {self.place} ([journal] url) is too slow: {len(self._owner)} wait for it")
        result = await asyncio.shield(self._owner.spawn(name, self._carry(self._pool, SQL[name], arguments, changes)))
        if isinstance(result, Exception):
            raise result
        return result

    async def _carry(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        sql: str,
        arguments: Sequence[Any],
        changes: bool,  # noqa: FBT001
    ) -> Sequence[asyncpg.Record] | Exception:
        """Errors are values here: whoever asked may have stopped waiting."""
        first = await self._try(pool, sql, arguments, changes=changes)
        if isinstance(first, AGAIN) or (isinstance(first, CONNECTION) and not changes):
            first = await self._try(pool, sql, arguments, changes=changes)
        if isinstance(first, Exception) and not isinstance(first, Unavailable):
            return fault(first, self.place, maybe=changes)
        return first

    async def _try(
        self, pool: asyncpg.Pool[asyncpg.Record], sql: str, arguments: Sequence[Any], *, changes: bool
    ) -> Sequence[asyncpg.Record] | Exception:
        try:
            connection = await pool.acquire(timeout=CONNECT_S)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for it
            # Nothing was asked yet.
            return fault(error, self.place, maybe=False) if changes else error
        try:
            return await connection.fetch(sql, *arguments, timeout=ANSWER_S)
        except Exception as error:  # noqa: BLE001 - as above
            if isinstance(error, CONNECTION):
                with contextlib.suppress(asyncpg.InterfaceError):  # the pool may have seen it first, and taken it back
                    connection.terminate()
            return error
        finally:
            await pool.release(connection)

    async def settled(self) -> None:
        """Wait until what was asked has finished, within its limits."""
        await self._owner.settled()

    def disconnect(self) -> None:
        """Break off what is still under way. Idempotent."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()


async def _no_reset(_: asyncpg.Connection[asyncpg.Record]) -> None:
    """Nothing here changes a session, so nothing has to be put back: a round trip less for each statement."""


def _ms(seconds: float) -> str:
    return str(round(seconds * 1000))
