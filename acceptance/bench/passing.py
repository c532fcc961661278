"""Group ``pass``: calls that are passed through, beside nginx and a plain aiohttp proxy."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from acceptance.bench import proxies
from acceptance.bench.costs import cpu_table, cpu_us, work
from acceptance.bench.load import paced
from acceptance.bench.sheet import Findings, met, ratio, table

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from acceptance.bench.load import Load
    from acceptance.bench.proxies import Contender
    from acceptance.bench.turns import Turns
    from acceptance.rig.parts import Rig

CONNECTIONS: Final = 32
PLAIN: Final = "plain aiohttp proxy"
CLOSE: Final = ("-H", "Connection: close")


async def measure(rig: Rig, turns: Turns) -> Findings:
    """CPU a call with kept and with new connections, and what one connection waits."""
    with proxies.cores_apart() as core, TemporaryDirectory() as folder:
        node = await proxies.bench_node(rig)
        contenders = {
            "nginx": await proxies.nginx_proxy(rig, node, core, Path(folder)),
            "relay": await proxies.relay(rig, node, core),
            PLAIN: await proxies.plain_proxy(rig, node, core),
        }
        kept = await turns.of(work(rig, contenders, CONNECTIONS, turns.seconds))
        new = await turns.of(work(rig, contenders, CONNECTIONS, turns.seconds, *CLOSE))
        direct = {"direct": proxies.Contender(node.url, node.process.pid)}
        alone = await turns.of(work(rig, direct | contenders, 1, turns.seconds))
        half = median(load.per_second for load in kept["relay"]) / 2
        steady = await turns.of(_steady(rig, direct | contenders, half, turns.seconds))
    return Findings(
        [
            f"`eth_blockNumber`, {turns}.",
            "The contender has a core for itself, node and load share the other.",
            "",
            *cpu_table(f"{CONNECTIONS} kept connections", kept),
            *_kept_targets(cpu_us(kept)),
            "",
            *cpu_table(f"{CONNECTIONS} clients, a new connection for each call", new),
            "",
            ratio("relay ÷ nginx", cpu_us(new)["relay"] / cpu_us(new)["nginx"], 1.4),
            "",
            *_waits("one connection, one call at a time", alone),
            *_p50_target(alone),
            "",
            *_waits(f"{CONNECTIONS} kept connections, {half:,.0f} calls/s, half of what the relay can", steady),
            *_p99_target(steady),
        ]
    )


def _kept_targets(cost: Mapping[str, float]) -> list[str]:
    return [
        "",
        ratio("relay ÷ nginx", cost["relay"] / cost["nginx"], 1.3),
        ratio("relay ÷ plain aiohttp proxy", cost["relay"] / cost[PLAIN], 1 / 6),
    ]


def _steady(
    rig: Rig, contenders: Mapping[str, Contender], per_second: float, seconds: int
) -> dict[str, partial[Coroutine[Any, Any, Load]]]:
    """All but the plain proxy, which cannot keep up."""
    return {
        name: partial(paced, rig, contender, CONNECTIONS, per_second, seconds)
        for name, contender in contenders.items()
        if name != PLAIN
    }


def _percentiles(found: Mapping[str, list[Load]]) -> tuple[dict[str, float], dict[str, float]]:
    p50 = {name: median(load.p50_us for load in loads) for name, loads in found.items()}
    p99 = {name: median(load.p99_us for load in loads) for name, loads in found.items()}
    return p50, p99


def _waits(title: str, found: Mapping[str, list[Load]]) -> list[str]:
    cuts = _percentiles(found)
    rows = [
        [name, *(cell for cut in cuts for cell in (f"{cut[name]:.0f} µs", f"{cut[name] - cut['direct']:+.0f} µs"))]
        for name in found
    ]
    return [*table([title, "p50", "added", "p99", "added"], rows), ""]


def _p50_target(found: Mapping[str, list[Load]]) -> list[str]:
    p50, _ = _percentiles(found)
    return [ratio("p50 added, relay ÷ nginx", (p50["relay"] - p50["direct"]) / (p50["nginx"] - p50["direct"]), 1.5)]


def _p99_target(found: Mapping[str, list[Load]]) -> list[str]:
    _, p99 = _percentiles(found)
    relay, nginx = p99["relay"] - p99["direct"], p99["nginx"] - p99["direct"]
    most = max(2 * nginx, nginx + 1000)
    return [
        f"- p99 added, relay: **{relay:.0f} µs**, at most {most:.0f} µs (nginx × 2 or + 1 ms): {met(relay <= most)}"
    ]
