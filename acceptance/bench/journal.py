"""Group ``journal``: what a submission costs when it is written down, what that adds to its time, and a long journal.

Rules: relays with their defaults but for the journal; the same load before each in turn. The disk is measured beside
them, in the directory where the file lies: a store cannot be faster than it syncs.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import sys
import time
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from acceptance.bench import bursts, proxies, sweeping
from acceptance.bench.sheet import Findings, met, table
from acceptance.bench.turns import spent_s
from acceptance.rig.load import body, connected, pump
from acceptance.rig.signing import random_keys, sign
from relay.journal.url import open_journal
from tests.postgres_server import PostgresPrograms, PostgresServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from acceptance.bench.proxies import Contender
    from acceptance.bench.turns import Turns
    from acceptance.rig.load import Line
    from acceptance.rig.parts import Part, Rig

CHAIN_ID: Final = 1337
SENDERS: Final = 2000
CONNECTIONS: Final = 32
SYNCS: Final = 100
ROWS: Final = 1_000_000
CPU_US: Final = 500.0
ADDED_MS: Final = 3.0
ADDED_SYNCS: Final = 4
START_S: Final = 5.0
OPEN_ROWS: Final = 100_000
SWEEP_MIB: Final = 64.0
"""As much for a million: what is remembered of rows is bounded."""
OFF, SQLITE, POSTGRES = "no journal", "SQLite", "PostgreSQL"


async def measure(rig: Rig, turns: Turns) -> Findings:
    """CPU, added latency, start."""
    stock = (body(sign(key, 0, CHAIN_ID)) for key in islice(random_keys(), (turns.rounds * 3 + 20) * SENDERS))
    with (
        proxies.cores_apart() as core,
        TemporaryDirectory() as folder,
        PostgresPrograms() as programs,
        PostgresServer(programs, "bench") as server,
    ):
        node = await proxies.bench_node(rig)
        urls = {OFF: "", SQLITE: f"sqlite:///{folder}/journal.db", POSTGRES: server.url()}
        relays = {name: await proxies.relay(rig, node, core, journal__url=url) for name, url in urls.items()}
        costs = await _of(turns, {name: partial(_cost_us, one, stock) for name, one in relays.items()})
        async with AsyncExitStack() as stack:
            lines = {name: await stack.enter_async_context(connected(one.url)) for name, one in relays.items()}
            waits = await _of(turns, {name: partial(_wait_ms, line) for name, line in lines.items()})
        sync_ms = _sync_ms(Path(folder))
        starts = await _starts(rig, node, Path(folder))
        swept = await _swept(rig, Path(folder))
    return Findings(
        [
            f"CPU: {SENDERS:,} fresh senders a turn, a transaction each, over {CONNECTIONS} kept connections,"
            " PostgreSQL's own processes not counted. Time: one sender,"
            f" {bursts.COUNT} transactions one after the other."
            f" Medians of {turns.rounds} turns, {turns.dropped} turns dropped.",
            "",
            *_table(costs, waits),
            "",
            *_targets(costs, waits, sync_ms, starts),
            _sweep_target(swept),
        ]
    )


async def _of(turns: Turns, contenders: Mapping[str, Callable[[], Awaitable[float]]]) -> dict[str, list[float]]:
    """In turn; PostgreSQL after the others, for its server is another program, and its turns always disturbed."""
    served = contenders[POSTGRES]
    found = await turns.of({name: turn for name, turn in contenders.items() if name != POSTGRES})
    return found | await replace(turns, most_foreign=math.inf).of({POSTGRES: served})


async def _cost_us(contender: Contender, stock: Iterator[bytes]) -> float:
    todo = list(islice(stock, SENDERS))
    before = spent_s(contender.pid)
    answers = await pump(contender.url, todo, CONNECTIONS)
    spent = spent_s(contender.pid) - before
    refused = [answer.body for answer in answers if b'"result"' not in answer.body]
    assert not refused, refused[0]
    return spent / len(todo) * 1e6


async def _wait_ms(line: Line) -> float:
    """p50 of the answers."""
    return median([(await line.post(body(transfer))).seconds * 1000 for transfer in bursts.lane()])


def _sync_ms(folder: Path) -> float:
    """What the disk takes to sync a page that was appended."""
    times = []
    with (folder / "sync").open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            began = time.monotonic()
            os.fdatasync(file.fileno())
            times.append((time.monotonic() - began) * 1000)
    return median(times)


async def _starts(rig: Rig, node: Part, folder: Path) -> dict[int, float]:
    """Seconds until a relay is ready, by the rows of its journal."""
    took = {}
    for rows in (0, ROWS):
        file = folder / f"{rows}.db"
        await (await open_journal(f"sqlite:///{file}")).close()
        _fill(file, rows)
        began = time.monotonic()
        await rig.relay(node.url, journal__url=f"sqlite:///{file}")
        took[rows] = time.monotonic() - began
    return took


def _fill(file: Path, rows: int) -> None:
    """Ended ones, and a thousandth pending, as years of use leave them."""
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executemany(
            "INSERT INTO submission (chain_id, sender, nonce, hash, method, mode, admitted_ms, state, detail, version,"
            " fence, since_ms) VALUES (?, ?, ?, ?, 'eth_sendRawTransaction', 'verdict', ?, ?, '', 4, 0, ?)",
            (
                (
                    CHAIN_ID,
                    (number % 1000).to_bytes(20, "big"),
                    number // 1000,
                    number.to_bytes(32, "big"),
                    now_ms,
                    "completed" if number % 1000 else "pending",
                    now_ms,
                )
                for number in range(rows)
            ),
        )


async def _swept(rig: Rig, folder: Path) -> dict[str, float]:
    """A sweep over many open rows, before a node that knows none of them."""
    file = folder / "open.db"
    await (await open_journal(f"sqlite:///{file}")).close()
    sweeping.fill(file, OPEN_ROWS)
    node = await rig.yes_node()
    told = await rig.run(sys.executable, "-m", "acceptance.bench.sweeping", str(file), node.url, timeout_s=600)
    found: dict[str, float] = json.loads(told.splitlines()[-1])
    return found


def _sweep_target(swept: Mapping[str, float]) -> str:
    grown, rows = swept["grown_mib"], swept["rows"]
    return (
        f"- a sweep over {rows:,.0f} open rows, each looked up and handed to its lane: {swept['seconds']:.0f} s,"
        f" {swept['cpu_s'] / rows * 1e6:.0f} µs of CPU a row; memory grows by **{grown:.0f} MiB**, at most"
        f" {SWEEP_MIB:.0f} MiB: {met(grown <= SWEEP_MIB)}"
    )


def _table(costs: Mapping[str, Sequence[float]], waits: Mapping[str, Sequence[float]]) -> list[str]:
    rows = [
        [
            name,
            f"{median(found):.0f} µs ({min(found):.0f}–{max(found):.0f})",
            f"{median(waits[name]):.2f} ms",
            f"{median(waits[name]) - median(waits[OFF]):+.2f} ms",
        ]
        for name, found in costs.items()
    ]
    return table(["", "CPU a submission (range)", "p50, one at a time", "added"], rows)


def _targets(
    costs: Mapping[str, Sequence[float]],
    waits: Mapping[str, Sequence[float]],
    sync_ms: float,
    starts: Mapping[int, float],
) -> list[str]:
    cost, added = median(costs[SQLITE]), median(waits[SQLITE]) - median(waits[OFF])
    most = max(ADDED_MS, ADDED_SYNCS * sync_ms)
    return [
        f"- a submission with SQLite, in all: **{cost:.0f} µs**, at most {CPU_US:.0f} µs: {met(cost <= CPU_US)}",
        f"- p50 that SQLite adds: **{added:.2f} ms**, at most {most:.2f} ms (this disk syncs in {sync_ms:.2f} ms):"
        f" {met(added <= most)}",
        f"- start with a journal of {ROWS:,} rows: **{starts[ROWS]:.2f} s**, with an empty one {starts[0]:.2f} s, under"
        f" {START_S:.0f} s: {met(starts[ROWS] < START_S)}",
    ]
