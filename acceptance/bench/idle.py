"""Group ``idle``: what 10,000 clients cost that are connected, have asked once, and say nothing.

Rules: each turn starts its contender afresh, for memory once taken is kept. The clients come from several addresses, so
that ports do not run short. At the end some of them ask again: a connection that was dropped would cost nothing.
"""

from __future__ import annotations

import asyncio
import resource
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from acceptance.bench import proxies
from acceptance.bench.load import CALL
from acceptance.bench.sheet import Findings, ratio, table
from acceptance.bench.turns import CannotMeasure, spent_s
from acceptance.rig.load import connected, pump
from acceptance.rig.processes import memory_bytes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from acceptance.bench.proxies import Contender
    from acceptance.bench.turns import Turns
    from acceptance.rig.load import Line
    from acceptance.rig.parts import Rig

    Start = Callable[[Rig], Awaitable[Contender]]

CLIENTS: Final = 10_000
AN_ADDRESS: Final = 2000
AT_ONCE: Final = 64
WARM_UP: Final = 2000
ASK_AGAIN: Final = 100
FILES: Final = proxies.FILES
MB: Final = 10**6
MOST_MB: Final = 40.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Memory before and with the clients, and the share of a core that they take while they say nothing."""

    before_bytes: int
    held_bytes: int
    busy: float

    @property
    def grown_mb(self) -> float:
        """What the clients add."""
        return (self.held_bytes - self.before_bytes) / MB


async def measure(rig: Rig, turns: Turns) -> Findings:
    """Memory and CPU."""
    _raise_file_limit()
    with proxies.cores_apart() as core, TemporaryDirectory() as folder:
        node = await proxies.bench_node(rig)
        starts: dict[str, Start] = {
            "nginx": lambda inner: proxies.nginx_proxy(inner, node, core, Path(folder)),
            "relay": lambda inner: proxies.relay(inner, node, core),
        }
        found = await turns.of({name: partial(_turn, rig, start, turns.seconds) for name, start in starts.items()})
    rows = [_row(name, costs) for name, costs in found.items()]
    return Findings(
        [
            f"{CLIENTS:,} kept connections, a call on each, then silence; {turns}, each with a contender just started.",
            "",
            *table(["", "RSS before", "RSS with them", "growth", "a connection", "CPU while idle"], rows),
            "",
            ratio("relay, MB grown", median(cost.grown_mb for cost in found["relay"]), MOST_MB),
        ]
    )


def _raise_file_limit() -> None:
    """For this program, and for what it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= FILES or soft == resource.RLIM_INFINITY:
        return
    most = hard if hard == resource.RLIM_INFINITY else max(hard, FILES)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, most))
    except (ValueError, OSError):
        raise CannotMeasure(
            f"a process may open {hard:,} files, {CLIENTS:,} connections need {FILES:,}: run as root, or raise the hard"
            f" limit (ulimit -Hn, limits.conf)"
        ) from None


async def _turn(rig: Rig, start: Start, seconds: int) -> Cost:
    async with rig.inner() as inner, AsyncExitStack() as clients:
        contender = await start(inner)
        await pump(contender.url, [CALL] * WARM_UP, AT_ONCE)
        before = memory_bytes(contender.pid)
        lines = await _clients(clients, contender.url)
        spent = spent_s(contender.pid)
        await asyncio.sleep(seconds)
        busy = (spent_s(contender.pid) - spent) / seconds
        held = memory_bytes(contender.pid)
        for line in lines[::ASK_AGAIN]:
            assert b'"result"' in (await line.post(CALL)).body
    return Cost(before, held, busy)


async def _clients(stack: AsyncExitStack, url: str) -> list[Line]:
    numbers = iter(range(CLIENTS))
    lines: list[Line] = []

    async def connect() -> None:
        for number in numbers:
            line = await stack.enter_async_context(connected(url, f"127.0.0.{2 + number // AN_ADDRESS}"))
            await line.post(CALL)
            lines.append(line)

    async with asyncio.TaskGroup() as group:
        for number in range(AT_ONCE):
            group.create_task(connect(), name=f"clients {number}")
    return lines


def _row(name: str, costs: Sequence[Cost]) -> list[str]:
    grown = [cost.grown_mb for cost in costs]
    return [
        name,
        f"{median(cost.before_bytes for cost in costs) / MB:.1f} MB",
        f"{median(cost.held_bytes for cost in costs) / MB:.1f} MB",
        f"{median(grown):.1f} MB ({min(grown):.1f}–{max(grown):.1f})",
        f"{median(grown) * MB / CLIENTS:,.0f} bytes",
        f"{median(cost.busy for cost in costs):.2%}",
    ]
