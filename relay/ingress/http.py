"""The HTTP way in: the listening socket and all connections behind it.

Job: accept, count, sweep deadlines once a second, drain.
Rules: one timer for all connections. Draining answers what is in work, refuses what is not complete, and closes each
connection as it becomes idle; at the deadline what is left is cut. Retiring refuses nothing.
Must not know: HTTP (`connection`, `head`, `body`).
"""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from relay.ingress.connection import Connection
from relay.ingress.shared import Parts, Shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay import config
    from relay.ingress.answers import Ready
    from relay.ingress.looking import Question
    from relay.router import Routes
    from relay.telemetry.metrics import Metrics
    from relay.upstream.exchange import Sender

BACKLOG: Final = 4096
"""asyncio's 100 is one burst of wallets."""
SWEEP_S: Final = 1.0


class HttpServer:
    """All HTTP clients of one process. ``upgrade``, ``look``: see `shared.Parts`."""

    def __init__(  # noqa: PLR0913 - the composition root names each part once
        self,
        settings: config.Settings,
        routes: Routes,
        sender: Sender,
        metrics: Metrics,
        *,
        report: Callable[[str, BaseException], None],
        upgrade: Callable[[asyncio.Transport, bytes, Callable[[], None]], None] | None = None,
        look: Callable[[Question, Callable[[Ready], None]], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shared = Shared(settings, Parts(routes, sender, report, upgrade, look), metrics)
        self._clock = clock
        self._listeners: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        metrics.connections.read_from(lambda: self.connections, "http")

    def __repr__(self) -> str:
        return f"<HttpServer {'draining' if self._shared.draining else 'open'}: {self.connections} connections>"

    @property
    def connections(self) -> int:
        """Open connections, those handed over to the WebSocket side not among them."""
        return len(self._shared.open)

    async def start(self, where: socket.socket | tuple[str, int]) -> tuple[str, int]:
        """Listen on a bound socket or an address, beside others. Returns (host, port). Raises OSError."""
        loop = asyncio.get_running_loop()
        if isinstance(where, socket.socket):
            listener = await loop.create_server(self._connection, sock=where, backlog=BACKLOG)
        else:
            host, port = where
            listener = await loop.create_server(self._connection, host, port, backlog=BACKLOG)
        self._listeners.append(listener)
        self._timer = self._timer or loop.call_later(SWEEP_S, self._tick)
        host, port = listener.sockets[0].getsockname()[:2]
        return host, port

    def stop_accepting(self) -> None:
        """Close the listening sockets; open connections go on."""
        while self._listeners:
            self._listeners.pop().close()

    def give_up(self) -> None:
        """The drain is over: answer what is passed through by an error; what the router has, it answers itself."""
        for connection in tuple(self._shared.open):
            connection.give_up()

    async def retire(self, until: float) -> None:
        """Another process has the listening socket: answer what still comes on open connections, each with its last
        answer. Return when every connection is closed, or at ``until``, of the clock."""
        self.stop_accepting()
        self._shared.retire()
        await self._emptied(until - self._clock())

    async def drain(self, until: float) -> None:
        """Return when every connection is closed. ``until``, of the clock, is when the rest is cut."""
        self.stop_accepting()
        self._shared.drain()
        for _ in range(2):  # requests that the kernel holds already are read, and refused by an answer
            await asyncio.sleep(0)
        for connection in tuple(self._shared.open):
            connection.drain()
        await self._emptied(until - self._clock())
        for connection in tuple(self._shared.open):
            connection.abort()
        await self._emptied(SWEEP_S)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def sweep(self) -> None:
        """Look at each connection's deadlines."""
        self._shared.tick()
        now = self._clock()
        for connection in tuple(self._shared.open):
            connection.sweep(now)

    async def _emptied(self, seconds: float) -> None:
        if not self._shared.open:
            return
        self._shared.emptied.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._shared.emptied.wait()

    def _connection(self) -> Connection:
        return Connection(self._shared)

    def _tick(self) -> None:
        self.sweep()
        self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._tick)
