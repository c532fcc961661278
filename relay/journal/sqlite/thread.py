"""A thread with a connection of its own, for the library blocks.

Job: carry out jobs in the order in which they came, and tell each one's future. The writing thread takes what has come
meanwhile into one transaction: many seals, one fsync.
Rules
- Nothing is answered before the commit that holds it has returned.
- An error about one job's statement is that job's: the group is rolled back and its jobs are tried one by one. An error
  about the file is everybody's.
- The queue is bounded, and a full one is answered at once.
- A future is never cancelled from outside: whoever stops waiting undoes nothing.
Must not know: what the jobs do.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from typing import TYPE_CHECKING, Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from relay.journal.faults import Unavailable, Unusable
from relay.journal.sqlite.troubles import DAMAGE, STOPS_ALL, primary

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.journal.sqlite.connection import Place

T = TypeVar("T")
P = ParamSpec("P")

MAX_WAITING: Final = 20_000
"""Jobs that wait for the disk. Each belongs to a submission that waits with it."""

MAX_GROUP: Final = 512
"""Jobs in one transaction, so that the first does not wait for ever."""


class _Job(NamedTuple):
    work: Callable[..., Any]
    args: tuple[Any, ...]
    done: asyncio.Future[Any]


class _Ended(NamedTuple):
    done: asyncio.Future[Any]
    result: Any
    error: Exception | None


class Health:
    """What the threads on one file know of it. Once it is found to be damaged, nothing more is written or read."""

    __slots__ = ("damage",)

    def __init__(self) -> None:
        self.damage: str | None = None


class DatabaseThread:
    """On a place that writes, jobs run in groups, each group in a transaction; otherwise each for itself."""

    def __init__(self, place: Place, health: Health) -> None:
        self._place = place
        self._health = health
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, name=f"journal.{'writer' if place.writes else 'reader'}", daemon=True
        )
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._file: tuple[int, int] | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._closed = False
        self.waiting = 0

    def __repr__(self) -> str:
        return f"<{self._thread.name}: {self.waiting} waiting>"

    async def start(self) -> None:
        """Open the connection. Raises what is wrong with the file."""
        self._thread.start()
        await asyncio.shield(self._opened)

    async def run(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **_: P.kwargs) -> T:
        """The result of ``work(connection, *args)``, once it is on disk."""
        if self._closed:
            raise Unavailable("the journal is closed")
        if self._health.damage is not None:
            raise Unusable(self._health.damage)
        if self.waiting >= MAX_WAITING:
            raise Unavailable(f"the journal {self._place.url} ([journal] url) is too slow: {self.waiting} wait for it")
        self.waiting += 1
        done: asyncio.Future[T] = self._loop.create_future()
        done.add_done_callback(self._left)
        self._jobs.put(_Job(work, args, done))
        return await asyncio.shield(done)

    def _left(self, done: asyncio.Future[Any]) -> None:
        self.waiting -= 1
        done.exception()  # whoever asked may have stopped waiting; then nobody else reads it

    def end(self) -> None:
        """Take nothing more. What was asked is finished, if the process lives so long: the thread holds up no end."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)

    async def close(self) -> None:
        """Finish what was asked, then let go."""
        self.end()
        if self._thread.ident is not None:
            await asyncio.shield(self._ended)

    # In the thread.

    def _run(self) -> None:
        try:
            self._work()
        finally:
            self._tell([_Ended(self._ended, None, None)])

    def _work(self) -> None:
        try:
            connection = self._place.connect()
            self._file = self._place.file()
        except Exception as error:  # noqa: BLE001 - the opener waits for it, whatever it is
            self._tell_opened(self._as_fault(error))
            return
        self._tell_opened(None)
        try:
            while jobs := self._next():
                self._tell(self._carry(connection, jobs))
        finally:
            connection.close()

    def _tell_opened(self, error: Exception | None) -> None:
        self._tell([_Ended(self._opened, None, error)])

    def _next(self) -> list[_Job]:
        """What has come; empty at the end."""
        jobs: list[_Job] = []
        job = self._jobs.get()
        while job is not None:
            jobs.append(job)
            if not self._place.writes or len(jobs) == MAX_GROUP:
                return jobs
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return jobs
        if jobs:
            self._jobs.put(None)
        return jobs

    def _carry(self, connection: sqlite3.Connection, jobs: list[_Job]) -> list[_Ended]:
        try:
            return self._together(connection, jobs)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for it
            if len(jobs) > 1 and not (isinstance(error, sqlite3.Error) and primary(error) in STOPS_ALL):
                return [ended for job in jobs for ended in self._carry(connection, [job])]
            told = self._as_fault(error)
            return [_Ended(job.done, None, told) for job in jobs]

    def _together(self, connection: sqlite3.Connection, jobs: list[_Job]) -> list[_Ended]:
        if not self._place.writes:
            return [_Ended(job.done, job.work(connection, *job.args), None) for job in jobs]
        if self._place.file() != self._file:
            raise Unusable(f"the file of {self._place.url} ([journal] url) was removed or replaced; restart the relay")
        connection.execute("BEGIN IMMEDIATE")
        try:
            ended = [_Ended(job.done, job.work(connection, *job.args), None) for job in jobs]
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return ended

    def _as_fault(self, error: Exception) -> Exception:
        if not isinstance(error, sqlite3.Error):
            return error
        told = self._place.fault(error)
        if primary(error) in DAMAGE:
            self._health.damage = str(told)
        return told

    def _tell(self, ended: list[_Ended]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(_finish, ended)


def _finish(ended: list[_Ended]) -> None:
    for done, result, error in ended:
        if done.done():
            continue
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)
