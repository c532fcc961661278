"""Every background task is named, owned and watched.

Job: the one place where tasks are made. A task that fails outside its own handling is a fault of ours; it is
reported once, with its name; the composition root decides what its death means.
Rules: short tasks (one submission, one look-up) are spawned on an owner, never left alone; `close` cancels
and waits.
Must not know: what the tasks do.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class TaskOwner:
    """Keeps a strong reference to each task until it is done, and reports the ones that die."""

    def __init__(self, name: str, report: Callable[[str, BaseException], None]) -> None:
        self._name = name
        self._report = report
        self._tasks: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        return f"<TaskOwner {self._name}: {len(self._tasks)} running>"

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start ``work`` as a task called ``<owner>.<name>``."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name}.{name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """`spawn`, for whoever does not wait for the end."""
        self.spawn(name, work)  # type: ignore[unused-awaitable] # owned and watched here

    async def settled(self) -> None:
        """Wait until no task is left, those spawned meanwhile included."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def close(self) -> None:
        """Cancel what still runs and wait until it has ended."""
        for task in self._tasks:
            task.cancel()
        await self.settled()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(task.get_name(), error)
