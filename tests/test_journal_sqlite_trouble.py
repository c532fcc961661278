"""What can be wrong with the file: said in words, in time, and never half done."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from relay.journal.faults import Unavailable, Unusable
from relay.journal.sqlite import SqliteJournal, thread
from relay.journal.sqlite.connection import Place
from relay.journal.sqlite.reads import SQL
from relay.journal.sqlite.thread import DatabaseThread, Health
from relay.journal.sqlite.troubles import fault
from relay.journal.url import open_journal, sqlite_path
from relay.testing import intake
from relay.testing.samples import admitted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path


PAGE = 4096
DAMAGE = b"\x55" * PAGE


def damage(path: Path, *, pages: int) -> None:
    """Overwrite all but the first ``pages``."""
    found = path.read_bytes() if pages else DAMAGE
    path.write_bytes(found[: pages * PAGE] + DAMAGE * (len(found) // PAGE - pages))


def pragma(connection: sqlite3.Connection, text: str) -> object:
    """What a pragma says."""
    return connection.execute(f"PRAGMA {text}").fetchone()[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the journal is."""
    return tmp_path / "journal.db"


@pytest.fixture
async def journal(path: Path) -> AsyncIterator[SqliteJournal]:
    """One that does not wait for locks."""
    journal = await SqliteJournal.open(path, lock_s=0)
    yield journal
    await journal.close()


async def test_many_that_come_together_share_a_commit(journal: SqliteJournal, path: Path) -> None:
    """While a commit is under way the others gather: 200 calls cost a handful of transactions."""
    commits: list[str] = []
    await journal._writer.run(lambda connection: connection.set_trace_callback(commits.append))
    admissions = await asyncio.gather(*(journal.admit([intake(nonce)]) for nonce in range(200)))
    assert len({each.record.id for (each,) in admissions}) == 200
    assert commits.count("COMMIT") < 20
    with closing(sqlite3.connect(path)) as side:
        assert side.execute("SELECT count(*) FROM submission").fetchone() == (200,)


async def test_nothing_is_answered_before_its_commit(journal: SqliteJournal, path: Path) -> None:
    """At the instant of the answer another connection sees the row."""
    (admission,) = await journal.admit([intake()])
    with closing(sqlite3.connect(path)) as side:
        assert side.execute("SELECT id FROM submission").fetchall() == [(admission.record.id,)]


async def test_every_commit_is_synced(journal: SqliteJournal) -> None:
    """In a write-ahead log, with the strictness that survives the loss of power."""
    pragmas = [await journal._writer.run(pragma, name) for name in ("journal_mode", "synchronous", "foreign_keys")]
    assert pragmas == ["wal", 2, 1]


async def test_a_mistake_in_one_job_leaves_its_group(journal: SqliteJournal) -> None:
    """The others of the same transaction are done, once; only whoever made it hears of it."""

    def mistaken(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO health (one, at_ms) VALUES (2, 0)")

    results = await asyncio.gather(
        *(journal.admit([intake(nonce)]) for nonce in range(5)),
        journal._writer.run(mistaken),
        *(journal.admit([intake(nonce)]) for nonce in range(5, 10)),
        return_exceptions=True,
    )
    assert isinstance(results[5], Unusable)
    assert [type(result) for result in results].count(list) == 10
    assert len(await journal.unfinished()) == 10


@pytest.mark.parametrize("name", ["unfinished", "outstanding", "lowest", "lane_rows", "listing"])
async def test_pages_are_read_off_an_index(journal: SqliteJournal, name: str) -> None:
    """Nothing is sorted and nothing is walked from the start, however many have ended."""
    values = dict.fromkeys(("chain_id", "sender", "nonce", "id", "limit", "states"), 1)
    parameters = values if ":" in SQL[name] else (1,) * SQL[name].count("?")
    plan = await journal._reader.run(
        lambda connection: connection.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", parameters).fetchall()
    )
    steps = [step for *_, step in plan]
    assert steps[0].startswith("SEARCH submission USING INDEX submission_")
    assert not any("TEMP B-TREE" in step for step in steps)


async def test_a_lock_that_is_not_let_go(journal: SqliteJournal, path: Path) -> None:
    """Refused in bounded time, reads go on, and the next write after it works."""
    record = await admitted(journal)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match=r"locked by another process.*within 0 s") as caught:
            await journal.admit([intake()])
        assert "[journal] url" in str(caught.value)
        assert not caught.value.maybe
        assert await journal.by_id(record.id) == record
        with pytest.raises(Unavailable):
            await SqliteJournal.open(path, lock_s=0)
        holder.execute("ROLLBACK")
    assert (await journal.admit([intake()]))[0].fresh


