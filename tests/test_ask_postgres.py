"""Changes that come to light out of their order: several relays commit at once on one server."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import asyncpg
import pytest

from relay.ask.feed import Feed
from relay.journal.shelf import Shelf
from relay.lifecycle import State
from relay.tasks import TaskOwner
from relay.testing.samples import admitted, moved
from tests.postgres_server import PostgresPrograms, PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from relay.journal.records import Change

SLOW = """
    INSERT INTO relay.event (submission, origin, state, detail, actor, fence, version, at_ms)
    VALUES ($1, 'queued', 'queued', 'slow', '', 0, 2, relay.now_ms())
"""
"""A change by another relay, which takes its time to commit."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One for all tests here."""
    with PostgresPrograms() as programs, PostgresServer(programs, "asked") as server:
        yield server


@pytest.mark.parametrize("already", [True, False], ids=["already under way", "begun later"])
async def test_an_earlier_change_that_is_committed_later_is_heard(server: PostgresServer, *, already: bool) -> None:
    """Once, also where it was under way when the listening began."""
    faults: list[BaseException] = []
    owner = TaskOwner("test", lambda _, error: faults.append(error))
    shelf = Shelf(server.url())
    await shelf.start(owner)
    heard: asyncio.Queue[tuple[int, str, State]] = asyncio.Queue()

    async def hear(changes: Sequence[Change]) -> None:
        for change in changes:
            heard.put_nowait((change.record.id, change.event.detail, change.event.state))

    feed = Feed(shelf, hear, owner, time.monotonic)
    slow, quick = await admitted(shelf.journal, 1), await admitted(shelf.journal, 2)
    other = await asyncpg.connect(server.url())
    transaction = other.transaction()
    try:
        async with asyncio.timeout(20):
            if not already:
                await feed.start()
            await transaction.start()
            await other.execute(SLOW, slow.id)
            if already:
                await feed.start()
            await moved(shelf.journal, quick, State.SEALED)
            assert await heard.get() == (quick.id, "", State.SEALED)
            await transaction.commit()
            assert await heard.get() == (slow.id, "slow", State.QUEUED)
            await moved(shelf.journal, slow, State.CANCELLED)
            assert await heard.get() == (slow.id, "", State.CANCELLED)
    finally:
        feed.stop()
        await other.close()
        await shelf.close()
        await owner.close()
    assert heard.empty()
    assert faults == []
