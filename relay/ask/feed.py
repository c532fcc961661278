"""What changes in the journal, whoever changed it: other instances and processes, too.

Job: read the journal's events on while somebody wants to hear of them, and hand them on in the order in which they came
to light.
Rules: nobody there, nothing read. After `start` no change is missed, also over times without the journal. Whoever is
told is never waited for.
Must not know: who is told, how.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from relay.ask.following import MARGIN, Following
from relay.journal.faults import Unavailable, Unusable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from relay.journal.records import Change
    from relay.journal.shelf import Shelf
    from relay.tasks import TaskOwner

POLL_S: Final = 0.25
AGAIN_S: Final = 1.0
"""After a failure."""
PAGE: Final = 500


class Feed:
    """``hear`` gets the changes: it tells all of them, or fails before it has told any."""

    def __init__(
        self,
        shelf: Shelf,
        hear: Callable[[Sequence[Change]], Awaitable[None]],
        owner: TaskOwner,
        clock: Callable[[], float],
    ) -> None:
        self._shelf = shelf
        self._hear = hear
        self._owner = owner
        self._clock = clock
        self._starting = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._log = structlog.get_logger("relay.ask")

    def __repr__(self) -> str:
        return f"<feed: {'reading' if self._task else 'idle'}>"

    async def start(self) -> None:
        """Hear of every change that is made once this has returned. Raises Unavailable, Unusable."""
        async with self._starting:
            if self._task is None or self._task.done():
                latest = await self._shelf.journal.latest_changes(MARGIN)
                self._task = self._owner.spawn("feed", self._read_on(Following(latest, self._clock())))

    def stop(self) -> None:
        """Nobody is there any more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _read_on(self, following: Following) -> None:
        failing = False
        while True:
            try:
                full = await self._look(following)
            except (Unavailable, Unusable) as fault:
                if not failing:
                    self._log.warning("changes cannot be read, subscribers wait", error=str(fault))
                failing = True
                await asyncio.sleep(AGAIN_S)
                continue
            failing = False
            if not full:
                await asyncio.sleep(POLL_S)

    async def _look(self, following: Following) -> bool:
        """Hand on what is new. Is there more? What could not be handed on is read again."""
        journal = self._shelf.journal
        if gaps := following.gaps:
            await self._hand_on(following, await journal.changes_of(gaps))
            following.forget(self._clock())
        page = await journal.changes_since(following.place, limit=PAGE)
        await self._hand_on(following, page)
        return len(page) == PAGE

    async def _hand_on(self, following: Following, changes: Sequence[Change]) -> None:
        await self._hear(changes)
        following.saw(changes, self._clock())