async def test_a_full_disk(journal: SqliteJournal) -> None:
    """Refused, nothing half written; with room again it goes on."""
    entry = intake(raw=bytes(1_000_000))
    assert await journal._writer.run(pragma, "max_page_count = 60") == 60
    with pytest.raises(Unavailable, match=r"\[journal\] url.*cannot grow"):
        await journal.admit([entry])
    assert await journal.unfinished() == []
    with pytest.raises(Unavailable):
        await journal.admit([entry])
    await journal._writer.run(pragma, "max_page_count = 1")
    with pytest.raises(Unavailable, match="cannot grow"):
        await journal.check()
    await journal._writer.run(pragma, "max_page_count = 100000")
    await journal.check()
    assert (await journal.admit([entry]))[0].fresh


async def test_a_file_that_is_no_database(path: Path) -> None:
    """Left alone."""
    damage(path, pages=0)
    with pytest.raises(Unusable, match=r"\[journal\] url.*is no SQLite database"):
        await SqliteJournal.open(path)
    assert await asyncio.to_thread(path.read_bytes) == DAMAGE


async def test_a_database_of_another_program(path: Path) -> None:
    """Left alone too."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (a)")
    with pytest.raises(Unusable, match="another program"):
        await SqliteJournal.open(path)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]


async def test_a_journal_of_a_newer_relay(path: Path) -> None:
    """Not touched: its tables may mean something else."""
    await (await SqliteJournal.open(path)).close()
    with closing(sqlite3.connect(path)) as side:
        side.execute("PRAGMA user_version = 99")
    with pytest.raises(Unusable, match="newer relay"):
        await SqliteJournal.open(path)


async def test_a_damaged_file(path: Path) -> None:
    """Said so, by whichever call meets the damage."""
    journal = await SqliteJournal.open(path)
    await journal.admit([intake(nonce) for nonce in range(300)])
    await journal.close()
    damage(path, pages=30)
    damaged = await SqliteJournal.open(path)
    with pytest.raises(Unusable, match="is damaged; restore it"):
        await damaged.admit([intake()])
    await damaged.close()
    damage(path, pages=1)
    with pytest.raises(Unusable, match="is damaged; restore it"):
        await SqliteJournal.open(path)


async def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    """It is not made: a wrong path is a mistake."""
    with pytest.raises(Unusable, match="its directory must exist"):
        await SqliteJournal.open(tmp_path / "nowhere" / "journal.db")


def test_a_read_only_file(path: Path) -> None:
    """In the library's own error, for root may write everything."""
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE one (a)")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as side:
        with pytest.raises(sqlite3.OperationalError) as caught:
            side.execute("INSERT INTO one VALUES (1)")
        told = fault(caught.value, "sqlite:///journal.db", 2)
    assert isinstance(told, Unusable)
    assert "sqlite:///journal.db ([journal] url) is read-only" in str(told)


