"""Group ``pass``: calls that are passed through, beside nginx and a plain aiohttp proxy."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from acceptance.bench import proxies
from acceptance.bench.load import wrk
from acceptance.bench.sheet import Findings, ratio, table
from acceptance.bench.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from acceptance.bench.load import Load
    from acceptance.bench.proxies import Contender
    from acceptance.rig.parts import Rig

SECONDS: Final = 4
CONNECTIONS: Final = 32
CLOSE: Final = ("-H", "Connection: close")


async def measure(rig: Rig) -> Findings:
    """CPU a call with kept and with new connections, and what one connection waits."""
    turns = Turns()
    with proxies.cores_apart() as core, TemporaryDirectory() as folder:
        node = await proxies.bench_node(rig)
        contenders = {
            "nginx": await proxies.nginx_proxy(rig, node, core, Path(folder)),
            "relay": await proxies.relay(rig, node, core),
            "plain aiohttp proxy": await proxies.plain_proxy(rig, node, core),
        }
        kept = await turns.of(_work(rig, contenders, CONNECTIONS))
        new = await turns.of(_work(rig, contenders, CONNECTIONS, *CLOSE))
        direct = {"direct": proxies.Contender(node.url, node.process.pid)}
        alone = await turns.of(_work(rig, direct | contenders, 1))
    return Findings(
        [
            f"`eth_blockNumber`, turns of {SECONDS} s, medians of {turns.rounds}; {turns.dropped} turns dropped.",
            "The contender has a core for itself, node and load share the other.",
            "",
            *_cpu(f"{CONNECTIONS} kept connections", kept, (1.3, 1 / 6)),
            "",
            *_cpu(f"{CONNECTIONS} clients, a new connection for each call", new, (1.4, None)),
            "",
            *_waits(alone),
        ]
    )


def _work(
    rig: Rig, contenders: Mapping[str, Contender], connections: int, *flags: str
) -> dict[str, partial[Coroutine[Any, Any, Load]]]:
    return {name: partial(wrk, rig, contender, connections, SECONDS, *flags) for name, contender in contenders.items()}


def _cpu(title: str, found: Mapping[str, list[Load]], targets: tuple[float, float | None]) -> list[str]:
    cost = {name: median(load.cpu_us for load in loads) for name, loads in found.items()}
    rows = [
        [
            name,
            f"{cost[name]:.1f} µs ({min(load.cpu_us for load in loads):.1f}–{max(load.cpu_us for load in loads):.1f})",
            f"{cost[name] / cost['nginx']:.2f}",
            f"{median(load.per_second for load in loads):,.0f}",
        ]
        for name, loads in found.items()
    ]
    lines = table([title, "CPU a call (range)", "÷ nginx", "calls/s"], rows)
    lines += ["", ratio("relay ÷ nginx", cost["relay"] / cost["nginx"], targets[0])]
    if targets[1]:
        lines.append(ratio("relay ÷ plain aiohttp proxy", cost["relay"] / cost["plain aiohttp proxy"], targets[1]))
    return lines


def _waits(found: Mapping[str, list[Load]]) -> list[str]:
    p50 = {name: median(load.p50_us for load in loads) for name, loads in found.items()}
    p99 = {name: median(load.p99_us for load in loads) for name, loads in found.items()}
    rows = [
        [name, f"{p50[name]:.0f} µs", f"{p50[name] - p50['direct']:+.0f} µs", f"{p99[name]:.0f} µs",
         f"{p99[name] - p99['direct']:+.0f} µs"]
        for name in found
    ]  # fmt: skip
    added = (p50["relay"] - p50["direct"]) / (p50["nginx"] - p50["direct"])
    lines = table(["one connection, one call at a time", "p50", "added", "p99", "added"], rows)
    return [*lines, "", ratio("p50 added, relay ÷ nginx", added, 1.5)]
