"""Relays with a journal that are killed in a sweep, and while they make the journal's tables."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.rig.kills import PostgresStore, SqliteStore, kill, killing
from acceptance.rig.kills_later import (
    NOT_MINED,
    NOWHERE,
    SWEEP_STEPS,
    TOKEN,
    all_swept_once,
    dies,
    dropped,
    dying,
    migration_held,
    serving,
    waiting,
)
from acceptance.rig.parts import Part
from acceptance.test_kills import postgres, programs, store
from relay.journal.url import sqlite_path

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.rig.kills import Store
    from acceptance.rig.parts import Rig

__all__ = ["postgres", "programs", "store"]

STATEMENTS = 20
"""At least, of the migration of a file."""
TABLES = ("migration", "submission", "event", "health")

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("step", SWEEP_STEPS)
async def test_what_a_killed_sweep_left_lands_once(rig: Rig, store: Store, step: str, workers: str) -> None:
    """The node had lost what it took: after the restart each is there again, once, in order."""
    async with killing(rig, store, "--workers", workers, chain=NOT_MINED, ops__token=TOKEN) as case:
        relay = await case.relay()
        await dropped(case, relay)
        await SWEEP_STEPS[step](case, relay)
        await all_swept_once(case, await case.relay())


@pytest.mark.parametrize("then", ["restart", "other"])
@pytest.mark.parametrize("step", SWEEP_STEPS)
async def test_what_one_of_two_left_in_a_sweep_lands_once(
    rig: Rig, postgres: PostgresStore, step: str, then: str
) -> None:
    """It starts again, or never does and the other one sweeps."""
    redis = await rig.redis()
    limits: dict[str, Any] = {"redis__lease_ms": 1500, "ordering__max_wait_s": 3.0}
    async with killing(rig, postgres, "--redis", redis.url, chain=NOT_MINED, ops__token=TOKEN, **limits) as case:
        other, relay = await case.relay("two"), await case.relay()
        await dropped(case, relay)
        await SWEEP_STEPS[step](case, relay)
        await all_swept_once(case, await case.relay() if then == "restart" else other)


@pytest.mark.timeout(300)
async def test_a_relay_that_dies_at_each_statement_of_its_migration(rig: Rig, tmp_path: Path) -> None:
    """One start after the other on one file, each dies one statement later; then one that does not."""
    file = SqliteStore(f"sqlite:///{tmp_path / 'journal.db'}")
    before = 0
    while await dies(await dying(rig, before, **serving(file))):
        assert not tables(file)
        before += 1
    assert before > STATEMENTS
    await lands(rig, file)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_server_whose_migration_was_killed(rig: Rig, postgres: PostgresStore, table: str, workers: str) -> None:
    """It is rolled back where it was, and its lock is free: the next start makes the tables."""
    async with migration_held(postgres, table) as other:
        relay = await rig.command("serve", "--workers", workers, **serving(postgres))
        await waiting(other, 1)
        await kill(Part(relay, ""))
    await lands(rig, postgres)


async def test_two_instances_of_which_one_dies_in_the_migration(rig: Rig, postgres: PostgresStore) -> None:
    """The other waits for it, and makes the tables itself."""
    async with asyncio.TaskGroup() as group, migration_held(postgres, "event") as other:
        first = await rig.command("serve", **serving(postgres))
        await waiting(other, 1)
        second = group.create_task(rig.relay(NOWHERE, journal__url=postgres.url), name="second")
        await waiting(other, 2)
        await kill(Part(first, ""))
    _, checks = await rig.readiness(second.result())
    assert checks["journal"]["ready"]
    await lands(rig, postgres)


def tables(store: SqliteStore) -> list[str]:
    """In the file."""
    with closing(sqlite3.connect(sqlite_path(store.url))) as file:
        return [name for (name,) in file.execute("SELECT name FROM sqlite_schema")]


async def lands(rig: Rig, store: Store) -> None:
    """A relay starts with this store, and carries three transactions out."""
    async with killing(rig, store) as case:
        relay = await case.relay()
        await rig.crowd().once(case.transfers, [relay.url])
        await case.all_landed_once()
