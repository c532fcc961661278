"""The parent of N workers: what outlives them, and who keeps their places filled.

Job: bind the sockets, start the workers, replace what dies, restart one by one on request, end all in order; the
operator's side for all of them.
Rules: it touches no request. A worker's fault at the first start is the relay's; later it is a place to be filled. The
drain has two phases: every client is answered, then the lanes end; the lanes give up first, so that what they say can
still be passed on. While a client waits for the lanes, they have somebody who keeps them.
Must not know: lanes, HTTP.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import structlog

from relay.config import ConfigFault, doubts
from relay.console import console
from relay.errors import Fault
from relay.journal.shelf import Shelf
from relay.listening import Addresses, listening, url
from relay.ops import OpsServer
from relay.tasks import TaskOwner
from relay.webhooks import receivers
from relay.workers import control, sockets
from relay.workers.child import spawn
from relay.workers.hand import SlotHand
from relay.workers.inflight import InflightTable
from relay.workers.operator import Operator
from relay.workers.restart import kept_until_restart
from relay.workers.roles import roles
from relay.workers.slot import START_S, Slot

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from relay.config import Settings
    from relay.telemetry.logs import Logs
    from relay.telemetry.metrics import Metrics
    from relay.workers.child import Child
    from relay.workers.roles import Role

TICK_S: Final = 1.0
ENDING_S: Final = 4.0
"""Beyond `[server] drain_s`: for workers to write the last answers and to end."""


class Parent:
    """One relay in front of one node, in several processes. ``reload`` reads the settings again."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        logs: Logs,
        reload: Callable[[], Settings],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if sys.platform != "linux":
            raise ConfigFault("server.workers: more than 1 needs Linux; several instances that share a Redis need not")
        self._settings = settings
        self._reload = reload
        self._clock = clock
        self._log = structlog.get_logger("relay")
        self.stopping = asyncio.Event()
        self.broken = False
        self._background = TaskOwner("parent", self._died)
        self._asks = TaskOwner("asks", logs.report)
        self._restarting: asyncio.Task[None] | None = None
        self._again = False
        self._working = False
        self._sockets: list[list[Any]] = []
        self._lanes = sockets.LanesPlace()
        self._inflight = InflightTable.create()
        self.slots = [
            Slot(role, self._spawn, lambda: self._settings, self._takers, metrics=metrics, clock=clock)
            for role in roles(settings.server.workers)
        ]
        self._operator = Operator(self.slots, metrics)
        self._shelf = _shelf(settings)
        self._ops = OpsServer(settings.ops, self._operator.registry, self._operator.count, console=self._console())
        if self._shelf is not None:
            self._ops.add_check("journal", self._shelf.check)
        for slot in self.slots:
            self._ops.add_check(str(slot.role), self._operator.checked(slot))

    def _console(self) -> web.Application | None:
        if self._shelf is None:
            return None
        return console(self._settings.ops.token, self._shelf, SlotHand(self.slots[0]), self._operator.chain_id)

    async def start(self) -> Addresses:
        """Open the listeners and fill every place. The upstream need not be there yet. Raises Fault."""
        for doubt in doubts(self._settings):
            self._log.warning("settings", doubt=doubt)
        settings = self._settings
        if self._shelf is not None:
            await self._shelf.start(self._background)
        takers = [slot.role.number for slot in self.slots if slot.role.takes_clients]
        bound = iter(sockets.bound(settings.server.listen, len(takers)))
        self._sockets = [next(bound) if slot.role.takes_clients else [] for slot in self.slots]
        http = self._sockets[-1][0].getsockname()[:2]
        ops = await listening("ops.listen", settings.ops.listen, self._ops.start())
        for child in await asyncio.gather(*(slot.fill(self.stopping) for slot in self.slots)):
            self._must_work(child)
        for slot in self.slots:
            self._background.start(str(slot.role), slot.keep())
        self._background.start("tick", self._tick())
        self._working = True
        return Addresses(http=url(http), ops=url(ops))

    def restart(self) -> None:
        """Replace every worker by a fresh one, with the settings as they are now; one after the other."""
        if self._restarting is not None and not self._restarting.done():
            self._again = True
        elif self._working and not self.stopping.is_set():
            self._restarting = self._background.spawn("restart", self._restart())

    async def drain(self) -> None:
        """Finish within ``drain_s``, in two phases, and end every process (G12)."""
        began, seconds = self._clock(), self._settings.server.drain_s
        self._log.info("draining", seconds=seconds, workers=len(self.slots))
        self._ops.draining = True
        for slot in self.slots:
            slot.drain(seconds)
        self._close_sockets()
        self._kill_unready({slot.current for slot in self.slots if slot.role.has_lanes})
        self._each(control.STOP, seconds)
        try:
            await asyncio.gather(*(self._stopped(child, seconds + ENDING_S) for child in self._working_children()))
            self._end_replacing()
            self._kill_unready(set())
            self._each(control.END)
            left = seconds + ENDING_S - (self._clock() - began)
            await asyncio.gather(*(slot.emptied(max(1.0, left)) for slot in self.slots))
        finally:
            await self.close()
        self._log.info("drained", seconds=round(self._clock() - began, 3))

    def give_up(self) -> None:
        """Answer whoever still waits, now. The drain then ends."""
        self._each(control.GIVE_UP)

    async def close(self) -> None:
        """End what still runs. Idempotent."""
        self._end_replacing()
        for child in self._children():
            child.kill()
        await asyncio.gather(*(slot.emptied(0) for slot in self.slots))
        await self._background.close()
        await self._asks.close()
        await self._ops.close()
        if self._shelf is not None:
            await self._shelf.close()
        self._lanes.close()
        if self._inflight >= 0:
            os.close(self._inflight)
            self._inflight = -1

    async def _spawn(self, role: Role, settings: Settings) -> Child:
        lanes = role.has_lanes
        child = await spawn(
            control.Start(
                number=role.number,
                count=role.count,
                settings=settings,
                clients=tuple(one.fileno() for one in self._sockets[role.number]),
                door=self._lanes.door,
                lanes=self._lanes.socket.fileno() if lanes else None,
                inflight=self._inflight if lanes else None,
            ),
            self._asks,
            self._operator.totals.told,
        )
        self._asks.start("keep", self._operator.keep(child))
        return child

    def _must_work(self, child: Child) -> None:
        """At the first start, unless it is the last one already: a signal to the whole group may have hit a worker."""
        if self.stopping.is_set():
            return
        if child.fault is not None:
            raise child.fault
        if child.ended.is_set():
            raise Fault(f"worker {child.number} ended before it was ready: {child.fate}")
        if not child.ready.is_set():
            raise Fault(f"worker {child.number} was not ready within {START_S:g} s")

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for slot in self.slots:
                slot.tick()

    async def _restart(self) -> None:
        """Those with clients only first: they find the lanes where they are."""
        settings = self._reloaded()
        if settings is None:
            return
        self._log.info("restarting", workers=len(self.slots))
        for slot in (*self.slots[1:], self.slots[0]):
            if not await slot.replace(settings, settings.server.drain_s):
                if not self.stopping.is_set():
                    self._log.warning("the restart is given up half way; send SIGHUP again", worker=slot.role.number)
                return
            if self.stopping.is_set():
                return  # a change that has begun when the relay is stopped goes on: the lanes may be between two
            self._settings = settings
        self._log.info("restarted", workers=len(self.slots))
        if self._again:
            self._again = False
            await self._restart()

    def _reloaded(self) -> Settings | None:
        try:
            settings, told = kept_until_restart(self._settings, self._reload())
        except Fault as fault:
            self._log.error("the settings cannot be used, nothing is restarted", why=str(fault))
            return None
        for path in told:
            self._log.warning("takes effect when the relay is stopped and started", option=path)
        return settings

    def _kill_unready(self, spared: set[Child | None]) -> None:
        for child in self._children():
            if not child.ready.is_set() and child not in spared:
                child.kill()

    async def _stopped(self, child: Child, seconds: float) -> None:
        await child.until(child.stopped, seconds=seconds)

    def _end_replacing(self) -> None:
        """No new worker from here on, and no new client."""
        for slot in self.slots:
            slot.end()
        if self._restarting is not None:
            self._restarting.cancel()
        self._close_sockets()

    def _close_sockets(self) -> None:
        for mine in self._sockets:
            sockets.close(mine)

    def _each(self, *order: Any) -> None:
        for child in self._working_children():
            child.tell(*order)

    def _working_children(self) -> list[Child]:
        """Those that hear more than their start."""
        return [child for child in self._children() if child.ready.is_set()]

    def _children(self) -> list[Child]:
        return [child for slot in self.slots for child in slot.all]

    def _takers(self) -> tuple[int, ...]:
        """The processes that have clients now."""
        slots = (slot for slot in self.slots if slot.role.takes_clients)
        return tuple(
            child.pid for slot in slots for child in slot.all if child.ready.is_set() and not child.ended.is_set()
        )

    def _died(self, name: str, error: BaseException) -> None:
        self._log.critical("a background task died, the relay stops", task=name, error=repr(error), exc_info=error)
        self.broken = True
        self.stopping.set()


def _shelf(settings: Settings) -> Shelf | None:
    """The parent needs the journal for the operator's API alone. What is decided there is told to receivers, too."""
    if not settings.journal.url or not settings.ops.token:
        return None
    return Shelf(settings.journal.url, receivers=receivers(settings.webhooks))
