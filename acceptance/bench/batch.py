"""Group ``batch``: one sender's burst, sent one by one and as ordered batches, with the node ever further away.

Rules: a relay with ``submit = "single"`` and one with ``"batch"``, otherwise with their defaults; neighbours swapped,
so that order has to be made; the bench node's record is the judge.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from acceptance.bench import bursts, proxies
from acceptance.bench.sheet import Findings, met, ratio, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acceptance.bench.bursts import Ended, Lines
    from acceptance.bench.turns import Turns
    from acceptance.rig.calls import Caller
    from acceptance.rig.parts import Rig

AWAY_MS: Final = (0, 5, 50)
WAYS: Final = ("single", "batch")
TARGET: Final = 0.1


async def measure(rig: Rig, turns: Turns) -> Findings:
    """Bursts at each distance."""
    node = await proxies.bench_node(rig)
    judge = rig.caller(node.url)
    relays = {way: await rig.relay(node.url, upstream__submit=way) for way in WAYS}
    found = {}
    async with AsyncExitStack() as stack:
        lines = {way: await bursts.lines(stack, relay.url) for way, relay in relays.items()}
        for away_ms in AWAY_MS:
            contenders = {way: partial(_burst, judge, lines[way], away_ms) for way in WAYS}
            found[away_ms] = await turns.of(contenders)
    ends = [end for ways in found.values() for way in ways.values() for end in way]
    inversions = sum(end.inversions for end in ends)
    far = {way: _seconds(found[AWAY_MS[-1]][way]) for way in WAYS}
    return Findings(
        [
            f"One sender, {bursts.COUNT} transactions at once over {bursts.COUNT} kept connections, neighbours swapped;"
            f" every answer of the node is late by so much; medians of {turns.rounds} bursts, {turns.dropped} dropped.",
            "",
            *_table(found),
            "",
            ratio(f"batch ÷ single at {AWAY_MS[-1]} ms", far["batch"] / far["single"], TARGET),
            f"- inversions at the node in {len(ends)} bursts: **{inversions}**, none: {met(inversions == 0)}",
        ],
    )


async def _burst(judge: Caller, lines: Lines, away_ms: int) -> Ended:
    await judge.call("bench_away", away_ms)
    try:
        return await bursts.burst(judge, [lines])
    finally:
        await judge.call("bench_away", 0)


def _seconds(ends: Sequence[Ended]) -> float:
    return median(end.seconds for end in ends)


def _table(found: Mapping[int, Mapping[str, Sequence[Ended]]]) -> list[str]:
    rows = [
        [
            f"{away_ms} ms",
            *(f"{_seconds(ways[way]) * 1000:,.0f} ms ({_range_ms(ways[way])})" for way in WAYS),
            f"{_seconds(ways['batch']) / _seconds(ways['single']):.3f}",
        ]
        for away_ms, ways in found.items()
    ]
    heads = [f'`submit = "{way}"` (range)' for way in WAYS]
    return table(["node away", *heads, "batch ÷ single"], rows)


def _range_ms(ends: Sequence[Ended]) -> str:
    times = [end.seconds * 1000 for end in ends]
    return f"{min(times):,.0f}–{max(times):,.0f}"
