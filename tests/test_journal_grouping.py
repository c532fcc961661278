"""Calls that come together go together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from relay.journal.faults import Unavailable, Unusable
from relay.journal.postgres import grouping
from relay.journal.postgres.grouping import Grouping
from relay.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Rounds = list[tuple[list[int], asyncio.Future[None]]]


def _no_death(task: str, error: BaseException) -> None:
    pytest.fail(f"{task} died: {error!r}")


@pytest.fixture
async def owner() -> AsyncIterator[TaskOwner]:
    """Of the rounds."""
    owner = TaskOwner("test", _no_death)
    yield owner
    await owner.close()


class Server:
    """Each round waits until it is let go; negative items break their statement."""

    def __init__(self) -> None:
        self.rounds: Rounds = []
        self.begun = asyncio.Event()

    async def run(self, items: list[int]) -> list[int]:
        """Ten times each."""
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.rounds.append((items, gate))
        self.begun.set()
        await gate
        if any(item < 0 for item in items):
            raise Unusable("a bad item")
        return [item * 10 for item in items]

    async def next(self, number: int) -> list[int]:
        """Let round ``number`` go, once it has begun; its items."""
        while len(self.rounds) <= number:
            self.begun.clear()
            await self.begun.wait()
        items, gate = self.rounds[number]
        gate.set_result(None)
        return items


@pytest.fixture
def server() -> Server:
    """Where the statements go."""
    return Server()


@pytest.fixture
def group(server: Server, owner: TaskOwner) -> Grouping[int, int]:
    """The subject."""
    return Grouping("test", server.run, owner)


async def test_what_comes_in_one_tick_is_one_statement(group: Grouping[int, int], server: Server) -> None:
    """Each call gets its own results, in its order."""
    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(group.do(items)) for items in ([1], [], [3, 2], [5])]
        assert await server.next(0) == [1, 3, 2, 5]
    assert [call.result() for call in calls] == [[10], [], [30, 20], [50]]
    assert len(server.rounds) == 1


async def test_what_comes_meanwhile_waits_and_goes_together(group: Grouping[int, int], server: Server) -> None:
    """Two statements may be under way; the rest is the third."""
    async with asyncio.TaskGroup() as tasks:
        for number in range(2):
            tasks.create_task(group.do([number]))
            while len(server.rounds) <= number:
                server.begun.clear()
                await server.begun.wait()
        late = [tasks.create_task(group.do([number])) for number in (7, 8, 9)]
        assert await server.next(1) == [1]
        assert await server.next(2) == [7, 8, 9]
        assert await server.next(0) == [0]
    assert [call.result() for call in late] == [[70], [80], [90]]


async def test_a_statement_has_an_end(
    group: Grouping[int, int], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only so many items; one call's are never parted."""
    monkeypatch.setattr(grouping, "MAX_ITEMS", 3)
    async with asyncio.TaskGroup() as tasks:
        for items in ([1, 2], [3], [4, 5], [6, 7, 8, 9]):
            tasks.create_task(group.do(items))
        assert [await server.next(number) for number in range(3)] == [[1, 2, 3], [4, 5], [6, 7, 8, 9]]


async def test_a_bad_item_is_told_to_whoever_brought_it(group: Grouping[int, int], server: Server) -> None:
    """The calls of a statement that failed for its own sake are run again, one by one."""
    calls = [asyncio.get_running_loop().create_task(group.do(items)) for items in ([1], [-2], [3])]
    assert [await server.next(number) for number in range(4)] == [[1, -2, 3], [1], [-2], [3]]
    good, bad, also_good = await asyncio.gather(*calls, return_exceptions=True)
    assert (good, also_good) == ([10], [30])
    assert isinstance(bad, Unusable)


async def test_a_fault_of_the_server_is_everybodys(owner: TaskOwner) -> None:
    """Once, and each caller has an exception of his own; whether it may have happened is passed on."""
    asked = []

    async def run(items: list[int]) -> list[int]:
        asked.append(items)
        raise Unavailable("gone", maybe=True)

    group = Grouping("test", run, owner)
    results = await asyncio.gather(group.do([1]), group.do([2]), return_exceptions=True)
    assert [(type(each), str(each), getattr(each, "maybe", None)) for each in results] == [
        (Unavailable, "gone", True)
    ] * 2
    assert results[0] is not results[1]
    assert asked == [[1, 2]]


async def test_a_queue_that_is_full(group: Grouping[int, int], server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes then is answered at once; those before him are served."""
    monkeypatch.setattr(grouping, "MAX_CALLS", 2)
    calls = [asyncio.get_running_loop().create_task(group.do([number])) for number in range(3)]
    assert await server.next(0) == [0, 1]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert results[:2] == [[0], [10]]
    assert isinstance(results[2], Unavailable)


async def test_whoever_stops_waiting_undoes_nothing(group: Grouping[int, int], server: Server) -> None:
    """His items go with the others'."""
    calls = [asyncio.get_running_loop().create_task(group.do([number])) for number in (1, 2)]
    await asyncio.sleep(0)
    calls[0].cancel()
    assert await server.next(0) == [1, 2]
    assert await calls[1] == [20]
    assert calls[0].cancelled()
