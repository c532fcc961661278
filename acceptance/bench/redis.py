"""Group ``redis``: what an order over several instances costs, judged at the node.

Rules: real ``relay serve`` processes with their defaults, a local Valkey, no core reserved. The judge is `node`, which
takes the time first thing when bytes come and right after its answer is written; the development chain would add its
own decoding and checks to each hand-off.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial
from itertools import pairwise
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final

from acceptance.bench import bursts, proxies
from acceptance.bench.bursts import COUNT
from acceptance.bench.sheet import Findings, met, table
from acceptance.rig.crowd import swapped
from acceptance.rig.load import body

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acceptance.bench.bursts import Lines
    from acceptance.bench.turns import Turns
    from acceptance.rig.calls import Caller
    from acceptance.rig.load import Line
    from acceptance.rig.parts import Rig
    from tests.redis_server import RedisServer

HOLD_MS: Final = 5
GATHER_MS: Final = 600
FLEETS: Final = (1, 2, 4)
P50_MS, P99_MS = 2.0, 10.0
ALONE, BURST = 2.0, 0.2


async def measure(rig: Rig, turns: Turns) -> Findings:
    """Hand-off, commands, added latency, throughput."""
    node, server = await proxies.bench_node(rig), await rig.redis()
    relays = await rig.instances(max(FLEETS), node.url, server.url)
    loner = await rig.relay(node.url)
    judge = rig.caller(node.url)
    async with AsyncExitStack() as stack:
        *fleet, alone = [await bursts.lines(stack, relay.url) for relay in [*relays, loner]]
        handed = await turns.of({"hand-off": partial(_handoffs_ms, judge, fleet[0], fleet[1])})
        sent = await turns.of(
            {
                "alone": partial(_commands, judge, server, fleet[0][:1]),
                "burst": partial(_commands, judge, server, fleet[0]),
            }
        )
        waits = await turns.of(
            {"without Redis": partial(_waits_us, alone[0]), "with Redis": partial(_waits_us, fleet[0][0])}
        )
        speeds = await turns.of({str(size): partial(_per_second, judge, fleet[:size]) for size in FLEETS})
    lines = [
        f"Real instances before one node, one server on the same machine; medians of {turns.rounds} turns,"
        f" {turns.dropped} turns dropped.",
        "",
        *_handoff_lines([one for turn in handed["hand-off"] for one in turn]),
        *_command_lines(sent),
        "",
        *_wait_lines(waits),
        "",
        *_speed_lines(speeds),
    ]
    info = await server.admin.info("server")
    return Findings(lines, [f"Valkey {info['valkey_version']}"])


async def _handoffs_ms(judge: Caller, one: Lines, other: Lines) -> list[float]:
    """From the answer of each nonce to the bytes of the next one, which another instance has.

    All have been posted and wait before the first one, held longer, is answered.
    """
    lane = bursts.lane()
    await bursts.record(judge)
    await judge.call("bench_hold", GATHER_MS)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bursts.at_once(lane, [one, other]), name="posts")
        await asyncio.sleep(GATHER_MS / 2000)  # the first one has long arrived
        await judge.call("bench_hold", HOLD_MS)
    assert task.done()
    await judge.call("bench_hold", 0)
    record = await bursts.record(judge)
    assert [entry[0] for entry in record] == [transfer.hash for transfer in lane], "out of order"
    return [(after[1] - before[2]) * 1000 for before, after in pairwise(record)]


async def _commands(judge: Caller, server: RedisServer, lines: Lines) -> float:
    """Commands a transaction: in turn on one connection, or all at once, neighbours swapped, on many."""
    lane = bursts.lane()
    await judge.call("bench_hold", HOLD_MS)
    before = await _sent(server)
    if len(lines) == 1:
        for transfer in lane:
            assert transfer.hash.encode() in (await lines[0].post(body(transfer))).body
    else:
        await bursts.at_once(swapped(lane), [lines])
    await asyncio.sleep(0.2)  # the lease is given back after the answer
    await judge.call("bench_hold", 0)
    return (await _sent(server) - before) / COUNT


async def _sent(server: RedisServer) -> int:
    """Scripts that the server was sent; the tier sends nothing else for a transaction."""
    stats = await server.admin.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))


async def _waits_us(line: Line) -> list[float]:
    """Of each answer, one sender's transactions one after the other."""
    return [(await line.post(body(transfer))).seconds * 1e6 for transfer in bursts.lane()]


async def _per_second(judge: Caller, fleet: Sequence[Lines]) -> float:
    """One sender's transactions, all at once, round the instances."""
    lane = bursts.lane()
    await bursts.record(judge)
    began = time.monotonic()
    await bursts.at_once(lane, fleet)
    seconds = time.monotonic() - began
    assert [entry[0] for entry in await bursts.record(judge)] == [transfer.hash for transfer in lane], "out of order"
    return COUNT / seconds


def _handoff_lines(handed: Sequence[float]) -> list[str]:
    cuts = quantiles(handed, n=100)
    p50, p99 = cuts[49], cuts[98]
    return [
        f"- hand-off of a lane, node's answer to one instance → the other's bytes there, {len(handed)} of them:"
        f" p50 **{p50:.2f} ms**, under {P50_MS:.0f} ms: {met(p50 < P50_MS)};"
        f" p99 **{p99:.2f} ms**, under {P99_MS:.0f} ms: {met(p99 < P99_MS)}; longest {max(handed):.2f} ms",
    ]


def _command_lines(sent: Mapping[str, Sequence[float]]) -> list[str]:
    alone, burst = median(sent["alone"]), median(sent["burst"])
    return [
        f"- commands a transaction, one after the other: **{alone:.3f}**, at most {ALONE:.0f}: {met(alone <= ALONE)}",
        f"- commands a transaction in a burst of {COUNT} through one instance, neighbours swapped, {HOLD_MS} ms each:"
        f" **{burst:.3f}**, at most {BURST}: {met(burst <= BURST)}",
    ]


def _wait_lines(waits: Mapping[str, Sequence[Sequence[float]]]) -> list[str]:
    p50 = {name: median(median(turn) for turn in found) for name, found in waits.items()}
    p99 = {name: median(quantiles(turn, n=100)[98] for turn in found) for name, found in waits.items()}
    rows = [[name, f"{p50[name]:.0f} µs", f"{p99[name]:.0f} µs"] for name in waits]
    rows.append(["added", *(f"{cut['with Redis'] - cut['without Redis']:+.0f} µs" for cut in (p50, p99))])
    return table(["one sender, one submission at a time, uncontended", "p50", "p99"], rows)


def _speed_lines(speeds: Mapping[str, Sequence[float]]) -> list[str]:
    rows = [[size, f"{median(found):,.0f} ({min(found):,.0f}–{max(found):,.0f})"] for size, found in speeds.items()]
    return table(
        [f"instances; {COUNT} transactions of one sender at once, round robin, in order", "a second (range)"], rows
    )