async def test_a_queue_that_is_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes then is answered at once; those before him are served."""
    monkeypatch.setattr(thread, "MAX_WAITING", 2)
    worker = DatabaseThread(Place(path, 0, writes=True), Health())
    await worker.start()
    one, two, three = await asyncio.gather(*(worker.run(lambda _: 7) for _ in range(3)), return_exceptions=True)
    assert (one, two) == (7, 7)
    assert isinstance(three, Unavailable)
    assert "too slow: 2 wait" in str(three)
    await worker.close()


async def test_what_was_asked_before_closing_is_done(path: Path) -> None:
    """And what is asked after it is refused."""
    journal = await SqliteJournal.open(path)
    calls = [asyncio.get_running_loop().create_task(journal.admit([intake(nonce)])) for nonce in range(20)]
    await asyncio.sleep(0)
    await journal.close()
    assert len(await asyncio.gather(*calls)) == 20
    with pytest.raises(Unavailable, match="closed"):
        await journal.admit([intake()])


async def test_a_migration_that_was_killed_is_made_again(path: Path) -> None:
    """Tables and version come in one transaction: what was begun and not committed is gone."""
    with closing(sqlite3.connect(path, isolation_level=None)) as killed:
        killed.execute("PRAGMA journal_mode = WAL")
        killed.execute("BEGIN IMMEDIATE")
        killed.execute("CREATE TABLE submission (id)")
    journal = await SqliteJournal.open(path)
    await admitted(journal)
    await journal.close()


async def test_two_that_open_a_new_file_at_once(path: Path) -> None:
    """One makes the tables, the other finds them."""
    journals = await asyncio.gather(*(SqliteJournal.open(path) for _ in range(4)))
    records = [await admitted(journal) for journal in journals]
    assert len({record.id for record in records}) == 4
    for journal in journals:
        await journal.close()


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///journal.db", "journal.db"),
        ("sqlite:///var/journal.db", "var/journal.db"),
        ("sqlite:////var/lib/relay/journal.db", "/var/lib/relay/journal.db"),
        ("sqlite:///with%20space.db", "with space.db"),
    ],
)
def test_the_path_in_a_url(url: str, path: str) -> None:
    """Three slashes: relative; four: absolute."""
    assert str(sqlite_path(url)) == path


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "sqlite://journal.db",
        "sqlite:///a?b=c",
        "sqlite:////dir/",
        "mysql://a/b",
        "x",
    ],
)
async def test_a_url_that_means_nothing(url: str) -> None:
    """Its fault shows the forms that there are."""
    with pytest.raises(Unusable, match=r"\[journal\] url.*sqlite:///relative"):
        await open_journal(url)


def removed(path: Path) -> None:
    """Its name leads nowhere."""
    path.rename(path.with_name("elsewhere"))


def replaced(path: Path) -> None:
    """Its name leads to another file, as after a restore under a running relay."""
    removed(path)
    path.touch()


@pytest.mark.parametrize("lose", [removed, replaced])
async def test_a_file_that_is_gone_takes_nothing_more(
    journal: SqliteJournal, path: Path, lose: Callable[[Path], None]
) -> None:
    """What were written into it would be lost at the next start."""
    await journal.admit([intake()])
    lose(path)
    with pytest.raises(Unusable, match="removed or replaced; restart the relay"):
        await journal.admit([intake()])
    with pytest.raises(Unusable, match="removed or replaced"):
        await journal.check()


async def test_damage_that_a_read_finds_ends_the_writing(path: Path) -> None:
    """It is in /readyz, and nothing is promised on such a file."""
    journal = await SqliteJournal.open(path)
    await journal.admit([intake(nonce) for nonce in range(300)])
    await journal.close()
    damage(path, pages=30)
    damaged = await SqliteJournal.open(path)
    operations: tuple[Callable[[], Awaitable[Any]], ...] = (
        damaged.unfinished,
        damaged.check,
        partial(damaged.admit, [intake()]),
    )
    for operation in operations:
        with pytest.raises(Unusable, match="is damaged"):
            await operation()
    await damaged.close()
