"""The processes of one relay with several workers."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal

    from acceptance.rig.parts import Part, Rig


def pids(parent: int) -> dict[int, int]:
    """Number → process of each worker that runs under ``parent``; of two with one number the younger."""
    found = {}
    for pid in map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text("ascii").split()):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"relay.workers" in words:
            found[int(words[words.index(b"relay.workers") + 1])] = pid
    return found


def signal_all(relay: Part, what: signal.Signals) -> None:
    """Send a signal to the relay and to each worker: they are no group."""
    workers = pids(relay.process.pid).values()
    relay.process.signal(what)
    for pid in workers:
        os.kill(pid, what)


def signal_worker(relay: Part, number: int, what: signal.Signals) -> int:
    """Send a signal to one worker. Returns its process."""
    pid = pids(relay.process.pid)[number]
    os.kill(pid, what)
    return pid


async def all_work(rig: Rig, relay: Part, patience_s: float = 30) -> None:
    """Until every worker does its part, as /readyz tells."""
    async with asyncio.timeout(patience_s):
        while (await rig.readiness(relay))[0] != 200:  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.1)


async def gone(pids: list[int], patience_s: float = 30) -> None:
    """Until none of these processes is left."""
    async with asyncio.timeout(patience_s):
        while any(os.path.lexists(f"/proc/{pid}") for pid in pids):  # noqa: ASYNC110, ASYNC240, PTH - /proc tells nobody
            await asyncio.sleep(0.05)
