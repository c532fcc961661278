"""What can be wrong with the server: said in words, in time, and over when it is over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest

from relay.journal.faults import Unavailable, Unusable
from relay.journal.postgres import PostgresJournal
from relay.journal.postgres import server as boundary
from relay.journal.records import Answer, Record, Taken
from relay.lifecycle import State
from relay.tasks import TaskOwner
from relay.testing import intake
from relay.testing.samples import admitted, decision, seal
from tests.postgres_server import PostgresPrograms, PostgresServer
from tests.redis_server import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

NAMED = r"journal postgresql://.*\[journal\] url"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One for all tests here; each leaves it running."""
    with PostgresPrograms() as programs, PostgresServer(programs, "troubled") as server:
        yield server


@pytest.fixture
async def admin(server: PostgresServer) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """Somebody else's connection."""
    admin = await asyncpg.connect(server.url())
    yield admin
    admin.terminate()


@pytest.fixture
async def journal(server: PostgresServer) -> AsyncIterator[PostgresJournal]:
    """On its database."""
    journal = await PostgresJournal.open(server.url())
    yield journal
    await journal.close()


async def test_a_server_that_is_not_there() -> None:
    """At the start it is named, without its credentials."""
    with pytest.raises(Unavailable, match=rf"{NAMED}.*cannot be reached") as caught:
        await PostgresJournal.open(f"postgresql://relay:secret@127.0.0.1:{free_port()}/relay")
    assert "secret" not in str(caught.value)


async def test_a_database_that_is_not_there(server: PostgresServer) -> None:
    """A person must act."""
    with pytest.raises(Unusable, match=f"{NAMED}.*no such database; create it"):
        await PostgresJournal.open(server.url("nowhere"))


async def test_a_user_that_may_not(
    server: PostgresServer, admin: asyncpg.Connection[asyncpg.Record], journal: PostgresJournal
) -> None:
    """What the user needs is said."""
    assert journal is not None, "the tables are there"
    await admin.execute("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN")
    with pytest.raises(Unusable, match=f"{NAMED}.*does not allow it.*needs CREATE on the database"):
        await PostgresJournal.open(server.url().replace("relay@", "guest@"))


async def test_a_restart_is_told_and_survived(server: PostgresServer, journal: PostgresJournal) -> None:
    """While it is down each call fails at once; when it is back the same journal goes on, and everything is there."""
    record = await admitted(journal)
    await asyncio.to_thread(server.stop, "fast")
    with pytest.raises(Unavailable, match=NAMED) as caught:
        await journal.admit([intake()])
    assert not caught.value.maybe
    with pytest.raises(Unavailable, match=NAMED):
        await journal.by_id(record.id)
    server.start()
    assert (await journal.admit([intake()]))[0].fresh
    assert await journal.by_id(record.id) == record


async def test_a_crash_under_load_loses_nothing_that_was_answered(
    server: PostgresServer, journal: PostgresJournal
) -> None:
    """Those in the air fail, in time; the record of each that was answered is there as it was."""
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(admit_all(journal)) for _ in range(4)]
        while await count(journal) < 50:
            pass
        await asyncio.to_thread(server.stop, "immediate")
    server.start()
    for answered in (task.result() for task in calls):
        assert answered
        found = [await journal.by_id(record.id) for record in answered]
        assert found == answered


async def admit_all(journal: PostgresJournal) -> list[Record]:
    """Until it fails."""
    answered = []
    try:
        while True:
            answered.append(await admitted(journal))
    except Unavailable:
        return answered


async def count(journal: PostgresJournal) -> int:
    """Of what is queued, up to a page."""
    return len(await journal.unfinished(states=[State.QUEUED]))


