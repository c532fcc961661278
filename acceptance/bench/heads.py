"""Group ``heads``: calls whose heads are all new, both ways, so that nothing a proxy remembers of heads helps it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from acceptance.bench import proxies
from acceptance.bench.costs import cpu_table, cpu_us, work
from acceptance.bench.sheet import Findings, ratio

if TYPE_CHECKING:
    from acceptance.bench.turns import Turns
    from acceptance.rig.parts import Rig

CONNECTIONS: Final = 32
TARGET: Final = 2.0


async def measure(rig: Rig, turns: Turns) -> Findings:
    """CPU a call."""
    with proxies.cores_apart() as core, TemporaryDirectory() as folder:
        node = await proxies.bench_node(rig, "node", "--unique")
        contenders = {
            "nginx": await proxies.nginx_proxy(rig, node, core, Path(folder)),
            "relay": await proxies.relay(rig, node, core),
        }
        found = await turns.of(work(rig, contenders, CONNECTIONS, turns.seconds, script="heads.lua"))
    cost = cpu_us(found)
    return Findings(
        [
            f"`eth_blockNumber`; each call has a `traceparent` of its own, each answer an `X-Request-Id`; {turns}.",
            "",
            *cpu_table(f"{CONNECTIONS} kept connections, every head new", found),
            "",
            ratio("relay ÷ nginx", cost["relay"] / cost["nginx"], TARGET),
        ]
    )
