"""One worker's place, which is never left empty.

Job: fill it; replace a worker that died, or hangs, by one with the same sockets; put a fresh one into the place of one
that works, so that nobody notices.
Rules: the lanes have one owner: a replacement is told to go only when the process before it has ended, as the system
says. A worker counts as hung when it leaves `HUNG` of our questions unanswered, one a second of *our* running time: a
busy one answers late, and a machine that was suspended asked nobody. A place whose workers die again and again is
filled more and more slowly.
Must not know: the other places, what a worker does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from relay.workers import control

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relay.config import Settings
    from relay.telemetry.metrics import Metrics
    from relay.workers.child import Child
    from relay.workers.roles import Role

HUNG: Final = 10
START_S: Final = 30.0
"""From the start of a process until it is ready."""
END_S: Final = 3.0
"""Beyond the time that a worker was given to end."""
STEADY_S: Final = 30.0
"""A worker that lived for so long is no reason to wait before the next one."""
PAUSES_S: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 15.0)


class Slot:
    """See the module. ``spawn`` starts a worker of this role with these settings; ``takers``: who has clients now."""

    def __init__(
        self,
        role: Role,
        spawn: Callable[[Role, Settings], Awaitable[Child]],
        settings: Callable[[], Settings],
        takers: Callable[[], tuple[int, ...]],
        *,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self.role = role
        self.current: Child | None = None
        self.all: set[Child] = set()
        """The current one, those that start and those that end."""
        self.trouble = "it is being started"
        self._spawn = spawn
        self._settings = settings
        self._takers = takers
        self._clock = clock
        self._ending = False
        self._over: float | None = None
        """When the relay's drain ends."""
        self._changing = asyncio.Lock()
        self._deaths = 0
        self._since = clock()
        self._restarts = {why: metrics.worker_restarts.cell(why) for why in ("died", "hung", "replaced")}
        self._log = structlog.get_logger("relay.workers")

    def __repr__(self) -> str:
        return f"<{self.role}: {self.current!r}>"

    @property
    def works(self) -> bool:
        """Is there a worker that does its part? While one takes over, the one before it may still have the lanes."""
        child = self.current
        if child is None or not child.ready.is_set() or child.ended.is_set():
            return False
        return not self.role.has_lanes or any(one.has_lanes.is_set() and not one.ended.is_set() for one in self.all)

    async def fill(self, stopping: asyncio.Event) -> Child:
        """The first worker, ready; or one that has ended, and perhaps said why; or one that is not to go on."""
        child = self.current = await self._started(self._settings())
        await child.until(child.ready, stopping, seconds=START_S)
        if child.ready.is_set() and self.role.has_lanes:
            child.tell(control.GO, self._takers())
            await child.until(child.has_lanes, stopping, seconds=START_S)
        return child

    async def keep(self) -> None:
        """Fill the place again whenever its worker has ended."""
        while True:
            child = self.current
            assert child is not None
            await child.ended.wait()
            async with self._changing:
                if self._ending:
                    return
                if child is self.current:
                    await self._refill(child)

    async def replace(self, settings: Settings, seconds: float) -> bool:
        """Put a fresh worker with ``settings`` here; the one before it has ``seconds`` to end. False: it stays."""
        async with self._changing:
            fresh = await self._started(settings)
            await fresh.until(fresh.ready, seconds=START_S)
            if not fresh.ready.is_set() or fresh.ended.is_set():
                fresh.kill()
                await self._end(fresh, END_S)
                self._log.error(
                    "the replacement did not start, the worker stays", worker=self.role.number, why=_why(fresh)
                )
                return False
            before, self.current = self.current, fresh
            self._restarts["replaced"].n += 1
            if before is not None:
                before.tell(control.RETIRE, seconds)
                await self._end(before, seconds + END_S + (control.HAND_OVER_S if self.role.has_lanes else 0))
            await self._hand_lanes(fresh)
            self._log.info("worker replaced", worker=self.role.number, pid=fresh.pid)
            return True

    def tick(self) -> None:
        """Once a second: is it alive?"""
        child = self.current
        if child is None or child.ended.is_set() or not child.ready.is_set():
            return
        if child.silent >= HUNG:
            self._log.error(
                "a worker hangs and is killed", worker=self.role.number, pid=child.pid, seconds=child.silent
            )
            self._restarts["hung"].n += 1
            child.kill()
        child.ask()

    def drain(self, seconds: float) -> None:
        """The relay ends within ``seconds``. Clients wait for the lanes: their place is filled until `end`."""
        self._over = self._clock() + seconds
        self._ending = not self.role.has_lanes

    def end(self) -> None:
        """From now on a worker that ends is not replaced."""
        self._ending = True

    async def emptied(self, seconds: float) -> None:
        """Wait until every process of this place has ended; kill what is left after ``seconds``."""
        for child in tuple(self.all):
            await self._end(child, seconds)

    async def _started(self, settings: Settings) -> Child:
        child = await self._spawn(self.role, settings)
        self.all.add(child)
        self._since = self._clock()
        return child

    async def _refill(self, dead: Child) -> None:
        self.all.discard(dead)
        self._restarts["died"].n += 1
        if self._clock() - self._since > STEADY_S:
            self._deaths = 0
        pause = PAUSES_S[min(self._deaths, len(PAUSES_S) - 1)]
        self._deaths += 1
        self.trouble = f"{_why(dead)}; started again {f'after {pause:g} s' if pause else 'at once'}"
        self._log.error("a worker ended", worker=self.role.number, pid=dead.pid, why=_why(dead), again_in_s=pause)
        await asyncio.sleep(pause)
        if self._ending:
            return
        fresh = self.current = await self._started(self._settings())
        await fresh.until(fresh.ready, seconds=START_S)
        if not fresh.ready.is_set():
            fresh.kill()
            return
        await self._hand_lanes(fresh)

    async def _hand_lanes(self, fresh: Child) -> None:
        if self.role.has_lanes:
            fresh.tell(control.GO, self._takers())
            await fresh.until(fresh.has_lanes, seconds=START_S)
            if self._over is not None:
                fresh.tell(control.STOP, max(0.0, self._over - self._clock()))

    async def _end(self, child: Child, seconds: float) -> None:
        if not await child.until(seconds=seconds):
            self._log.warning("a worker did not end in time and is killed", worker=self.role.number, pid=child.pid)
            child.kill()
            await child.ended.wait()
        self.all.discard(child)


def _why(child: Child) -> str:
    return str(child.fault) if child.fault is not None else child.fate
