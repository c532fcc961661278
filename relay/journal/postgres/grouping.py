"""What comes while others are under way goes together: one statement and one commit for many callers.

Job: gather the items of many calls, run them as one, and give each caller its own results.
Rules: a fault of the server is everybody's. A fault that the statement itself brought on is told to whoever brought it:
its calls are run again, one by one. Whoever stops waiting undoes nothing.
Must not know: what the items are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from relay.journal.faults import Unavailable, Unusable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from relay.tasks import TaskOwner

A = TypeVar("A")
B = TypeVar("B")

MAX_ROUNDS: Final = 2
"""Statements of one kind under way: while one commits, the next is prepared."""

MAX_ITEMS: Final = 256
"""In one statement, so that its time stays far below the limit. One call's items are never parted."""


MAX_CALLS: Final = 20_000
"""That wait. Each belongs to a submission that waits with it; one more is answered at once."""


class _Call(NamedTuple, Generic[A, B]):
    items: Sequence[A]
    done: asyncio.Future[list[B]]


class Grouping(Generic[A, B]):
    """``run`` takes items and returns a result for each, in their order."""

    def __init__(self, name: str, run: Callable[[list[A]], Awaitable[list[B]]], owner: TaskOwner) -> None:
        self._name = name
        self._run = run
        self._owner = owner
        self._calls: deque[_Call[A, B]] = deque()
        self._rounds = 0

    def __repr__(self) -> str:
        return f"<{self._name}: {len(self._calls)} calls wait, {self._rounds} rounds under way>"

    async def do(self, items: Sequence[A]) -> list[B]:
        """The results of ``items``, once they are committed."""
        if not items:
            return []
        if len(self._calls) >= MAX_CALLS:
            raise Unavailable(f"the journal ([journal] url) is too slow: {len(self._calls)} calls wait for it")
        done: asyncio.Future[list[B]] = asyncio.get_running_loop().create_future()
        done.add_done_callback(asyncio.Future.exception)  # whoever asked may have stopped waiting
        self._calls.append(_Call(items, done))
        if self._rounds < MAX_ROUNDS:
            self._rounds += 1
            self._owner.start(self._name, self._go_on())
        return await asyncio.shield(done)

    async def _go_on(self) -> None:
        try:
            while self._calls:
                await self._together(self._next())
        finally:
            self._rounds -= 1

    def _next(self) -> list[_Call[A, B]]:
        calls = [self._calls.popleft()]
        size = len(calls[0].items)
        while self._calls and size + len(self._calls[0].items) <= MAX_ITEMS:
            calls.append(self._calls.popleft())
            size += len(calls[-1].items)
        return calls

    async def _together(self, calls: list[_Call[A, B]]) -> None:
        try:
            results = await self._run([item for call in calls for item in call.items])
        except Unusable as error:
            if len(calls) > 1:
                for call in calls:
                    await self._together([call])
                return
            calls[0].done.set_exception(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for it
            for call in calls:
                call.done.set_exception(_copied(error))
        else:
            rest = iter(results)
            for call in calls:
                call.done.set_result([next(rest) for _ in call.items])


def _copied(error: Exception) -> Exception:
    """One for each caller: whoever raises it writes into it."""
    return Unavailable(str(error), maybe=error.maybe) if isinstance(error, Unavailable) else error
