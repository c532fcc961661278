"""The figures of several processes as one.

Job: add up snapshots (`Metrics.snapshot`), say what of one outlives its process, show the sum to prometheus-client.
Rules: pure. How gauges come together stands in their declaration. Both ends are the same version of the relay, so a
snapshot holds no names beyond those of `Metrics`.
Must not know: processes, how snapshots travel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relay.telemetry.metrics import Gauge, Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.core import Metric

    from relay.telemetry.metrics import Snapshot, Value

_DECLARED: Final = {family.name: family for family in Metrics().families()}


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Counters and histograms added up; gauges by `Gauge.together`."""
    whole: Snapshot = {}
    for snapshot in snapshots:
        for name, values in snapshot.items():
            together = _together(name)
            mine = whole.setdefault(name, {})
            for key, value in values.items():
                mine[key] = together(mine[key], value) if key in mine else value
    return whole


def lasting(snapshot: Snapshot) -> Snapshot:
    """What counts on when the process has ended: counters and histograms."""
    return {name: values for name, values in snapshot.items() if not isinstance(_DECLARED[name], Gauge)}


def collected(snapshot: Snapshot) -> Iterator[Metric]:
    """As prometheus-client wants it, in the order of the declaration."""
    return (family.shown(snapshot.get(name, {})) for name, family in _DECLARED.items())


def _together(name: str) -> Callable[[Value, Value], Value]:
    family = _DECLARED[name]
    return family.together if isinstance(family, Gauge) else _added


def _added(one: Value, other: Value) -> Value:
    return tuple(map(sum, zip(one, other, strict=True))) if isinstance(one, tuple) else one + other
