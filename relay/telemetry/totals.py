"""The metrics of several processes as those of one.

Job: add up what workers tell; keep what those counted that have ended, so that no counter ever goes back.
Rules: each family says itself how its numbers combine (`Gauge.combine`). What has ended counts no gauge any more.
Must not know: how the numbers came here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

from relay.telemetry.metrics import Gauge, Metrics

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from prometheus_client.core import Metric

    from relay.telemetry.metrics import Counter, Histogram, Snapshot, Values

    Family = Counter | Gauge | Histogram


def merge(families: Iterable[Family], snapshots: Sequence[Snapshot]) -> Snapshot:
    """One snapshot of ``families`` that speaks for all; what only some know counts for those."""
    return {family.name: _combined(family, [one.get(family.name, {}) for one in snapshots]) for family in families}


def _combined(family: Family, parts: list[Values]) -> Values:
    keys = dict.fromkeys(key for part in parts for key in part)
    return {
        key: tuple(family.combine(column) for column in zip(*(part[key] for part in parts if key in part), strict=True))
        for key in keys
    }


class Totals(Collector):
    """For prometheus-client: all workers, alive and dead, as one. Whatever tells one process from another names it."""

    def __init__(self) -> None:
        self._families = Metrics().families()
        self._lasting = [family for family in self._families if not isinstance(family, Gauge)]
        self._past: Snapshot = {}
        self._last: dict[Hashable, Snapshot] = {}

    def __repr__(self) -> str:
        return f"<totals: {len(self._last)} workers>"

    def told(self, worker: Hashable, snapshot: Snapshot) -> None:
        """The newest that ``worker`` says of itself."""
        self._last[worker] = snapshot

    def ended(self, worker: Hashable) -> None:
        """``worker`` is no more; what it counted stays."""
        self._past = merge(self._lasting, [self._past, self._last.pop(worker, {})])

    def snapshot(self) -> Snapshot:
        """The sum by now."""
        return merge(self._families, [self._past, *self._last.values()])

    def collect(self) -> Iterable[Metric]:
        """One family after the other."""
        snapshot = self.snapshot()
        return (family.show(snapshot[family.name]) for family in self._families)
