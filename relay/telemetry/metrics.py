"""Every metric, declared once, with its closed label set.

Job: plain slots that cost some 40 ns a count, and the collector that shows them to prometheus-client.
Rules: a label value comes from the closed sets below, never from a request: no address, no hash, no method name that a
stranger can choose. A cell is looked up when a room is built, not when it counts. ``docs/metrics.md`` is held to
`METRICS` by a test.
Must not know: who counts.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, product
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

PREFIX: Final = "relay_"
LATENCY_BUCKETS: Final = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    25.0,
)


Values = dict[tuple[str, ...], tuple[float, ...]]
"""A family's numbers by its label values: one, or a histogram's buckets and then their sum."""
Snapshot = dict[str, Values]
"""By name of the family."""


class Cell:
    """One count. Only ``n`` matters."""

    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class HistogramCell:
    """Counts by bucket, and their sum in seconds."""

    __slots__ = ("buckets", "counts", "total")

    def __init__(self, buckets: Sequence[float]) -> None:
        self.buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value, in seconds."""
        self.counts[bisect_left(self.buckets, value)] += 1
        self.total += value


class _Family:
    """What counters, gauges and histograms share: a name, a help text, labels with closed value sets."""

    kind: str

    def __init__(self, name: str, help_text: str, **labels: tuple[str, ...]) -> None:
        self.name = PREFIX + name
        self.help = help_text
        self.combine: Callable[[Iterable[float]], float] = sum
        self.labels: Mapping[str, tuple[str, ...]] = labels

    def values(self) -> Values:
        """What is counted now."""
        raise NotImplementedError

    def show(self, values: Values) -> Metric:
        """``values`` as prometheus-client wants them."""
        raise NotImplementedError

    def collect(self) -> Metric:
        """What is counted now, as prometheus-client wants it."""
        return self.show(self.values())

    def keys(self) -> Iterator[tuple[str, ...]]:
        """Each combination of label values, in the order of the labels."""
        return product(*self.labels.values())


class Counter(_Family):
    """A count that only rises, one cell for each combination of label values."""

    kind = "counter"

    def __init__(self, name: str, help_text: str, **labels: tuple[str, ...]) -> None:
        super().__init__(name, help_text, **labels)
        self.cells = {key: Cell() for key in self.keys()}
        self._readers: dict[tuple[str, ...], Callable[[], int]] = {}

    def cell(self, *values: str) -> Cell:
        """The cell of these label values; KeyError for one outside the closed set."""
        return self.cells[values]

    def count_from(self, reader: Callable[[], int], *values: str) -> None:
        """Ask ``reader`` at each scrape instead: a pure room counts for itself."""
        self._readers[values] = reader

    def values(self) -> Values:
        """What is counted now."""
        readers = self._readers
        return {key: (readers[key]() if key in readers else cell.n,) for key, cell in self.cells.items()}

    def show(self, values: Values) -> Metric:
        """``values`` as prometheus-client wants them."""
        family = CounterMetricFamily(self.name, self.help, labels=list(self.labels))
        for key, (value,) in values.items():
            family.add_metric(key, value)
        return family


class Gauge(_Family):
    """A value read at the moment of the scrape, from whoever owns it.

    ``combine``: what several processes make of it is the sum of theirs, unless another function says so.
    """

    kind = "gauge"

    def __init__(
        self, name: str, help_text: str, combine: Callable[[Iterable[float]], float] = sum, **labels: tuple[str, ...]
    ) -> None:
        super().__init__(name, help_text, **labels)
        self.combine = combine
        self._readers: dict[tuple[str, ...], Callable[[], float]] = {}

    def read_from(self, reader: Callable[[], float], *values: str) -> None:
        """Ask ``reader`` at each scrape."""
        self._readers[values] = reader

    def values(self) -> Values:
        """What its owners say now."""
        return {key: (reader(),) for key, reader in self._readers.items()}

    def show(self, values: Values) -> Metric:
        """``values`` as prometheus-client wants them."""
        family = GaugeMetricFamily(self.name, self.help, labels=list(self.labels))
        for key, (value,) in values.items():
            family.add_metric(key, value)
        return family


class Histogram(_Family):
    """Seconds, by bucket."""

    kind = "histogram"

    def __init__(self, name: str, help_text: str, **labels: tuple[str, ...]) -> None:
        super().__init__(name, help_text, **labels)
        self.cells = {key: HistogramCell(LATENCY_BUCKETS) for key in self.keys()}

    def cell(self, *values: str) -> HistogramCell:
        """The cell of these label values; KeyError for one outside the closed set."""
        return self.cells[values]

    def values(self) -> Values:
        """What was observed: the count of each bucket, then the sum."""
        return {key: (*cell.counts, cell.total) for key, cell in self.cells.items()}

    def show(self, values: Values) -> Metric:
        """``values`` as prometheus-client wants them."""
        family = HistogramMetricFamily(self.name, self.help, labels=list(self.labels))
        bounds = [*map(str, LATENCY_BUCKETS), "+Inf"]
        for key, (*counts, total) in values.items():
            family.add_metric(key, list(zip(bounds, accumulate(counts), strict=True)), total)
        return family


