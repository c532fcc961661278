"""Group ``workers``: what a second worker costs and gives, and whether order and connections survive it.

Rules: the CPU is that of the parent and of all workers. Contenders have the first core to themselves where CPU is
measured; where throughput is, everybody shares all cores. A rolling restart is over when no worker of before is left.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from acceptance.bench import bursts, proxies
from acceptance.bench.load import wrk
from acceptance.bench.restarts import Clients
from acceptance.bench.sheet import Findings, met, ratio, table
from acceptance.bench.turns import children, pin, spent_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acceptance.bench.bursts import Ended, Lines
    from acceptance.bench.turns import Turns
    from acceptance.rig.calls import Caller
    from acceptance.rig.parts import Part, Rig

SIZES: Final = (1, 2)
CONNECTIONS: Final = 32
HOLD_MS: Final = 5
CPU: Final = 1.1
RESTART_S: Final = 60.0
LOOK_S: Final = 0.05
AROUND_S: Final = 1.0
"""Clients go on so long before and after a restart."""


class Passed(NamedTuple):
    """One turn of calls."""

    cpu_us: float
    per_second: float


class Restarted(NamedTuple):
    """One rolling restart under load."""

    seconds: float
    answered: int
    cut: int
    refused: int


async def measure(rig: Rig, turns: Turns) -> Findings:
    """Calls on one core and on all, bursts, restarts."""
    node = await proxies.bench_node(rig)
    judge = rig.caller(node.url)
    relays = {_name(size): await rig.relay(node.url, "--workers", str(size)) for size in SIZES}
    with proxies.cores_apart() as core:
        pin(node.process.pid, os.sched_getaffinity(0))
        _keep(relays, core)
        apart = await turns.of({name: partial(_passed, rig, relay, turns.seconds) for name, relay in relays.items()})
    cores = os.sched_getaffinity(0)
    _keep(relays, cores)
    pin(node.process.pid, cores)
    shared = await turns.of({name: partial(_passed, rig, relay, turns.seconds) for name, relay in relays.items()})
    async with AsyncExitStack() as stack:
        lines = {name: await bursts.lines(stack, relay.url) for name, relay in relays.items()}
        ended = await turns.of({name: partial(_burst, judge, lines[name]) for name in relays})
    many = _name(SIZES[-1])
    restarted = await turns.of({many: partial(_restarted, relays[many])})
    return Findings(
        [
            f"`eth_blockNumber` over {CONNECTIONS} kept connections, {turns}. *On one core*: all processes of the relay"
            " have one, node and load the other. *On all*: they share them.",
            "",
            *_table(apart, shared, ended),
            "",
            ratio(f"CPU a call, {many} ÷ 1", _cpu_us(apart[many]) / _cpu_us(apart[_name(1)]), CPU),
            *_order_lines(ended),
            *_restart_lines(restarted[many]),
        ]
    )


def _name(size: int) -> str:
    return f"{size} worker{'s' if size > 1 else ''}"


def _family(relay: Part) -> list[int]:
    return [relay.process.pid, *children(relay.process.pid)]


def _keep(relays: Mapping[str, Part], cores: set[int]) -> None:
    for relay in relays.values():
        for pid in _family(relay):
            pin(pid, cores)


async def _passed(rig: Rig, relay: Part, seconds: int) -> Passed:
    family = _family(relay)
    before = sum(map(spent_s, family))
    load = await wrk(rig, proxies.Contender(relay.url, relay.process.pid), CONNECTIONS, seconds)
    return Passed((sum(map(spent_s, family)) - before) / (load.per_second * seconds) * 1e6, load.per_second)


async def _burst(judge: Caller, lines: Lines) -> Ended:
    await judge.call("bench_hold", HOLD_MS)
    try:
        return await bursts.burst(judge, [lines])
    finally:
        await judge.call("bench_hold", 0)


async def _restarted(relay: Part) -> Restarted:
    """A rolling restart while clients call and submit, over kept connections and new ones."""
    clients = Clients(relay.url)
    old = set(children(relay.process.pid))
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        group.create_task(clients.run(), name="clients")
        await asyncio.sleep(AROUND_S)
        began = loop.time()
        os.kill(relay.process.pid, signal.SIGHUP)  # the parent alone, not its group
        async with asyncio.timeout(RESTART_S):
            while old & set(children(relay.process.pid)):  # noqa: ASYNC110 - only looking tells
                await asyncio.sleep(LOOK_S)
        seconds = loop.time() - began
        await asyncio.sleep(AROUND_S)
        clients.stopped = True
    return Restarted(seconds, clients.answered, len(clients.cut), len(clients.refused))


def _cpu_us(turn: Sequence[Passed]) -> float:
    return median(passed.cpu_us for passed in turn)


def _table(
    apart: Mapping[str, Sequence[Passed]], shared: Mapping[str, Sequence[Passed]], ended: Mapping[str, Sequence[Ended]]
) -> list[str]:
    rows = [
        [
            name,
            f"{_cpu_us(apart[name]):.1f} µs ({min(apart[name]).cpu_us:.1f}–{max(apart[name]).cpu_us:.1f})",
            f"{median(passed.per_second for passed in apart[name]):,.0f}",
            f"{_cpu_us(shared[name]):.1f} µs",
            f"{median(passed.per_second for passed in shared[name]):,.0f}",
            f"{median(end.seconds for end in ended[name]) * 1000:,.0f} ms",
        ]
        for name in apart
    ]
    burst = f"a burst of {bursts.COUNT}, {HOLD_MS} ms each"
    return table(["", "CPU a call on one core (range)", "calls/s", "CPU on all", "calls/s", burst], rows)


def _order_lines(ended: Mapping[str, Sequence[Ended]]) -> list[str]:
    ends = [end for burst in ended.values() for end in burst]
    inversions = sum(end.inversions for end in ends)
    return [
        f"- inversions at the node in {len(ends)} bursts, neighbours swapped: **{inversions}**, none:"
        f" {met(inversions == 0)}"
    ]


def _restart_lines(restarts: Sequence[Restarted]) -> list[str]:
    cut, refused = sum(one.cut for one in restarts), sum(one.refused for one in restarts)
    return [
        f"- {len(restarts)} rolling restarts (SIGHUP) of {median(one.seconds for one in restarts):.1f} s under"
        f" {sum(one.answered for one in restarts):,} calls and submissions, over kept and over new connections: cut off"
        f" **{cut}**, none: {met(cut == 0)}; answered with an error **{refused}**, none: {met(refused == 0)}"
    ]
