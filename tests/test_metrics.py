"""Metrics: what they count, what a scrape shows, and that the documentation lists them."""

from __future__ import annotations

import marshal
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from relay.config import OPTIONS
from relay.telemetry.metrics import LATENCY_BUCKETS, Counter, Gauge, Histogram, Metrics, MetricsCollector
from relay.telemetry.totals import Totals

if TYPE_CHECKING:
    from prometheus_client.registry import Collector
    from prometheus_client.samples import Sample

    from relay.telemetry.metrics import Snapshot

DOCUMENT = Path(__file__).parents[1] / "docs" / "metrics.md"


def scrape(metrics: Metrics | Collector) -> list[Sample]:
    """What Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(MetricsCollector(metrics) if isinstance(metrics, Metrics) else metrics)
    text = generate_latest(registry).decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def documented() -> list[list[str]]:
    """The cells of the document's table."""
    lines = [line for line in DOCUMENT.read_text("utf-8").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def labels(family: Counter | Gauge | Histogram) -> str:
    """A family's labels as the document writes them."""
    return " · ".join(f"`{name}`: {', '.join(values)}" for name, values in family.labels.items()) or "–"


def test_every_metric_is_documented() -> None:
    """Its name, type and label values as in the code, in the order of the code; what it tells and what to do."""
    found = documented()
    assert [row[:3] for row in found] == [
        [f"`{family.name}`", family.kind, labels(family)] for family in Metrics().families()
    ]
    assert all(len(row) == 5 and row[3] and row[4] for row in found)


def test_what_the_document_names_exists() -> None:
    """Options and metrics named in the advice are real."""
    text = DOCUMENT.read_text("utf-8")
    options = re.findall(r"\[(\w+)\] (\w+)", text)
    names = set(re.findall(r"`(relay_\w+)`", text))
    assert options
    assert [name for name in options if name[1] not in OPTIONS.get(name[0], {})] == []
    assert names == {family.name for family in Metrics().families()}


def test_every_counter_is_there_from_the_start() -> None:
    """Each combination of labels is shown as 0 before anything is counted."""
    metrics = Metrics()
    samples = {(sample.name, *sample.labels.items()) for sample in scrape(metrics)}
    for family in metrics.families():
        if isinstance(family, Counter):
            shown = [sample for sample in samples if sample[0] == family.name]
            assert len(shown) == len(family.cells)
    assert all(sample.value == 0 for sample in scrape(metrics))


def test_names_follow_the_conventions() -> None:
    """Counters end in _total, histograms in _seconds, gauges in neither; all begin with relay_."""
    for family in Metrics().families():
        assert family.name.startswith("relay_")
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert family.name.endswith("_seconds") == (family.kind == "histogram")


def test_a_histogram_counts_by_bucket_and_in_total() -> None:
    """A value belongs to the first bucket whose bound is not below it; buckets are cumulative."""
    metrics = Metrics()
    cell = metrics.lane_hold.cell("local")
    for value in (0.0, 0.01, 0.0100001, 24.0, 26.0):
        cell.observe(value)
    samples = {
        sample.labels.get("le", sample.name): sample.value
        for sample in scrape(metrics)
        if sample.name.startswith("relay_lane_hold_seconds") and sample.labels["tier"] == "local"
    }
    assert samples["0.0005"] == 1
    assert samples["0.01"] == 2
    assert samples["0.025"] == 3
    assert samples["25.0"] == 4
    assert samples["+Inf"] == samples["relay_lane_hold_seconds_count"] == 5
    assert samples["relay_lane_hold_seconds_sum"] == pytest.approx(50.0200001)
    assert len(samples) == len(LATENCY_BUCKETS) + 3


def test_a_gauge_is_read_at_the_scrape() -> None:
    """Its owner is asked each time."""
    metrics, value = Metrics(), [1]
    metrics.running.read_from(lambda: value[0])
    seen = []
    for value[0] in (1, 5):
        seen += [sample.value for sample in scrape(metrics) if sample.name == "relay_submissions_running"]
    assert seen == [1, 5]


def test_a_snapshot_is_plain_and_shows_the_same() -> None:
    """It can go to another process, and loses nothing on the way."""
    metrics = Metrics()
    metrics.faults.cell().n = 3
    metrics.lane_wait.cell("redis").observe(0.3)
    metrics.running.read_from(lambda: 2)
    totals = Totals()
    totals.told(1, marshal.loads(marshal.dumps(metrics.snapshot())))

    assert scrape(totals) == scrape(metrics)


def test_workers_add_up_and_counters_never_go_back() -> None:
    """A worker that ends takes its gauges along; what it counted stays, and its replacement begins at 0."""

    def worker(count: int, ready: int) -> Snapshot:
        metrics = Metrics()
        metrics.faults.cell().n = count
        for _ in range(count):
            metrics.lane_hold.cell("local").observe(0.25)
        metrics.running.read_from(lambda: count)
        metrics.upstream_ready.read_from(lambda: ready)
        return metrics.snapshot()

    def seen() -> list[float]:
        values = totals.snapshot()
        names = ("relay_faults_total", "relay_submissions_running", "relay_upstream_ready")
        hold = values["relay_lane_hold_seconds"][("local",)]
        return [*(values[name].get((), (-1,))[0] for name in names), sum(hold[:-1]), hold[-1]]

    totals = Totals()
    totals.told("a", worker(2, 1))
    totals.told("b", worker(3, 0))
    assert seen() == [5, 5, 0, 5, 1.25]
    totals.ended("b")
    assert seen() == [5, 2, 1, 5, 1.25]
    totals.told("c", worker(0, 1))
    totals.told("c", worker(1, 1))
    totals.ended("a")
    assert seen() == [6, 1, 1, 6, 1.5]
    totals.ended("a")
    totals.ended("c")
    assert seen() == [6, -1, -1, 6, 1.5]


def test_a_label_outside_the_closed_set_is_an_error() -> None:
    """No stranger's word becomes a time series."""
    with pytest.raises(KeyError):
        Metrics().requests.cell("http", "pass", "0xabc")
    with pytest.raises(KeyError):
        Metrics().lane_wait.cell("elsewhere")
