"""The outbox of the journal in memory: a row for each change and each receiver.

Must not know: what a change is about, who is told how.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.journal.records import Delivery, storable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from relay.journal.records import Event


class Due:
    """A row, for one receiver."""

    __slots__ = ("delivery", "due_ms", "error", "event", "tries")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.delivery = Delivery.WAITING
        self.due_ms = event.at_ms
        self.tries = 0
        self.error = ""

    @property
    def waits(self) -> bool:
        """Is it still to be told?"""
        return self.delivery is Delivery.WAITING


class Outbox:
    """For ``receivers``; without any, nothing is kept."""

    def __init__(self, receivers: Sequence[str]) -> None:
        self._receivers = tuple(receivers)
        self._rows: dict[tuple[int, str], Due] = {}

    def __repr__(self) -> str:
        return f"<outbox: {len(self._rows)} rows>"

    def put(self, event: Event) -> None:
        """It is to be told to everybody."""
        for receiver in self._receivers:
            self._rows[event.id, receiver] = Due(event)

    def take(self, receiver: str, limit: int, now_ms: int, hold_ms: int) -> list[Due]:
        """What has been due longest; held back for ``hold_ms``."""
        due = [
            row for (_, whose), row in self._rows.items() if whose == receiver and row.waits and row.due_ms <= now_ms
        ]
        taken = sorted(due, key=lambda row: (row.due_ms, row.event.id))[:limit]
        for row in taken:
            row.due_ms, row.tries = now_ms + hold_ms, row.tries + 1
        return taken

    def mark(self, event: int, receiver: str, delivery: Delivery, due_ms: int, error: str) -> None:
        """How it went. A late mark changes only what it knows to be delivered."""
        row = self._rows.get((event, receiver))
        if row is not None and (row.waits or delivery is Delivery.DELIVERED):
            row.delivery, row.due_ms, row.error = delivery, due_ms, storable(error)

    def bury(self, before_ms: int, error: str, limit: int) -> int:
        """Give up what has waited since ``before_ms``."""
        old = [row for row in self._rows.values() if row.waits and row.event.at_ms <= before_ms][:limit]
        for row in old:
            row.delivery, row.error = Delivery.DEAD, storable(error)
        return len(old)

    def waiting(self) -> list[int]:
        """When each that waits happened."""
        return [row.event.at_ms for row in self._rows.values() if row.waits]

    def dead(self) -> int:
        """How many were given up."""
        return sum(row.delivery is Delivery.DEAD for row in self._rows.values())

    def waits_for(self, events: Collection[int]) -> bool:
        """Is one of them still to be told to anybody who is told now?"""
        if not self._receivers:
            return False
        return any(row.waits for (event, _), row in self._rows.items() if event in events)

    def forget(self, events: Collection[int]) -> None:
        """Their submission is gone."""
        self._rows = {place: row for place, row in self._rows.items() if place[0] not in events}
