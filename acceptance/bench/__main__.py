"""``python -m acceptance.bench [--trial] [GROUP…]``: measures, prints, and writes ``docs/benchmarks.md``.

``--trial`` takes short turns, whatever else the machine does, and writes nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
from contextlib import AsyncExitStack
from typing import Final

import aiohttp

from acceptance.bench import (
    batch,
    heads,
    https,
    idle,
    journal,
    large,
    order,
    passing,
    profile,
    redis,
    senders,
    sheet,
    soak,
    submissions,
    workers,
)
from acceptance.bench.proxies import SEARCHED
from acceptance.bench.turns import CannotMeasure, Turns, trial
from acceptance.rig.parts import Rig

GROUPS: Final = {
    "pass": passing.measure,
    "heads": heads.measure,
    "https": https.measure,
    "large": large.measure,
    "idle": idle.measure,
    "submit": submissions.measure,
    "batch": batch.measure,
    "senders": senders.measure,
    "redis": redis.measure,
    "order": order.measure,
    "journal": journal.measure,
    "workers": workers.measure,
    "soak": soak.measure,
    "profile": profile.measure,
}
PACKAGES: Final = {"nginx": "nginx-light", "wrk": "wrk", "h2load": "nghttp2-client"}
"""Programs that groups need, and where Debian has them."""


async def run(group: str, *, tried: bool) -> None:
    """One group."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=90))
        )
        findings = await GROUPS[group](Rig(stack, session), trial() if tried else Turns())
    print(sheet.section(group, findings) if tried else sheet.write(group, findings), flush=True)


def main(argv: list[str] | None = None) -> int:
    """The named groups, or all; the exit code."""
    parser = argparse.ArgumentParser(prog="acceptance.bench", description="Measures, and writes docs/benchmarks.md.")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"{', '.join(GROUPS)}; none: all of them")
    parser.add_argument("--trial", action="store_true", help="short turns on a busy machine, written nowhere")
    options = parser.parse_args(argv)
    if unknown := [group for group in options.groups if group not in GROUPS]:
        parser.error(f"no group {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    if missing := [package for program, package in PACKAGES.items() if not shutil.which(program, path=SEARCHED)]:
        print(f"bench: programs are missing; on Debian: apt install {' '.join(missing)}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started ends too
    try:
        for group in options.groups or GROUPS:
            asyncio.run(run(group, tried=options.trial))
    except CannotMeasure as reason:
        print(f"bench: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
