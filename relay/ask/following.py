"""Which events of a journal have been seen, where they come to light out of the order of their ids.

Job: one place in the sequence of events, and the gaps below it. A database hands out an id before the change that has
it is committed: a later id may be seen first, and the earlier one a moment afterwards, or never (it was undone).
Rules: an id below the place that was not there is asked for again until it comes or `LATE_S` have passed; no change
takes so long to be committed. Each event is given out once.
Must not know: stores, who wants to know, when to look again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from relay.journal.records import Change

LATE_S: Final = 10.0
"""Far above the longest that a store lets a change take (2 s for a statement of PostgreSQL)."""
MARGIN: Final = 1000
"""Ids below the first place among which one may still come: more than are being committed at a moment."""
MAX_GAPS: Final = 20_000
"""Ids that are asked for again. Beyond, the oldest are given up: their changes were undone long ago, as like as not."""


class Following:
    """Begins behind ``latest``, the newest changes, at most `MARGIN`: those count as seen."""

    def __init__(self, latest: Sequence[Change], now: float) -> None:
        self._gaps: dict[int, float] = {}
        ids = [change.event.id for change in latest]
        self.place = max(0, ids[-1] - MARGIN) if ids else 0
        """The highest id that was looked at."""
        self._move(ids, now)

    def __repr__(self) -> str:
        return f"<following: {self.place}, {len(self._gaps)} gaps>"

    @property
    def gaps(self) -> list[int]:
        """Ids to be asked for once more."""
        return list(self._gaps)

    def saw(self, changes: Iterable[Change], now: float) -> None:
        """These were handed on: gaps that have come, or the page behind `place`."""
        self._move([change.event.id for change in changes], now)

    def forget(self, now: float) -> None:
        """Give up gaps that have been asked for long enough."""
        for id_, since in list(self._gaps.items()):
            if now - since < LATE_S:
                break
            del self._gaps[id_]

    def _move(self, ids: Iterable[int], now: float) -> None:
        for id_ in ids:
            if id_ <= self.place:
                self._gaps.pop(id_, None)
                continue
            for missing in range(max(self.place + 1, id_ - MAX_GAPS), id_):
                self._gaps[missing] = now
            self.place = id_
        while len(self._gaps) > MAX_GAPS:
            del self._gaps[next(iter(self._gaps))]
