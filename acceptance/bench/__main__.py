"""``python -m acceptance.bench [GROUP…]``: measures, prints, and writes ``docs/benchmarks.md``."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from typing import Final

import aiohttp

from acceptance.bench import order, passing, redis, sheet, submissions
from acceptance.bench.turns import MachineBusy
from acceptance.rig.parts import Rig

GROUPS: Final = {
    "pass": passing.measure,
    "submit": submissions.measure,
    "redis": redis.measure,
    "order": order.measure,
}


async def run(group: str) -> None:
    """One group."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=90))
        )
        findings = await GROUPS[group](Rig(stack, session))
    print(sheet.write(group, findings), flush=True)


def main(groups: list[str]) -> int:
    """The named groups, or all; the exit code."""
    if unknown := [group for group in groups if group not in GROUPS]:
        print(f"no group {', '.join(unknown)}; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started ends too
    try:
        for group in groups or GROUPS:
            asyncio.run(run(group))
    except MachineBusy as busy:
        print(f"bench: {busy}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
