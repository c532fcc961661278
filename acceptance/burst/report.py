"""What a burst came to, in figures.

Job: flights and the chain's positions → one summary; the summary as JSON and as tables for a terminal.
Rules: pure but for the printing. Latency is from the request handed to the socket to its complete answer.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from acceptance.burst.plan import Pattern
    from acceptance.burst.run import Flight, Position

PERCENTILES: Final = (50, 90, 99)
_VALUES: Final = re.compile(r"0x[0-9a-fA-F]+|\d+(\.\d+)?")
_NONCE: Final = re.compile("nonce", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reason:
    """Refusals or failures with the same text, values left out."""

    kind: str
    text: str
    code: int | None
    count: int


@dataclass(frozen=True, slots=True)
class Lane:
    """One sender's share. ``in_order``: what the chain mined stands in nonce order there."""

    address: str
    accepted: int
    mined: int
    in_order: bool


@dataclass(frozen=True, slots=True)
class Summary:
    """The burst as a whole. Times in seconds; no latencies where nothing was answered.

    ``late_s``: by how much the latest request missed its place in the schedule, for this machine is not infinitely
    fast.
    """

    sent: int
    accepted: int
    refused: int
    failed: int
    nonce_failures: int
    mined: int
    reasons: tuple[Reason, ...]
    lanes: tuple[Lane, ...]
    latency_s: Mapping[str, float]
    duration_s: float
    late_s: float

    @property
    def per_second(self) -> float:
        """Answers a second, from the first request sent to the last answer."""
        return self.sent / self.duration_s if self.duration_s > 0 else 0.0

    @property
    def good(self) -> bool:
        """Everything was accepted, and mined in order."""
        return self.accepted == self.mined == self.sent and all(lane.in_order for lane in self.lanes)

    def to_json(self) -> dict[str, Any]:
        """The summary as JSON values."""
        return {"good": self.good, **asdict(self), "per_second": self.per_second}


def summarise(addresses: Sequence[str], flights: Sequence[Flight], positions: Mapping[str, Position]) -> Summary:
    """Count, group and check."""
    kinds = Counter(flight.kind for flight in flights)
    latencies = [flight.answered_s - flight.sent_s for flight in flights if flight.kind != "failed"]
    return Summary(
        sent=len(flights),
        accepted=kinds["accepted"],
        refused=kinds["refused"],
        failed=kinds["failed"],
        nonce_failures=sum(flight.kind == "refused" and bool(_NONCE.search(flight.text)) for flight in flights),
        mined=len(positions),
        reasons=tuple(_reasons(flights)),
        lanes=tuple(
            _lane(address, flown, positions)
            for address, flown in zip(addresses, by_sender(flights, len(addresses)), strict=True)
        ),
        latency_s=_percentiles(latencies),
        duration_s=_duration(flights),
        late_s=max((flight.sent_s - flight.shot.at_us / 1e6 for flight in flights), default=0.0),
    )


def by_sender(flights: Sequence[Flight], senders: int) -> list[list[Flight]]:
    """Each sender's flights in nonce order."""
    sorted_flights: list[list[Flight]] = [[] for _ in range(senders)]
    for flight in sorted(flights, key=lambda flight: flight.nonce):
        sorted_flights[flight.shot.sender].append(flight)
    return sorted_flights


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the sorted ``values`` that at least ``share`` percent of them do not exceed."""
    return values[max(math.ceil(len(values) * share / 100) - 1, 0)]


def generic(text: str) -> str:
    """``text`` with numbers and hex replaced, so that refusals of one reason read the same."""
    return _VALUES.sub("…", text)


def show(summary: Summary, pattern: Pattern, console: Console) -> None:
    """Print the summary."""
    console.print(_figures(summary, pattern))
    if summary.reasons:
        console.print(_reason_table(summary.reasons))


def _percentiles(latencies: Sequence[float]) -> dict[str, float]:
    if not latencies:
        return {}
    ordered = sorted(latencies)
    return {f"p{share}": percentile(ordered, share) for share in PERCENTILES} | {"max": ordered[-1]}


def _duration(flights: Sequence[Flight]) -> float:
    if not flights:
        return 0.0
    return max(flight.answered_s for flight in flights) - min(flight.sent_s for flight in flights)


def _reasons(flights: Sequence[Flight]) -> list[Reason]:
    grouped = Counter((flight.kind, generic(flight.text), flight.code) for flight in flights if flight.text)
    return [Reason(kind, text, code, count) for (kind, text, code), count in grouped.most_common()]


def _lane(address: str, flights: Sequence[Flight], positions: Mapping[str, Position]) -> Lane:
    mined = [positions[flight.hash] for flight in flights if flight.hash in positions]
    return Lane(
        address=address,
        accepted=sum(flight.kind == "accepted" for flight in flights),
        mined=len(mined),
        in_order=all(before < after for before, after in pairwise(mined)),
    )


def _figures(summary: Summary, pattern: Pattern) -> Table:
    table = Table(
        title=f"{pattern.senders} × {pattern.count} transactions,"
        f" shuffled by {pattern.shuffle}, {pattern.urls} URL{'s' * (pattern.urls > 1)}",
        title_justify="left",
        show_header=False,
    )
    ordered = sum(lane.in_order for lane in summary.lanes)
    latency = "  ".join(f"{name} {value * 1000:.1f} ms" for name, value in summary.latency_s.items())
    rows = [
        ("accepted", f"{summary.accepted} of {summary.sent}", summary.accepted == summary.sent),
        ("refused", f"{summary.refused}, of these for the nonce {summary.nonce_failures}", not summary.refused),
        ("no usable answer", str(summary.failed), not summary.failed),
        ("mined", f"{summary.mined} of {summary.accepted} accepted", summary.mined == summary.accepted),
        ("in nonce order", f"{ordered} of {len(summary.lanes)} senders", ordered == len(summary.lanes)),
        ("latency", latency or "–", True),
        ("schedule", f"gap {pattern.gap_us} µs, kept to within {summary.late_s * 1000:.1f} ms", True),
        ("throughput", f"{summary.per_second:.0f} transactions a second, {summary.duration_s:.3f} s", True),
    ]
    for name, text, fine in rows:
        table.add_row(name, text, style=None if fine else "red")
    return table


def _reason_table(reasons: Sequence[Reason]) -> Table:
    table = Table("times", "code", "reason", title="not accepted", title_justify="left")
    for reason in reasons:
        code = reason.kind if reason.code is None else str(reason.code)
        table.add_row(str(reason.count), code, reason.text)
    return table
