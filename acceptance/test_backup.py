"""A backup of the journal, taken while the relay works, and a relay that starts with it after the journal was lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from acceptance.rig.backups import FILE_WAYS, FileBackup, ServerBackup
from acceptance.rig.kills import COUNTS, LANDED, SUBMISSIONS, SqliteStore, killing, sent
from acceptance.rig.kills_later import TOKEN, sweep
from acceptance.rig.signing import funded
from acceptance.test_kills import SENDERS, Load, postgres, programs
from relay.journal.records import START
from relay.journal.url import open_journal
from relay.lifecycle import OPEN, State

if TYPE_CHECKING:
    from pathlib import Path

    from acceptance.rig.kills import Killing, PostgresStore, Store
    from acceptance.rig.parts import Part, Rig
    from tests.postgres_server import PostgresPrograms

    Backup = FileBackup | ServerBackup

__all__ = ["postgres", "programs"]

HELD = {
    "queued": {"do": "hang", "method": COUNTS, "times": 1},
    "sealed": {"do": "hang", "method": SUBMISSIONS, "times": 1},
    "sent": {"do": "hang", "method": SUBMISSIONS, "when": "after", "times": 1},
}
"""Where the first of three stands when the backup is taken; the others are queued."""

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=[*FILE_WAYS, "dump"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Store, Backup]:
    """A store and a way to back it up."""
    if request.param in FILE_WAYS:
        return SqliteStore(f"sqlite:///{tmp_path / 'journal.db'}"), FileBackup(request.param, tmp_path)
    programs: PostgresPrograms = request.getfixturevalue("programs")
    postgres: PostgresStore = request.getfixturevalue("postgres")
    return postgres, ServerBackup(programs, postgres)


@pytest.mark.parametrize("stood", HELD)
async def test_what_went_on_after_the_backup_is_found(rig: Rig, kept: tuple[Store, Backup], stood: str) -> None:
    """The restored journal is behind the chain: what it says is unfinished is looked up, and ends as it did."""
    store, backup = kept
    async with killing(rig, store, ops__token=TOKEN) as case:
        relay = await case.relay()
        await case.chain.script(HELD[stood])
        async with sent(relay, case.transfers):
            if stood == "queued":
                await case.recorded(State.QUEUED)
            else:
                await case.hanging()
            await backup.take(store)
            await case.chain.call("dev_release")
            await case.all_landed_once()
        await case.kill(relay)
        before = await case.chain.arrivals()
        await restore(case, backup)
        relay = await case.relay()
        await case.until(lambda: landed(case))
        await rig.crowd().once(case.transfers, [relay.url])
        after = await case.chain.arrivals()
        assert [one["hash"] for one in after if one["taken"]] == [one["hash"] for one in before if one["taken"]]


async def landed(case: Killing) -> bool:
    """Does the journal have all three on the chain?"""
    records = [await case.record(transfer) for transfer in case.transfers]
    return all(record is not None and record.state in LANDED for record in records)


async def restore(case: Killing, backup: Backup) -> None:
    """The journal is lost; the backup is in its place."""
    await case.journal.close()
    case.use(await backup.restored())
    case.journal = await open_journal(case.store.url)


async def test_a_backup_in_the_middle_of_traffic(rig: Rig, kept: tuple[Store, Backup]) -> None:
    """Bursts before, meanwhile and after; each yes of either relay is on the chain once, and nothing stays open."""
    store, backup = kept
    async with killing(rig, store, chain={"delay_ms": (0, 10)}, ops__token=TOKEN) as case:
        relay = await case.relay()
        load = Load(rig.crowd(), case.chain.chain_id, relay.url)
        async with load.running():
            await load.crowd.answered(40)
            await backup.take(store)
            await load.crowd.answered(120)
            await case.kill(relay)
            await restore(case, backup)
            relay = await case.relay()
            await load.crowd.answered(len(load.crowd.posts) + 80)
        taken = Counter(one["hash"] for one in await case.chain.arrivals() if one["taken"])
        told = {post.transfer.hash for post in load.crowd.posts if not post.error}
        assert len(told) == sum(load.sent.values())
        assert taken == dict.fromkeys(told, 1)
        assert [await case.chain.count(account.address) for account in funded(SENDERS)] == list(load.sent.values())
        await case.until(lambda: nothing_unsent(case, relay))


async def nothing_unsent(case: Killing, relay: Part) -> bool:
    """Is every record that the backup had on the chain, as it says?"""
    await sweep(case, relay)
    await asyncio.sleep(0.1)
    left = await case.journal.unfinished(START, states=OPEN)
    return all(record.state in LANDED for record in left)
