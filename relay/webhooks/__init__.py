"""Tells receivers what becomes of submissions (``[webhooks]``).

Job: a courier for each URL, and a look at the outbox now and then: what waits, since when, and what is given up.
Rules: the source is the journal's outbox, written with each change, so nothing that happened goes untold, also what
happened while nobody was there to tell it. Each of several instances takes its part; none owns it.
Must not know: lanes, nodes, clients.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import aiohttp
import structlog

from relay.config import secret_bytes
from relay.journal.faults import Unavailable, Unusable
from relay.tasks import TaskOwner
from relay.webhooks.backoff import GIVE_UP_S
from relay.webhooks.courier import SLOTS, Courier, Pace
from relay.webhooks.receiver import Receiver, receiver_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.config import Settings
    from relay.config import Webhooks as Section
    from relay.journal.shelf import Shelf
    from relay.telemetry.metrics import Metrics

__all__ = ["PACE", "Pace", "Webhooks", "receivers"]

PACE: Final = Pace()
LOOK_S: Final = 15.0
"""Between two looks at the outbox."""
LAST_S: Final = 1.0
"""At the end, what is on the wire has so long."""
BURY: Final = 1000
"""Notices given up in one transaction."""
_KEPT_S: Final = 4.0
"""An idle connection is not kept for longer: many servers close theirs after 5 s."""


def receivers(section: Section) -> tuple[str, ...]:
    """The names that the journal keeps notices for."""
    return tuple(map(receiver_name, section.urls))


class Webhooks:
    """Made where ``[webhooks] urls`` are set. ``wall_s``: seconds since the epoch."""

    def __init__(  # noqa: PLR0913 - wired once
        self,
        shelf: Shelf,
        settings: Settings,
        metrics: Metrics,
        report: Callable[[str, BaseException], None],
        clock: Callable[[], float],
        *,
        pace: Pace = PACE,
        wall_s: Callable[[], float] = lambda: time.time_ns() / 1e9,
    ) -> None:
        self._shelf = shelf
        self._section = settings.webhooks
        self._counts = metrics.webhooks
        self._posts = TaskOwner("webhooks", report)
        self._clock = clock
        self._pace = pace
        self._wall_s = wall_s
        self._session: aiohttp.ClientSession | None = None
        self._couriers: list[Courier] = []
        self._waiting = 0
        self._lag_s = 0.0
        self._log = structlog.get_logger("relay.webhooks")
        metrics.outbox_waiting.read_from(lambda: self._waiting)
        metrics.outbox_lag.read_from(lambda: self._lag_s)

    def __repr__(self) -> str:
        return f"<webhooks: {self._couriers!r}>"

    def start(self, background: TaskOwner) -> None:
        """Begin to tell. The journal need not be open yet."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=SLOTS * len(self._section.urls), keepalive_timeout=_KEPT_S),
            timeout=aiohttp.ClientTimeout(total=self._pace.post_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"user-agent": "relay"},
        )
        key = secret_bytes(self._section.secret)
        for url in self._section.urls:
            receiver = Receiver(url, key, self._session, self._wall_s)
            courier = Courier(receiver, self._shelf, self._posts, self._counts, pace=self._pace, clock=self._clock)
            self._couriers.append(courier)
            background.start(f"webhooks {receiver.name}", courier.run())
        background.start("outbox", self._look_forever())

    async def close(self) -> None:
        """Take nothing more; what is on the wire has a moment, then its hold ends and it is told again. Idempotent."""
        for courier in self._couriers:
            courier.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                await self._posts.settled()
        await self._posts.close()
        if self._session is not None:
            await self._session.close()

    async def _look_forever(self) -> None:
        await self._shelf.opened.wait()
        while True:
            try:
                await self._bury()
                await self._look()
            except (Unavailable, Unusable) as fault:
                self._log.warning("the outbox cannot be read", error=str(fault))
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        census = await self._shelf.journal.census()
        oldest_ms = census.now_ms if census.outbox_oldest_ms is None else census.outbox_oldest_ms
        self._waiting = census.outbox_waiting
        self._lag_s = max(0, census.now_ms - oldest_ms) / 1000

    async def _bury(self) -> None:
        """What has waited for a day is dead, also where its receiver is not configured any more."""
        buried = BURY
        while buried == BURY:
            buried = await self._shelf.journal.bury_notices(
                older_than_ms=int(GIVE_UP_S * 1000), error="not taken within a day", limit=BURY
            )
            self._counts.cell("dead").n += buried
            if buried:
                self._log.warning("webhooks were not taken within a day and are given up", count=buried)
