"""How the journal stands: the gauges, and the store's clock.

Job: a census now and then, kept for the scrapes between; what time it is by the store, estimated from it.
Rules: a scrape reads what is there and waits for nothing. Ages are measured by the store's clock, since its times are.
Must not know: what is done about it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from relay.lifecycle import LIVE

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.journal.records import Census, Count
    from relay.journal.store import Journal
    from relay.telemetry.metrics import Metrics


class Standing:
    """What the last census said."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._census: Census | None = None
        self._taken = 0.0
        self._begun = clock()
        for state in metrics.journal_rows.labels["state"]:
            metrics.journal_rows.read_from(partial(self._rows, state), state)
        for reason in metrics.journal_held.labels["reason"]:
            metrics.journal_held.read_from(partial(self._held, reason), reason)
        metrics.journal_oldest_age.read_from(self._oldest_age)
        metrics.journal_census_age.read_from(lambda: self._clock() - (self._taken or self._begun))

    def __repr__(self) -> str:
        return f"<standing: {self._census}>"

    async def refresh(self, journal: Journal) -> None:
        """Take a census."""
        census = await journal.census()
        self._census, self._taken = census, self._clock()

    def now_ms(self) -> int | None:
        """The time by the store's clock, None before the first census."""
        if self._census is None:
            return None
        return self._census.now_ms + int((self._clock() - self._taken) * 1000)

    def _rows(self, state: str) -> float:
        return sum(count.rows for count in self._counts() if count.state == state)

    def _held(self, reason: str) -> float:
        return sum(count.rows for count in self._counts() if count.reason == reason)

    def _oldest_age(self) -> float:
        oldest = min((count.oldest_ms for count in self._counts() if count.state in LIVE), default=None)
        now_ms = self.now_ms()
        return 0.0 if oldest is None or now_ms is None else max(0, now_ms - oldest) / 1000

    def _counts(self) -> tuple[Count, ...]:
        return () if self._census is None else self._census.open
