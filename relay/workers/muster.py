"""Before a gap is judged, everybody hands in what fills it.

Job: say from when a lane process that takes over can tell a gap from a ticket that is yet to come: when each forwarder
that lived at the time has come and handed in what it had.
Rules: only gaps wait for that; whatever may go goes. A forwarder that does not come holds them up for no more than
`LATE_S` and a fifth of ``max_wait_s``: what waits has its window after that, and still its turn (G5).
Must not know: links, lanes.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LATE_S: Final = 5.0


class Muster:
    """``since``: no gap is older; infinite until all are there, or their time is over."""

    def __init__(self, max_wait_s: float, clock: Callable[[], float]) -> None:
        self._late_s = min(LATE_S, max_wait_s / 5)
        self._clock = clock
        self._missing: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._log = structlog.get_logger("relay.workers")
        self.since = math.inf
        self.complete: Callable[[], None] = lambda: None
        """Called once, when `since` is known."""

    def __repr__(self) -> str:
        return f"<muster: {sorted(self._missing) or 'nobody'} missing>"

    def begin(self, forwarders: Iterable[int]) -> None:
        """The lanes are ours from now on; these may have tickets of ours."""
        self._missing |= set(forwarders)
        if not self._missing:
            self._end()
        else:
            self._timer = asyncio.get_running_loop().call_later(self._late_s, self._late)

    def present(self, forwarder: int) -> None:
        """It has handed in all it had."""
        if forwarder in self._missing:
            self._missing.discard(forwarder)
            if not self._missing:
                self._end()

    def close(self) -> None:
        """Nobody waits any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _late(self) -> None:
        self._log.warning(
            "workers did not hand in what they had: gaps are judged without them",
            processes=sorted(self._missing),
            seconds=self._late_s,
        )
        self._missing.clear()
        self._end()

    def _end(self) -> None:
        self.close()
        self.since = self._clock()
        self.complete()