REFUSALS: Final = (
    "queue_full",
    "waited_too_long",
    "at_capacity",
    "too_much_waiting",
    "ordering_unavailable",
    "lanes_unavailable",
    "nonce_gap",
    "draining",
    "internal",
)
TIERS: Final = ("local", "redis")
REDIS_REASONS: Final = ("timeout", "connection", "readonly", "oom", "auth", "loading", "cluster", "busy", "other")
DISPOSITIONS: Final = (
    "accepted",
    "in_pool",
    "nonce_spent",
    "slot_taken",
    "not_now",
    "funds",
    "reprice",
    "refused_here",
    "refused",
    "uncertain",
    "unrecognised",
)


HOLDS: Final = (
    "timeout_in_pool",
    "timeout_nonce_used",
    "timeout_gap",
    "timeout_dropped",
    "held_funds",
    "held_not_now",
    "held_reprice",
    "held_unreachable",
    "held_paused",
    "held_dropped",
    "held_unanswered",
    "held_refused",
    "under_base_fee",
    "unfunded",
    "behind_gap",
)
"""Reasons of `relay.lifecycle` for which a submission does not move."""


class Metrics:
    """All metrics of one process. Built once, by the composition root; tests build their own."""

    def __init__(self) -> None:
        self.requests = Counter(
            "requests_total",
            "Requests by way in, class and outcome.",
            way=("http", "websocket"),
            kind=("pass", "submission", "ask", "refused"),
            outcome=("answered", "failed", "gone"),
        )
        self.connections = Gauge("connections", "Open client connections.", way=("http", "websocket"))
        self.lane_wait = Histogram("lane_wait_seconds", "From ticket to turn.", tier=TIERS)
        self.lane_hold = Histogram("lane_hold_seconds", "From turn to release.", tier=TIERS)
        self.lanes = Gauge("lanes", "Lanes kept, by state.", state=("idle", "busy"))
        self.waiting = Gauge("submissions_waiting", "Tickets that wait for their turn.")
        self.running = Gauge("submissions_running", "Submissions that hold their lane.")
        self.lane_refusals = Counter("lane_refusals_total", "Submissions refused by a lane.", reason=REFUSALS)
        self.gaps = Counter("gaps_total", "Gaps in a lane and how they ended.", end=("filled", "forwarded", "refused"))
        self.attached = Counter("duplicates_attached_total", "Copies that joined a submission in flight.")
        self.prechecks = Counter(
            "precheck_refusals_total",
            "Submissions refused by a precheck or the decoder.",
            stage=("decode", "stateless", "stateful"),
        )
        self.verdicts = Counter(
            "verdicts_total", "What the upstream's answers to submissions meant.", disposition=DISPOSITIONS
        )
        self.unknown = Counter(
            "unknown_outcomes_total",
            "Outcomes that were unknown and how they ended.",
            end=("found", "accepted", "unknown"),
        )
        self.runs = Counter(
            "runs_total",
            "Batches of consecutive submissions and what came back.",
            end=("answered", "unknown", "refused", "not_sent"),
        )
        self.run_submissions = Counter("run_submissions_total", "Submissions in those batches.")
        self.unordered = Counter("unordered_total", "Submissions of unknown types, passed without ordering.")
        self.upstream_time = Histogram(
            "upstream_seconds", "From request to the upstream's answer.", kind=("submission", "read")
        )
        self.upstream_errors = Counter(
            "upstream_errors_total",
            "Upstream requests that got no usable answer.",
            reason=("unreachable", "timed_out", "cut_off", "unusable"),
        )
        self.upstream_ready = Gauge("upstream_ready", "1 while the upstream answers, on the right chain.", combine=min)
        self.upstream_connections = Gauge(
            "upstream_connections", "Connections to the upstream, by state.", state=("idle", "busy", "opening")
        )
        self.lease_acquisitions = Counter(
            "lease_acquisitions_total",
            "Leases taken: asked for, pushed by another instance, or kept at once after leaving.",
            way=("entered", "pushed", "kept"),
        )
        self.lost_leases = Counter("lost_leases_total", "Leases that ended while they were held.")
        self.withheld_writes = Counter("withheld_writes_total", "Writes that were not made, for want of the lease.")
        self.handoff = Histogram("handoff_seconds", "From a pushed lease's arrival to the first write under it.")
        self.leases = Gauge("lanes_shared", "Lanes that want or hold a lease.")
        self.redis_degraded = Gauge("redis_degraded", "1 while Redis is configured and gone.")
        self.redis_errors = Counter("redis_errors_total", "Commands to Redis that failed.", reason=REDIS_REASONS)
        self.forwarded = Gauge("forwarded", "Submissions that this worker handed to the lane process, unanswered.")
        self.forwarded_again = Counter(
            "forwarded_again_total",
            "Submissions handed to a lane process a second time, by why.",
            why=("returned", "maybe_sent"),
        )
        self.link_drops = Counter("link_drops_total", "Links to the lane process lost with submissions on them.")
        self.orphans = Counter(
            "orphans_total",
            "Submissions at the node when their lane process died, by how it was found out.",
            end=("found", "repeated", "expired"),
        )
        self._of_journal()
        self.log_dropped = Counter("log_lines_dropped_total", "Log lines dropped because stdout was blocked.")
        self.workers = Gauge("workers", "Worker processes, by state.", state=("working", "missing"))
        self.worker_restarts = Counter(
            "worker_restarts_total", "Workers that were replaced, by why.", why=("died", "hung", "replaced")
        )
        self.faults = Counter("faults_total", "Faults of the relay itself; each is in the log.")

    def _of_journal(self) -> None:
        self.journal_writes = Counter(
            "journal_writes_total",
            "Submissions written to the journal, by what was written and how it went.",
            write=("admit", "seal", "decide"),
            end=("done", "stale", "failed"),
        )
        self.unrecorded = Counter("unrecorded_total", "Submissions that no journal can hold, passed unrecorded.")
        self.journal_rows = Gauge(
            "journal_rows",
            "Open submissions in the journal, by state.",
            state=("queued", "sealed", "sent", "pending", "mined", "dead_letter"),
        )
        self.journal_held = Gauge("journal_held", "Open submissions that do not move, by why.", reason=HOLDS)
        self.journal_oldest_age = Gauge(
            "journal_oldest_age", "Seconds that the oldest unfinished submission is in its state.", combine=max
        )
        self.journal_census_age = Gauge(
            "journal_census_age", "Seconds since these were counted in the journal.", combine=max
        )
        self.settlements = Counter(
            "settlements_total",
            "Submissions moved by the watch and the sweep, by where to.",
            state=("queued", "sent", "pending", "mined", "completed", "superseded", "dead_letter"),
        )
        self.reorganisations = Counter("reorganisations_total", "Submissions whose block was taken back.")
        self.resends = Counter(
            "resends_total",
            "Submissions that took their lane's turn again, by the state they were found in.",
            state=("queued", "sealed", "sent", "pending"),
        )
        self.sweeps = Counter("sweeps_total", "Sweeps, by how far they came.", end=("done", "cut", "failed", "left"))
        self.sweep_unresolved = Gauge(
            "sweep_unresolved", "Submissions of the last sweep of which not everybody that was asked said something."
        )
        self.lanes_gapped = Gauge("lanes_gapped", "Senders whose next nonce nobody has.")
        self.lanes_paused = Gauge("lanes_paused", "Senders whose lane an operator paused, as this process knows it.")
        self.lanes_wedged = Gauge("lanes_wedged", "Those of them that have been so for ten minutes.")
        self.pruned = Counter("pruned_total", "Ended submissions deleted from the journal by their age.")
        self.journal_ready = Gauge("journal_ready", "1 while a journal is configured and can be written.", combine=min)
        self.webhooks = Counter(
            "webhooks_total",
            "Tries to tell a receiver of a change, by how they ended.",
            end=("delivered", "failed", "dead"),
        )
        self.outbox_waiting = Gauge("outbox_waiting", "Changes that are still to be told, of each receiver.")
        self.outbox_lag = Gauge("outbox_lag", "Seconds for which the oldest change has waited to be told.", combine=max)

    def snapshot(self) -> Snapshot:
        """All of it as plain values: what one process tells another (`relay.telemetry.totals`)."""
        return {family.name: family.values() for family in self.families()}

    def families(self) -> list[Counter | Gauge | Histogram]:
        """In the order of their declaration."""
        # The ignore: mypy sees the shared base, and each of them is one of the three.
        return [family for family in vars(self).values() if isinstance(family, _Family)]  # type: ignore[misc]


class MetricsCollector(Collector):
    """Shows `Metrics` to prometheus-client."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """One family after the other."""
        return (family.collect() for family in self._metrics.families())
