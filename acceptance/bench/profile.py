"""Group ``profile``: where the CPU of a passed-through call and of a submission goes, by perf.

Rules: perf samples the process by its own CPU clock, so that idle time gives no samples; a sample belongs to the
library it was taken in, the kernel is one of them. What a part costs is its share of the CPU counted.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
from collections import Counter
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from acceptance.bench import proxies
from acceptance.bench.load import wrk
from acceptance.bench.sheet import Findings, table
from acceptance.bench.turns import CannotMeasure, spent_s
from acceptance.rig.load import body, pump
from acceptance.rig.signing import random_keys, sign

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from acceptance.bench.proxies import Contender
    from acceptance.bench.turns import Turns
    from acceptance.rig.parts import Rig

CHAIN_ID: Final = 1337
SUBMISSIONS: Final = 3000
"""For each second of a turn."""
CONNECTIONS: Final = 32
HERTZ: Final = 1999
ATTACHED_S: Final = 1.0
SYMBOLS: Final = 12
PARTS: Final = {
    "kernel": r"^\[(?!vdso|unknown)",
    "interpreter": r"^libpython|^python",
    "uvloop": r"^loop\.",
    "httptools": r"^parser\.|^url_parser\.",
    "libsecp256k1": r"^_libsecp256k1|^libsecp256k1|^_cffi_backend",
    "keccak": r"^_pysha3",
    "orjson": r"^orjson",
    "libc, libm": r"^libc[.-]|^libm[.-]|^libpthread|^ld-linux",
    "clock (vdso)": r"vdso",
}
OTHER: Final = "other libraries"
ROW: Final = re.compile(r"^\s*(?P<samples>\d+)\s*\t(?P<library>[^\t]+?)\s*\t\[.\] (?P<symbol>.+?)\s*$", re.MULTILINE)


class Sampled(NamedTuple):
    """One turn: CPU a request, and samples by library and symbol."""

    cpu_us: float
    samples: Counter[tuple[str, str]]


async def measure(rig: Rig, turns: Turns) -> Findings:
    """Calls passed through, and submissions of fresh senders."""
    if shutil.which("perf") is None:
        raise CannotMeasure("perf is missing; on Debian: apt install linux-perf")
    stock = (body(sign(key, 0, CHAIN_ID)) for key in random_keys())
    with proxies.cores_apart() as core, TemporaryDirectory() as folder:
        relay = await proxies.relay(rig, await proxies.bench_node(rig), core)
        data = Path(folder) / "perf.data"
        found = await turns.of(
            {
                "a call": partial(_sampled, rig, relay, data, partial(_calls, rig, relay, turns.seconds)),
                "a submission": partial(_sampled, rig, relay, data, partial(_submissions, relay, stock, turns.seconds)),
            }
        )
    totals = {name: sum((turn.samples for turn in found[name]), Counter()) for name in found}
    cpu_us = {name: median(turn.cpu_us for turn in found[name]) for name in found}
    counted = ", ".join(f"{sum(total.values()):,} of {name}" for name, total in totals.items())
    version = (await rig.run("perf", "--version")).strip()
    return Findings(
        [
            f"`perf record -F {HERTZ} -p PID` of the relay, {CONNECTIONS} kept connections; samples of {turns.rounds}"
            f" turns ({counted}); {turns.dropped} turns dropped. perf itself adds a little to the sums.",
            "",
            *_parts_table(totals, cpu_us),
            "",
            *_symbols_table(totals, cpu_us),
        ],
        [version.replace(" version", "")],
    )


async def _calls(rig: Rig, relay: Contender, seconds: int) -> int:
    return round((await wrk(rig, relay, CONNECTIONS, seconds)).per_second * seconds)


async def _submissions(relay: Contender, stock: Iterator[bytes], seconds: int) -> int:
    answers = await pump(relay.url, list(islice(stock, SUBMISSIONS * seconds)), CONNECTIONS)
    assert all(b'"result"' in answer.body for answer in answers), "submissions were refused"
    return len(answers)


async def _sampled(rig: Rig, relay: Contender, data: Path, work: Callable[[], Awaitable[int]]) -> Sampled:
    """``work`` under perf; it gives the number of its requests."""
    perf = await rig.start("perf", ["perf", "record", "-q", "-F", str(HERTZ), "-o", str(data), "-p", str(relay.pid)])
    await asyncio.sleep(ATTACHED_S)  # perf does not say when it has begun; an idle process gives no samples
    assert perf.returncode is None, f"perf ended, it may need root or kernel.perf_event_paranoid = 1:\n{perf.output}"
    before = spent_s(relay.pid)
    count = await work()
    spent = spent_s(relay.pid) - before
    perf.signal(signal.SIGINT)
    await perf.ended()
    argv = ["perf", "report", "-i", str(data), "--stdio", "--no-children", "-q", "-F", "sample,dso,symbol", "-t", "\t"]
    return Sampled(spent / count * 1e6, read(await rig.run(*argv)))


def read(report: str) -> Counter[tuple[str, str]]:
    """Samples by library and symbol, from ``perf report -F sample,dso,symbol -t TAB``."""
    rows: Counter[tuple[str, str]] = Counter()
    for row in ROW.finditer(report):
        rows[row["library"], row["symbol"]] += int(row["samples"])
    assert rows, f"perf took no samples; it printed:\n{report[:1000]}"
    return rows


def part(library: str) -> str:
    """Which part of the program a library is."""
    return next((name for name, pattern in PARTS.items() if re.search(pattern, library)), OTHER)


def _parts_table(totals: Mapping[str, Counter[tuple[str, str]]], cpu_us: Mapping[str, float]) -> list[str]:
    by_part: dict[str, Counter[str]] = {}
    for name, total in totals.items():
        by_part[name] = Counter()
        for (library, _), samples in total.items():
            by_part[name][part(library)] += samples
    rows = [
        [one, *(cell for name in totals for cell in _cells(by_part[name][one], totals[name].total(), cpu_us[name]))]
        for one in (*PARTS, OTHER)
    ]
    rows.append(["all", *(cell for name in totals for cell in ("100 %", f"{cpu_us[name]:.1f} µs"))])
    return table(["", *(head for name in totals for head in (name, "CPU"))], rows)


def _symbols_table(totals: Mapping[str, Counter[tuple[str, str]]], cpu_us: Mapping[str, float]) -> list[str]:
    columns = [_most(totals[name], cpu_us[name]) for name in totals]
    rows = [[cell for column in row for cell in column] for row in zip(*columns, strict=False)]
    return table([head for name in totals for head in (f"most of {name}", "CPU")], rows)


def _most(total: Counter[tuple[str, str]], cpu_us: float) -> Sequence[tuple[str, str]]:
    """The functions with the most samples, outside the kernel, where a mitigation or an interrupt hides the reason."""
    outside = [(place, samples) for place, samples in total.most_common() if part(place[0]) != "kernel"]
    return [
        (f"`{symbol}` ({part(library)})", f"{samples / total.total() * cpu_us:.1f} µs")
        for (library, symbol), samples in outside[:SYMBOLS]
    ]


def _cells(samples: int, of: int, cpu_us: float) -> tuple[str, str]:
    return f"{samples / of:.1%}".replace("%", " %"), f"{samples / of * cpu_us:.1f} µs"
