"""Connections to one node, and who gets the next one.

Job: the `exchange.Sender` of the process: give each request a connection, open what is missing, close what is late.
Rules: connections being opened count as open. Passed-through requests never hold the last ones: a share is kept for
submissions. A connection used last is used first, so that the others grow old and go. One clock for all deadlines,
looked at each `TICK_S`; no timer, task or future for each request. Nothing is written without asking `before_write`
in the same breath.
Must not know: JSON-RPC, what a body holds, HTTP (`connection`, `head`).
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import structlog

from relay.tasks import TaskOwner
from relay.upstream.connection import Connection
from relay.upstream.endpoint import Endpoint
from relay.upstream.exchange import Failure, Lack
from relay.upstream.request import Queue, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.config import Upstream
    from relay.telemetry.metrics import Metrics
    from relay.upstream.exchange import Exchange, Sink

CLOSED: Final = Failure(Lack.UNREACHABLE, "this instance is shutting down")
TICK_S: Final = 0.25
RESERVED_SHARE: Final = 8
"""One in eight connections, at least one, is kept for submissions."""


class Pool:
    """See the module. ``reachable`` is how the last attempt to connect ended, None before the first."""

    def __init__(
        self,
        settings: Upstream,
        metrics: Metrics,
        report: Callable[[str, BaseException], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint = Endpoint(settings)
        self.now = clock
        self.report = report
        self.reachable: bool | None = None
        self._log = structlog.get_logger("relay.upstream")
        self._timeout_s = settings.timeout_s
        self._limit = settings.max_connections
        self._limit_passing = self._limit - max(1, self._limit // RESERVED_SHARE)
        self._queue = Queue()
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._attempts = 0
        self._again: set[Request] = set()
        self.passing = 0
        self._tasks = TaskOwner("upstream", report)
        self._tick: asyncio.TimerHandle | None = None
        self._closed = False
        self._empty = asyncio.Event()
        self._empty.set()
        self._errors = {lack: metrics.upstream_errors.cell(lack.value) for lack in Lack}
        metrics.upstream_connections.read_from(lambda: self.idle, "idle")
        metrics.upstream_connections.read_from(lambda: self.busy, "busy")
        metrics.upstream_connections.read_from(lambda: self.opening, "opening")

    def __repr__(self) -> str:
        return f"<Pool {self.endpoint.name}: {self.idle} idle, {self.busy} busy, {self.opening} opening>"

    @property
    def idle(self) -> int:
        """Connections that wait for a request."""
        return len(self._idle)

    @property
    def busy(self) -> int:
        """Connections that carry a request, or are about to close."""
        return len(self._open) - len(self._idle)

    @property
    def opening(self) -> int:
        """Attempts to connect."""
        return self._attempts

    @property
    def waiting(self) -> int:
        """Requests that wait for a connection."""
        return len(self._queue)

    def send(  # noqa: PLR0913 - see `exchange.Sender`
        self,
        body: bytes,
        sink: Sink,
        *,
        lines: bytes = b"",
        timeout_s: float | None = None,
        submission: bool = False,
        repeatable: Callable[[], bool] | None = None,
        before_write: Callable[[], bool] | None = None,
    ) -> Exchange:
        """See `exchange.Sender.send`."""
        if timeout_s is None:
            timeout_s = self._timeout_s
        deadline = self.now() + timeout_s
        request = Request(self, body, sink, lines, timeout_s, deadline, submission, repeatable, before_write)
        if self._closed:
            asyncio.get_running_loop().call_soon(request.fail, CLOSED)
        elif not ((submission or self.passing < self._limit_passing) and self._use_idle(request)):
            self._queue.push(request)
            self._open_more()
        return request

    async def close(self) -> None:
        """Refuse what comes, fail what waits, cut what is in flight, and wait until every socket is closed."""
        self._closed = True
        again, self._again = self._again, set()
        for request in (*self._queue.take_all(), *again):
            request.fail(CLOSED)
        await self._tasks.close()
        self._attempts = 0  # one that was cancelled before its first step has not counted itself out
        for connection in tuple(self._open):
            connection.drop(Failure(Lack.CUT_OFF, "this instance is shutting down"))
        await self._empty.wait()
        if self._tick is not None:
            self._tick.cancel()

    def sweep(self) -> None:
        """Look at the clock once for everybody."""
        now = self.now()
        for connection in tuple(self._open):
            connection.sweep(now)
        for request in self._queue.take_overdue(now):
            request.fail(self._crowded(request))
        for request in [request for request in self._again if now >= request.deadline]:
            self._again.discard(request)
            request.fail(Failure(Lack.TIMED_OUT, f"no answer within {request.timeout_s:g} s"))

    # what connections and requests say

    def made(self, connection: Connection) -> None:
        """It stands, and counts from now on until it is `lost`."""
        self._open.add(connection)
        self._empty.clear()

    def freed(self, connection: Connection) -> None:
        """It may carry another request."""
        connection.fresh = False
        self._idle.append(connection)
        if self._queue.passed or self._queue.submissions:
            self._pump()

    def lost(self, connection: Connection, again: Request | None) -> None:
        """It is gone, and its place is free: first for the request that died with it, if that may be sent again."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if not self._open:
            self._empty.set()
        if again is not None:
            again.on = None
            self._again.add(again)
            self._attempt(again)
        self._pump()

    def forget(self, request: Request) -> None:
        """Abandoned before it had a connection."""
        self._queue.discard(request)
        self._again.discard(request)

    def count(self, lack: Lack) -> None:
        """One more exchange without an answer."""
        self._errors[lack].n += 1

    # who gets which connection

    def _use_idle(self, request: Request) -> bool:
        """Write it on the connection used last; False if there is none."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.is_usable():
                self._write(connection, request)
                return True
        return False

    def _pump(self) -> None:
        """Bring those who wait and idle connections together; open what is still wanted."""
        while self._idle and (request := self._queue.pop(self._limit_passing - self.passing)) is not None:
            if not self._use_idle(request):
                self._queue.put_back(request)
        self._open_more()

    def _write(self, connection: Connection, request: Request) -> None:
        if request.before_write is not None and not request.may_be_written():
            self._lay_by(connection)
            asyncio.get_running_loop().call_soon(request.withhold)
            return
        if not (request.submission or request.sent):
            self.passing += 1
        connection.post(request)

    def _lay_by(self, connection: Connection) -> None:
        """Nobody to write to it: from now on the node may close it unseen."""
        connection.fresh = False
        self._idle.append(connection)

    def _open_more(self) -> None:
        wanted = self._queue.wanted(self._limit_passing - self.passing) - (self._attempts - len(self._again))
        room = self._limit - len(self._open) - self._attempts
        for _ in range(min(wanted, room)):
            self._attempt(None)

    def _attempt(self, request: Request | None) -> None:
        """Start to connect, for one request or for whoever has waited longest by then."""
        self._attempts += 1
        self._tasks.start("connect", self._connect(request))
        if self._tick is None:
            self._tick = asyncio.get_running_loop().call_later(TICK_S, self._ticked)

    async def _connect(self, request: Request | None) -> None:
        try:
            made = await self.endpoint.connect(lambda: Connection(self))
        finally:
            self._attempts -= 1
            if request not in self._again:  # it was for nobody in particular, or nobody wants it any more
                request = None
            else:
                self._again.discard(request)
        if isinstance(made, Connection) and not made.is_usable():
            made = Failure(Lack.UNREACHABLE, "the connection was closed at once")
        self._note(made)
        request = request or self._queue.pop(self._limit_passing - self.passing)
        if isinstance(made, Connection):
            self._use_fresh(made, request)
        elif request is not None:
            request.fail(made)
        self._pump()

    def _use_fresh(self, connection: Connection, request: Request | None) -> None:
        if request is None:
            self._lay_by(connection)
        else:
            connection.fresh = True
            self._write(connection, request)

    def _ticked(self) -> None:
        self._tick = None
        self.sweep()
        if self._open or self._attempts or self._queue:
            self._tick = asyncio.get_running_loop().call_later(TICK_S, self._ticked)

    def _crowded(self, request: Request) -> Failure:
        detail = (
            f"none was free within {request.timeout_s:g} s, with {self.busy} busy and {self.opening} being opened of "
            f"{self._limit} ([upstream] max_connections)"
        )
        return Failure(Lack.UNREACHABLE, detail)

    def _note(self, made: Connection | Failure) -> None:
        """One line for each change, with the address, which clients are not told."""
        before, self.reachable = self.reachable, isinstance(made, Connection)
        if isinstance(made, Failure) and before is not False:
            self._log.warning("no connection to the upstream", address=self.endpoint.name, reason=made.detail)
        elif before is False and self.reachable:
            self._log.info("connected to the upstream again", address=self.endpoint.name)
