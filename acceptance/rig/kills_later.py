"""A relay that is killed in a sweep, or while it makes the tables of its journal.

Job: bring a sweep to a step, as `kills` does with a submission; a relay that dies at a chosen statement.
Rules: as in `kills`. What the sweep waits for (two minutes) is moved in the store and not waited for.
Must not know: which tests kill.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Final

import asyncpg

from acceptance.rig.kills import LOOK_UPS, PATIENCE_S, SUBMISSIONS, PostgresStore
from acceptance.rig.parts import RELAY_READY, environment
from acceptance.rig.processes import ProcessEnded
from relay.journal.url import sqlite_path
from relay.lifecycle import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from acceptance.rig.kills import Killing, Store
    from acceptance.rig.parts import Part, Rig
    from acceptance.rig.processes import Process

TOKEN: Final = "the-operators-own-token"
NOWHERE: Final = "http://127.0.0.1:1"
OLD_MS: Final = 200_000
NOT_MINED: Final = {"mode": "pool", "block_time_s": None}
DYING: Final = """
import os, re, signal, sqlite3, sys
connect, left = sqlite3.connect, int(sys.argv.pop(1))
def told(statement):
    global left
    left -= bool(re.search("^(BEGIN|CREATE|PRAGMA (user_version|application_id) =|COMMIT)", statement, re.MULTILINE))
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if statement == "COMMIT":
        left = sys.maxsize
def dying(*arguments, **named):
    connection = connect(*arguments, **named)
    connection.set_trace_callback(told)
    return connection
sqlite3.connect = dying
from relay.cli import main
raise SystemExit(main())
"""
"""A relay that dies right before it begins a statement of its migration: the number of those before it is given."""


async def sweep(case: Killing, relay: Part) -> None:
    """Have ``relay`` sweep now."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"{relay.ops_url}/api/sweep"
    async with case.chain.session.post(url, json={"reason": "a test"}, headers=headers) as answer:
        assert answer.status == 202, await answer.text()


async def grow_old(store: Store) -> None:
    """Whatever is in the journal has stood where it stands for longer than the sweep waits."""
    if isinstance(store, PostgresStore):
        connection = await asyncpg.connect(store.url)
        await connection.execute(f"UPDATE relay.submission SET since_ms = since_ms - {OLD_MS}")
        await connection.close()
        return
    with closing(sqlite3.connect(sqlite_path(store.url), isolation_level=None, timeout=PATIENCE_S)) as file:
        file.execute(f"UPDATE submission SET since_ms = since_ms - {OLD_MS}")


async def dropped(case: Killing, relay: Part) -> None:
    """All three were taken, and the node has lost them; its record begins anew."""
    for transfer in case.transfers:
        assert await case.rig.caller(relay.url).call("eth_sendRawTransaction", transfer.raw) == transfer.hash
    await case.recorded(State.PENDING)
    await case.chain.forget(*(transfer.hash for transfer in case.transfers))
    await case.chain.call("dev_clear")
    await grow_old(case.store)


# The steps.


async def in_look_ups(case: Killing, relay: Part) -> None:
    """The node does not say whether it knows them."""
    await case.chain.script({"do": "hang", "method": LOOK_UPS, "times": 1})
    await sweep(case, relay)
    await case.hanging()
    await case.kill(relay)


async def before_decision(case: Killing, relay: Part) -> None:
    """It has said so, and the store takes nothing."""
    await case.chain.script({"do": "hang", "method": LOOK_UPS, "times": 1})
    await sweep(case, relay)
    await case.hanging()
    async with case.store.held():
        await case.chain.call("dev_release")
        await case.until(case.released)
        await case.kill(relay)


async def before_resend(case: Killing, relay: Part) -> None:
    """The first one's resend is on disk, and the node has nothing of it."""
    await case.chain.script({"do": "hang", "method": SUBMISSIONS, "times": 1})
    await sweep(case, relay)
    await case.hanging()
    await case.kill(relay)


async def after_resend(case: Killing, relay: Part) -> None:
    """The node has it again, and has not answered."""
    await case.chain.script({"do": "hang", "method": SUBMISSIONS, "when": "after", "times": 1})
    await sweep(case, relay)
    await case.hanging()
    await case.kill(relay)


async def before_end(case: Killing, relay: Part) -> None:
    """The node has answered, and the store takes nothing."""
    await case.chain.script({"do": "hang", "method": SUBMISSIONS, "when": "after", "times": 1})
    await sweep(case, relay)
    await case.hanging()
    async with case.store.held():
        await case.chain.call("dev_release")
        await case.until(case.answered)
        await case.kill(relay)


SWEEP_STEPS: Final = {
    step.__name__: step for step in (in_look_ups, before_decision, before_resend, after_resend, before_end)
}


async def all_swept_once(case: Killing, relay: Part) -> None:
    """As `Killing.all_landed_once`, by sweeps of ``relay`` and with blocks made by hand."""

    async def on() -> None:
        while True:
            await sweep(case, relay)
            await case.chain.call("dev_mine")
            await asyncio.sleep(0.2)

    async with asyncio.TaskGroup() as group:
        going_on = group.create_task(on(), name="sweeps and blocks")
        await case.all_landed_once()
        going_on.cancel()


# The tables.


def serving(store: Store) -> dict[str, object]:
    """Settings of a relay that needs no node yet."""
    return {
        "journal__url": store.url, "upstream__url": NOWHERE,
        "server__listen": "127.0.0.1:0", "ops__listen": "127.0.0.1:0",
    }  # fmt: skip


async def dying(rig: Rig, statement: int, **settings: object) -> Process:
    """``relay serve``, which dies before this statement of its journal's migration."""
    return await rig.start("relay", [sys.executable, "-c", DYING, str(statement), "serve"], env=environment(settings))


async def dies(process: Process) -> bool:
    """Does it, before it is ready? Then it has ended."""
    try:
        await process.line(RELAY_READY)
    except ProcessEnded:
        assert process.returncode == -signal.SIGKILL, process.output
        return True
    return False


@asynccontextmanager
async def migration_held(store: PostgresStore, table: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """Whoever makes the tables waits at this one: another is making it, and has not committed."""
    connection = await asyncpg.connect(store.url)
    await connection.execute("CREATE SCHEMA IF NOT EXISTS relay")
    making = connection.transaction()
    await making.start()
    await connection.execute(f"CREATE TABLE relay.{table} ()")
    try:
        yield connection
    finally:
        await making.rollback()
        await connection.close()


async def waiting(connection: asyncpg.Connection[asyncpg.Record], count: int) -> None:
    """Until so many wait for locks of the server."""
    async with asyncio.timeout(PATIENCE_S):
        while await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
