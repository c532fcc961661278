"""Where a process has its journal: what the last check found."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relay import config
from relay.journal import shelf as shelves
from relay.journal.faults import Unavailable
from relay.journal.shelf import Found, Shelf
from relay.sides import shelf_of
from relay.tasks import TaskOwner
from relay.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def background() -> AsyncIterator[TaskOwner]:
    """What runs beside; nothing of it may die."""
    died: list[str] = []
    owner = TaskOwner("test", lambda name, _error: died.append(name))
    yield owner
    await owner.close()
    assert died == []


async def test_a_scrape_says_whether_the_journal_can_be_written(tmp_path: Path, background: TaskOwner) -> None:
    """From the start, as the last check found it."""
    metrics = Metrics()
    shelf = shelf_of(config.check({"journal": {"url": f"sqlite:///{tmp_path}/journal.db"}}), metrics)
    assert shelf is not None
    assert metrics.journal_ready.values() == {(): (0,)}
    await shelf.start(background)
    assert metrics.journal_ready.values() == {(): (1,)}
    await shelf.close()
    await shelf.check()
    assert metrics.journal_ready.values() == {(): (0,)}


async def test_without_a_journal_a_scrape_says_nothing() -> None:
    """No alert rings for what nobody wants."""
    metrics = Metrics()
    assert shelf_of(config.check({}), metrics) is None
    assert metrics.journal_ready.values() == {}


async def test_a_check_that_fails_is_remembered(background: TaskOwner, monkeypatch: pytest.MonkeyPatch) -> None:
    """And forgotten with the next one that does not."""
    shelf = Shelf("memory:")
    await shelf.start(background)

    async def full() -> None:
        raise Unavailable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(shelf.journal, "check", full)
        assert await shelf.check() == Found(ready=False, detail="the disk is full")
        assert not shelf.ready
    assert (await shelf.check()).ready
    assert shelf.ready


async def test_a_store_that_hangs_holds_up_no_end(background: TaskOwner, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked of it last is given up."""
    monkeypatch.setattr(shelves, "CLOSE_S", 0.05)
    shelf, let_go = Shelf("memory:"), asyncio.Event()
    await shelf.start(background)
    monkeypatch.setattr(shelf.journal, "close", let_go.wait)
    async with asyncio.timeout(10):
        await shelf.close()
    with pytest.raises(Unavailable, match="closed"):
        _ = shelf.journal
