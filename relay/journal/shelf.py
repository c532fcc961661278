"""Where a process gets its journal: opened at the start, and tried again until it is there.

Rules: a store that no waiting will mend (`Unusable`) ends the start, by an error that names ``[journal] url``; one that
is away for now does not: what needs no journal goes on, what needs it is refused until it is there.
Must not know: what is kept in it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from relay.journal.faults import Unavailable, Unusable
from relay.journal.url import open_journal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay.journal.store import Journal
    from relay.tasks import TaskOwner

AGAIN_S: Final = 1.0
"""Between two tries to open it."""
CHECK_S: Final = 3.0
CLOSE_S: Final = 0.5
"""For what was asked of it last. Whoever waited for that has been told by then."""
CHECK_EACH_S: Final = 15.0
"""Between two checks of its own, beside those that others ask for."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the check says."""

    ready: bool
    detail: str


class Shelf:
    """The journal at ``url``. Every change is kept to be told to ``receivers``."""

    def __init__(self, url: str, *, receivers: Sequence[str] = ()) -> None:
        self._url = url
        self._receivers = tuple(receivers)
        self._journal: Journal | None = None
        self._why: Unavailable | Unusable = Unavailable("the journal ([journal] url) is not open yet")
        self.opened = asyncio.Event()
        self.ready = False
        """What the last check found."""
        self._log = structlog.get_logger("relay.journal")

    def __repr__(self) -> str:
        return f"<shelf: {self._journal!r}>"

    @property
    def journal(self) -> Journal:
        """The open journal. Raises what is against it."""
        if self._journal is None:
            raise self._why
        return self._journal

    async def start(self, background: TaskOwner) -> None:
        """Open it; if that cannot be for now, go on trying. Raises Unusable."""
        if not await self._opens():
            self._log.warning("the journal cannot be opened, submissions are refused until it is", error=str(self._why))
            background.start("journal", self._open_later())
        background.start("journal check", self._check_forever())

    async def check(self) -> Found:
        """Is it there, and can it be written?"""
        found = await self._find()
        self.ready = found.ready
        return found

    async def _find(self) -> Found:
        try:
            async with asyncio.timeout(CHECK_S):
                await self.journal.check()
        except TimeoutError:
            return Found(ready=False, detail=f"the journal did not answer within {CHECK_S:g} s ([journal] url)")
        except (Unavailable, Unusable) as fault:
            return Found(ready=False, detail=str(fault))
        return Found(ready=True, detail="open")

    async def close(self) -> None:
        """Finish what was asked, as far as `CLOSE_S` goes, then let go: no store holds up an end. Idempotent."""
        journal, self._journal = self._journal, None
        self._why = Unavailable("the journal is closed")
        if journal is None:
            return
        try:
            async with asyncio.timeout(CLOSE_S):
                await journal.close()
        except TimeoutError:
            self._log.warning("the journal does not answer, what was asked of it last may be written or not")

    async def _check_forever(self) -> None:
        while True:
            await self.check()
            await asyncio.sleep(CHECK_EACH_S)

    async def _opens(self) -> bool:
        try:
            self._journal = await open_journal(self._url, receivers=self._receivers)
        except Unavailable as fault:
            self._why = fault
            return False
        self.ready = True
        self.opened.set()
        return True

    async def _open_later(self) -> None:
        """A store that turns out to be unusable meanwhile is told by /readyz and each refusal, and tried again."""
        while True:
            await asyncio.sleep(AGAIN_S)
            try:
                if await self._opens():
                    self._log.info("the journal is open")
                    return
            except Unusable as fault:
                self._why = fault
