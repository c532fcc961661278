"""Alerts and dashboard: they ask for what the product counts, and they ring when they should.

Prometheus's own promtool tries the rules, where it is installed (``scripts/promtool``).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from relay.telemetry.metrics import Counter, Gauge, Histogram, Metrics

ROOT = Path(__file__).parents[1]
ALERTS = ROOT / "deploy" / "alerts.yml"
TRIALS = ROOT / "tests" / "alerts_test.yml"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"] for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "dashboard.json").read_text("utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=str(Path(sys.executable).parent))

PARTS: Final = ("bucket", "sum", "count")
"""Of a histogram, each a metric to Prometheus."""


def families() -> dict[str, Counter | Gauge | Histogram]:
    """By their names as Prometheus knows them."""
    named: dict[str, Counter | Gauge | Histogram] = {}
    for family in Metrics().families():
        parts = [f"{family.name}_{part}" for part in PARTS] if isinstance(family, Histogram) else [family.name]
        named |= dict.fromkeys(parts, family)
    return named


def assert_exists(expression: str) -> None:
    """Every metric, each of its labels, and each value that it is compared with."""
    known = families()
    asked = re.findall(r"\b(relay_\w+)(?:\{([^}]*)\})?", expression)
    assert asked or expression.startswith("up{")
    for name, selector in asked:
        assert name in known, name
        for label, values in re.findall(r'(\w+)=~?"([^"]*)"', selector):
            if label != "instance":
                assert set(values.split("|")) <= set(known[name].labels[label]), (name, values)


def labels_of(expression: str) -> set[str]:
    """What it is told apart by, as far as it says so."""
    return {label.strip() for by in re.findall(r"\bby \(([^)]*)\)", expression) for label in by.split(",")}


def promtool(*arguments: str) -> None:
    """Run it; what it says is the failure."""
    if PROMTOOL is None:
        pytest.skip("there is no promtool; scripts/promtool gets it where there is apt")
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# Alerts


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_asks_for_metrics_that_exist(rule: dict[str, Any]) -> None:
    """And its words name only labels that are there."""
    assert_exists(rule["expr"])
    for label in re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])):
        assert label == "instance" or label in labels_of(rule["expr"])


def test_every_alert_says_how_bad_it_is_and_what_is_wrong() -> None:
    """A name of its own, a severity, a summary."""
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    assert {rule["labels"]["severity"] for rule in RULES} == {"critical", "warning"}
    assert all(rule["annotations"]["summary"] for rule in RULES)


def test_every_alert_is_documented() -> None:
    """The page on operation lists each, in the order of the file, and says what to do."""
    page = (ROOT / "docs" / "operation.md").read_text("utf-8").split("## Alerts and dashboard")[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    assert [row[0].strip(" `") for row in rows] == [rule["alert"] for rule in RULES]
    assert all(len(row) == 3 and row[1].strip() and row[2].strip() for row in rows)


def test_every_alert_is_tried() -> None:
    """Each rings at least once in the trials."""
    trials = yaml.safe_load(TRIALS.read_text("utf-8"))["tests"]
    rung = {each["alertname"] for trial in trials for each in trial["alert_rule_test"] if each["exp_alerts"]}
    assert rung == {rule["alert"] for rule in RULES}


def test_the_alerts_are_rules() -> None:
    """As Prometheus reads them."""
    promtool("check", "rules", str(ALERTS))


def test_the_alerts_ring_when_they_should() -> None:
    """And are silent when they should not."""
    promtool("test", "rules", str(TRIALS))


# Dashboard


def expressions() -> list[str]:
    """What its panels ask for."""
    return [target["expr"] for panel in PANELS for target in panel["targets"]]


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_a_panel_asks_for_metrics_that_exist(panel: dict[str, Any]) -> None:
    """Of the instances that are chosen, and its legend names labels that are there."""
    for target in panel["targets"]:
        assert_exists(target["expr"])
        selectors = re.findall(r"\brelay_\w+(\{[^}]*\})?", target["expr"])
        assert all('instance=~"$instance"' in selector for selector in selectors)
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels_of(target["expr"])


def test_the_dashboard_shows_each_room() -> None:
    """In rows; no two panels share an id, a title or a place, and each says what it shows."""
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Traffic", "Lanes", "Journal by state", "Sweep", "Webhooks"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    assert all(panel["description"] and panel["fieldConfig"]["defaults"]["unit"] for panel in PANELS)
    assert not any(overlap(*pair) for pair in combinations([panel["gridPos"] for panel in DASHBOARD["panels"]], 2))


def overlap(one: dict[str, int], two: dict[str, int]) -> bool:
    """Do two rectangles share a square?"""
    return all(one[at] < two[at] + two[size] and two[at] < one[at] + one[size] for at, size in (("x", "w"), ("y", "h")))


def test_the_dashboards_questions_are_questions(tmp_path: Path) -> None:
    """Prometheus can parse each."""
    filled = [text.replace("$__rate_interval", "5m").replace("$instance", ".*") for text in expressions()]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(filled)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), "utf-8")
    promtool("check", "rules", str(file))
