"""Background tasks are owned: kept, named, watched, ended."""

from __future__ import annotations

import asyncio
import gc

from relay.tasks import TaskOwner


async def test_a_task_that_dies_is_reported_once_with_its_name() -> None:
    """Nothing fails in silence."""
    seen: list[tuple[str, str]] = []
    owner = TaskOwner("room", lambda name, error: seen.append((name, str(error))))

    async def die() -> None:
        raise ValueError("why")

    owner.start("job", die())
    await owner.settled()

    assert seen == [("room.job", "why")]


async def test_a_task_nobody_refers_to_is_kept() -> None:
    """The event loop alone would let the collector have it."""
    owner = TaskOwner("room", lambda *_: None)
    gate = asyncio.Event()
    done = asyncio.Event()

    async def work() -> None:
        await gate.wait()
        done.set()

    owner.start("job", work())
    gc.collect()
    gate.set()
    await done.wait()

    assert repr(owner) == "<TaskOwner room: 1 running>"
    await owner.settled()
    assert len(owner) == 0


async def test_closing_cancels_and_waits_without_a_report() -> None:
    """The end of the instance is not a fault; clean-up of a cancelled task is waited for."""
    seen: list[str] = []
    owner = TaskOwner("room", lambda name, _: seen.append(name))
    ended: list[str] = []
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    owner.start("job", work())
    await begun.wait()
    await owner.close()

    assert (ended, seen) == (["cleaned up"], [])


async def test_settled_waits_for_tasks_spawned_meanwhile() -> None:
    """A submission that spawns its look-up is finished when the look-up is."""
    owner = TaskOwner("room", lambda *_: None)
    order: list[str] = []

    async def second() -> None:
        order.append("second")

    async def first() -> None:
        order.append("first")
        owner.start("second", second())

    owner.start("first", first())
    await owner.settled()

    assert order == ["first", "second"]
