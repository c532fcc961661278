"""Group ``soak``: minutes of everything at once, and whether the relay holds more at the end than at the beginning.

Rules: a small LRU of lanes, so that it is full and evicts long before the warm-up ends; the node is in a process of its
own. What others do to the machine does not matter here: memory is not time.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from statistics import linear_regression
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from acceptance.bench.crowds import Crowd
from acceptance.bench.sheet import Findings, met

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acceptance.bench.turns import Turns
    from acceptance.rig.parts import Part, Rig

WARM_UP: Final = 20
MEASURED: Final = 120
"""Both in turns' lengths: a minute, and six."""
EVERY_S: Final = 1.0
SHOWN: Final = 20
MAX_SENDERS: Final = 5000
CLIENTS: Final = {"submitters": 4, "callers": 4, "leavers": 4, "watchers": 4}
READY: Final = r"ready (?P<url>http://\S+) ws (?P<ws>ws://\S+)"
MIB: Final = 2**20
SLOPE_MIB: Final = 0.1
"""A minute; at 0.1 a relay that began with 60 MiB has twice that after ten hours."""


class Seen(NamedTuple):
    """One look at the relay."""

    at_s: float
    rss_mib: float
    files: int


async def measure(rig: Rig, turns: Turns) -> Findings:
    """The series, its slope, and what is left when all clients have gone."""
    node = await rig.start("soak node", [sys.executable, "-m", "acceptance.bench.soak_node"])
    ready = await node.line(READY)
    relay = await rig.relay(ready["url"], upstream__ws_url=ready["ws"], ordering__max_senders=MAX_SENDERS)
    crowd = Crowd(relay, rig.caller(relay.url).session)
    before = _look(relay, 0.0)
    async with asyncio.TaskGroup() as group:
        group.create_task(crowd.run(CLIENTS), name="crowd")
        seen = await _watch(relay, (WARM_UP + MEASURED) * turns.seconds)
        crowd.stopped = True
    after = await _alone(rig, relay)
    begun = WARM_UP * turns.seconds
    slope = _slope([look for look in seen if look.at_s >= begun])
    waiting = await rig.metric(relay, "relay_submissions_waiting") + await rig.metric(
        relay, "relay_submissions_running"
    )
    faults = await rig.metric(relay, "relay_faults_total")
    return Findings(
        [
            f"{sum(CLIENTS.values())} clients for {seen[-1].at_s:.0f} s, the first {begun} s of it to warm up:"
            " submissions by ever new senders, some wrong and some with a gap before them; calls with unique heads;"
            " WebSocket sessions with a subscription; clients that leave in the middle. The node refuses one submission"
            f" of fifty and drops the connection of one of five hundred. `max_senders = {MAX_SENDERS}`.",
            "",
            "- " + ", ".join(f"{count:,} {name}" for name, count in sorted(crowd.counts.items())),
            f"- RSS after the warm-up, MiB: {_series(seen, begun)}",
            f"- its slope: **{slope:+.3f} MiB a minute**, at most {SLOPE_MIB}: {met(slope <= SLOPE_MIB)}",
            f"- files open: {before.files} before, at most {max(look.files for look in seen)},"
            f" {after.files} when all had gone, kept connections to the node included",
            f"- submissions left: {waiting:.0f}, faults: {faults:.0f}, none: {met(waiting + faults == 0)}",
        ],
    )


async def _watch(relay: Part, seconds: float) -> list[Seen]:
    began, seen = monotonic(), list[Seen]()
    while (at_s := monotonic() - began) < seconds:
        seen.append(_look(relay, at_s))
        await asyncio.sleep(EVERY_S)
    return seen


async def _alone(rig: Rig, relay: Part) -> Seen:
    """The relay when no client is connected any more."""
    async with asyncio.timeout(30):
        while await rig.metric(relay, "relay_connections"):  # noqa: ASYNC110 - only asking tells
            await asyncio.sleep(EVERY_S)
    return _look(relay, 0.0)


def _look(relay: Part, at_s: float) -> Seen:
    files = sum(1 for _ in Path(f"/proc/{relay.process.pid}/fd").iterdir())
    return Seen(at_s, relay.process.rss_bytes() / MIB, files)


def _slope(seen: Sequence[Seen]) -> float:
    """MiB a minute, by least squares."""
    return linear_regression([look.at_s / 60 for look in seen], [look.rss_mib for look in seen]).slope


def _series(seen: Sequence[Seen], begun: float) -> str:
    warm = [look for look in seen if look.at_s >= begun]
    return " · ".join(f"{look.rss_mib:.1f}" for look in warm[:: max(1, len(warm) // SHOWN)])
