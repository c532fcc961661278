"""One sweep over a long journal: ``python -m acceptance.bench.sweeping FILE NODE`` in a process of its own.

Every row is old and known to nobody, so each takes the whole way: receipt, counts, hash, balance, its bytes, a resend,
which here is a turn that does nothing. Prints one line of JSON: rows, seconds, CPU, and what the memory grew by.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import uvloop

from acceptance.rig.processes import memory_bytes
from acceptance.rig.signing import random_keys, sign
from relay import config
from relay.journal.shelf import Shelf
from relay.settlement import Settlement
from relay.settlement.sweep import End
from relay.tasks import TaskOwner
from relay.telemetry.metrics import Metrics
from relay.upstream.client import UpstreamClient
from relay.upstream.identity import Identity
from relay.upstream.pool import Pool

if TYPE_CHECKING:
    from pathlib import Path

    from relay.journal.records import Payload, Record

CHAIN_ID: Final = 1337
SENDERS: Final = 1000
DAY_MS: Final = 86_400_000
MIB: Final = 2**20


async def _taken(_record: Record, _payload: Payload) -> bool:
    return True


def _report(name: str, error: BaseException) -> None:
    raise RuntimeError(name) from error


async def _sweep(file: str, node: str) -> dict[str, float]:
    metrics, background = Metrics(), TaskOwner("bench", _report)
    settings = config.check({"upstream": {"url": node}, "journal": {"url": f"sqlite:///{file}"}})
    pool = Pool(settings.upstream, metrics, _report)
    client = UpstreamClient(pool, metrics, 30.0)
    identity = Identity(client, settings.prechecks)
    await identity.refresh()
    shelf = Shelf(settings.journal.url)
    await shelf.start(background)
    settlement = Settlement(
        shelf, client, identity, settings, metrics, upstream="node", actor="bench", report=_report,
        clock=time.monotonic, take_up=_taken, holds=lambda _: False,
    )  # fmt: skip
    before, began, cpu = memory_bytes(os.getpid()) / MIB, time.monotonic(), time.process_time()
    settlement.start(background)
    sweeps = 1
    while await settlement.sweep_now() is End.CUT:
        sweeps += 1
    found = {
        "rows": sum(cell.n for cell in metrics.resends.cells.values()),
        "sweeps": sweeps,
        "seconds": time.monotonic() - began,
        "cpu_s": time.process_time() - cpu,
        "grown_mib": memory_bytes(os.getpid(), "VmHWM") / MIB - before,
    }
    await settlement.close()
    await background.close()
    await shelf.close()
    await pool.close()
    return found


def fill(file: Path, rows: int) -> None:
    """Pending ones, sent a day ago, of a thousand senders, without gaps."""
    raw = bytes.fromhex(sign(next(random_keys()), 0, CHAIN_ID).raw.removeprefix("0x"))
    sent_ms = int(datetime.now(UTC).timestamp() * 1000) - DAY_MS
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executemany(
            "INSERT INTO submission (id, chain_id, sender, nonce, hash, method, mode, admitted_ms, state, detail,"
            " version, fence, tries, attempts, open_attempts, since_ms) VALUES (?, ?, ?, ?, ?,"
            " 'eth_sendRawTransaction', 'verdict', ?, 'pending', '', 4, 0, 1, 1, 1, ?)",
            (
                (
                    number + 1,
                    CHAIN_ID,
                    (number % SENDERS).to_bytes(20, "big"),
                    number // SENDERS,
                    number.to_bytes(32, "big"),
                    sent_ms,
                    sent_ms,
                )
                for number in range(rows)
            ),
        )
        connection.executemany(
            "INSERT INTO payload (submission, raw, method, params) VALUES (?, ?, 'eth_sendRawTransaction', x'')",
            ((number + 1, raw) for number in range(rows)),
        )


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.stdout.write(json.dumps(runner.run(_sweep(*sys.argv[1:]))) + "\n")