async def test_a_server_that_does_not_answer(
    server: PostgresServer, journal: PostgresJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never a hang: a write may have happened, a look is tried twice; then both work again."""
    monkeypatch.setattr(boundary, "ANSWER_S", 0.3)
    monkeypatch.setattr(boundary, "CONNECT_S", 0.3)
    record = await admitted(journal)
    server.pause()
    entry = intake()
    with pytest.raises(Unavailable, match=f"{NAMED}.*cannot be reached: no answer in time") as caught:
        await journal.admit([entry])
    assert caught.value.maybe
    with pytest.raises(Unavailable, match=NAMED):
        await journal.by_id(record.id)
    server.resume()
    assert await journal.by_id(record.id) == record
    assert len(await journal.admit([entry])) == 1


@pytest.mark.parametrize("begun", [False, True])
async def test_neither_a_start_nor_an_end_waits_for_a_server_that_hangs(
    server: PostgresServer, admin: asyncpg.Connection[asyncpg.Record], begun: bool
) -> None:
    """A start that is cancelled in its migration, and an end that is cancelled while a statement is under way."""
    journal = await PostgresJournal.open(server.url())
    owner = TaskOwner("test", lambda *_: None)
    async with admin.transaction():
        await admin.execute("LOCK TABLE relay.migration, relay.submission")
        work = journal.admit([intake()]) if begun else PostgresJournal.open(server.url())
        task = owner.spawn("under way", work)
        while not await admin.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        server.pause()
        try:
            if not begun:
                task.cancel()
            else:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await journal.close()
            async with asyncio.timeout(1):
                await asyncio.wait([task])
        finally:
            server.resume()
    await journal.close()
    assert task.cancelled() or isinstance(task.exception(), Unavailable)


async def test_a_lock_that_is_not_let_go(
    server: PostgresServer, admin: asyncpg.Connection[asyncpg.Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's open transaction holds a row: whoever wants it is told in time, and nothing was done."""
    monkeypatch.setattr(boundary, "LOCK_S", 0.1)
    journal = await PostgresJournal.open(server.url())
    record = await admitted(journal)
    async with admin.transaction():
        await admin.execute("SELECT 1 FROM relay.submission WHERE id = $1 FOR UPDATE", record.id)
        with pytest.raises(Unavailable, match=f"{NAMED}.*kept a row locked for too long") as caught:
            await journal.decide([decision(record, State.FAILED)])
        assert not caught.value.maybe
    assert await journal.by_id(record.id) == record
    assert isinstance((await journal.decide([decision(record, State.FAILED)]))[0], Record)
    await journal.close()


async def test_no_session_waits_for_ever(journal: PostgresJournal) -> None:
    """The limits hold at the server, below a lease, for whatever this relay leaves behind."""
    told = await journal._server.look("by_id", 0)
    assert told == []
    assert journal._server._pool is not None
    for name, expected in (
        ("statement_timeout", "2s"), ("lock_timeout", "1s"), ("idle_in_transaction_session_timeout", "2s"),
    ):  # fmt: skip
        assert await journal._server._pool.fetchval(f"SHOW {name}") == expected


async def test_a_slow_statement_is_ended(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the server, which then has done nothing."""
    monkeypatch.setattr(boundary, "STATEMENT_S", 0.1)
    monkeypatch.setattr(boundary, "SQL", {**boundary.SQL, "by_id": "SELECT pg_sleep($1)"})
    journal = await PostgresJournal.open(server.url())
    with pytest.raises(Unavailable, match=f"{NAMED}.*did not finish a statement in time"):
        await journal.by_id(60)
    await journal.close()


async def test_many_that_open_an_empty_database_at_once(
    server: PostgresServer, admin: asyncpg.Connection[asyncpg.Record]
) -> None:
    """One makes the tables, the others wait for it and find them."""
    await admin.execute("CREATE DATABASE fresh")
    journals = await asyncio.gather(*(PostgresJournal.open(server.url("fresh")) for _ in range(4)))
    records = [await admitted(journal) for journal in journals]
    assert len({record.id for record in records}) == 4
    for journal in journals:
        await journal.close()


async def test_a_migration_that_was_killed_is_made_again(
    server: PostgresServer, admin: asyncpg.Connection[asyncpg.Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables and version come in one transaction: half of them is nothing."""
    await admin.execute("CREATE DATABASE halfway")
    script = boundary._MIGRATIONS[0]
    monkeypatch.setattr(boundary, "_MIGRATIONS", (f"{script}; SELECT pg_terminate_backend(pg_backend_pid())",))
    with pytest.raises(Unavailable):
        await PostgresJournal.open(server.url("halfway"))
    monkeypatch.undo()
    journal = await PostgresJournal.open(server.url("halfway"))
    await admitted(journal)
    await journal.close()


async def test_a_journal_of_a_newer_relay(server: PostgresServer, admin: asyncpg.Connection[asyncpg.Record]) -> None:
    """Not touched: its tables may mean something else."""
    await admin.execute("CREATE DATABASE newer")
    await (await PostgresJournal.open(server.url("newer"))).close()
    there = await asyncpg.connect(server.url("newer"))
    await there.execute("INSERT INTO relay.migration VALUES (99, 0)")
    await there.close()
    with pytest.raises(Unusable, match=f"{NAMED}.*newer relay"):
        await PostgresJournal.open(server.url("newer"))


async def test_groups_in_any_order_never_wait_for_each_other(server: PostgresServer, journal: PostgresJournal) -> None:
    """Two instances write the same rows and keys in opposite orders, again and again: no deadlock, nothing lost."""
    other = await PostgresJournal.open(server.url())
    entries = [intake(nonce, key=f"cross {nonce}") for nonce in range(12)]
    crossed = [entry._replace(key=turned.key) for entry, turned in zip(entries, entries[::-1], strict=True)]
    groups = await asyncio.gather(
        *(each.admit(some) for some in (entries, crossed, entries[::-1], crossed[::-1]) for each in (journal, other))
    )
    assert sum(admission.fresh for group in groups for admission in group) == len(entries)
    records = {admission.record.id: admission.record for group in groups for admission in group}
    rows = list(records.values())
    sealed = await asyncio.gather(journal.seal([*map(seal, rows)]), other.seal([*map(seal, rows[::-1])]))
    attempts = [attempt.id for record in rows for attempt in await journal.attempts(record.id)]
    assert len(attempts) == len(rows) == sum(type(each).__name__ == "Sealed" for side in sealed for each in side)
    facts = [Answer(attempt, Taken.NO, "refused") for attempt in attempts]
    newest = [record for row in rows if (record := await journal.by_id(row.id)) is not None]
    decisions = [
        decision(record, State.FAILED, facts=(fact,)) for record, fact in zip(newest, facts[::-1], strict=True)
    ]
    ends = await asyncio.gather(journal.decide(decisions), other.decide(decisions[::-1]))
    assert sum(isinstance(each, Record) for side in ends for each in side) == len(rows)
    await other.close()


async def test_a_key_is_not_taken_from_one_who_is_taken_up_again(
    journal: PostgresJournal, admin: asyncpg.Connection[asyncpg.Record]
) -> None:
    """It had failed and released its key; while it is being retried, other bytes wait, and then find the key held."""
    record = (await journal.admit([intake(0, key="contested")]))[0].record
    await journal.decide([decision(record, State.FAILED)])
    async with admin.transaction():
        await admin.execute("UPDATE relay.submission SET state = 'queued', version = 3 WHERE id = $1", record.id)
        admitting = asyncio.get_running_loop().create_task(journal.admit([intake(1, key="contested")]))
        while not await admin.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
            pass
    (admission,) = await admitting
    assert (admission.fresh, admission.same_bytes, admission.record.id) == (False, False, record.id)


async def test_a_queue_that_is_full(journal: PostgresJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes then is answered at once."""
    monkeypatch.setattr(boundary, "MAX_WAITING", 2)
    results = await asyncio.gather(*(journal.by_id(1) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results].count(Unavailable) == 1


async def test_what_was_asked_before_closing_is_done(server: PostgresServer) -> None:
    """And what is asked after it is refused."""
    journal = await PostgresJournal.open(server.url())
    calls = [asyncio.get_running_loop().create_task(journal.admit([intake(nonce)])) for nonce in range(20)]
    await asyncio.sleep(0)
    await journal.close()
    assert len(await asyncio.gather(*calls)) == 20
    with pytest.raises(Unavailable, match="closed"):
        await journal.check()
