"""Group ``submit``: what a submission costs, a transaction for each sender, beside nginx passing the same bytes."""

from __future__ import annotations

from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from acceptance.bench import proxies
from acceptance.bench.load import CALL
from acceptance.bench.sheet import Findings, ratio, table
from acceptance.bench.turns import spent_s
from acceptance.rig.load import body, pump
from acceptance.rig.signing import random_keys, sign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from acceptance.bench.proxies import Contender
    from acceptance.bench.turns import Turns
    from acceptance.rig.parts import Rig

CHAIN_ID: Final = 1337
SENDERS: Final = 1000
TIMES: Final = 5
CONNECTIONS: Final = 32
SMALL: Final = "nginx, a small call"
TARGET: Final = 10.0


async def measure(rig: Rig, turns: Turns) -> Findings:
    """CPU a submission."""
    stock = _fresh_bodies((turns.rounds * 3 + 20) * SENDERS * TIMES)
    with proxies.cores_apart() as core, TemporaryDirectory() as folder:
        node = await proxies.bench_node(rig)
        nginx = await proxies.nginx_proxy(rig, node, core, Path(folder))
        relay = await proxies.relay(rig, node, core)
        silent = await proxies.relay(rig, node, core, log__level="warning")
        reads = [CALL] * (SENDERS * TIMES)
        found = await turns.of(
            {
                SMALL: partial(_cost_us, nginx, lambda: reads),
                "nginx, the submission": partial(_cost_us, nginx, lambda: _next(stock)),
                "relay": partial(_cost_us, relay, lambda: _next(stock)),
                'relay, `log.level = "warning"`': partial(_cost_us, silent, lambda: _next(stock)),
            }
        )
    cost = {name: median(turn) for name, turn in found.items()}
    rows = [
        [name, f"{cost[name]:.1f} µs ({min(turn):.1f}–{max(turn):.1f})", f"{cost[name] / cost[SMALL]:.2f}"]
        for name, turn in found.items()
    ]
    return Findings(
        [
            f"A turn is {TIMES} × {SENDERS:,} fresh senders, a transaction each, over {CONNECTIONS} kept connections;"
            f" medians of {turns.rounds} turns; {turns.dropped} turns dropped.",
            "The relay decodes, recovers the sender, takes its turn, checks, sends, judges the answer and logs a line.",
            "",
            *table(["", "CPU a request (range)", "÷ nginx, a small call"], rows),
            "",
            ratio("relay's submission ÷ nginx's small call", cost["relay"] / cost[SMALL], TARGET),
            ratio("relay's submission ÷ nginx's submission", cost["relay"] / cost["nginx, the submission"], TARGET),
        ]
    )


async def _cost_us(contender: Contender, bodies: Callable[[], list[bytes]]) -> float:
    todo = bodies()
    before = spent_s(contender.pid)
    answers = await pump(contender.url, todo, CONNECTIONS)
    spent = spent_s(contender.pid) - before
    assert all(b'"result"' in answer.body for answer in answers), next(
        answer.body for answer in answers if b'"result"' not in answer.body
    )
    return spent / len(todo) * 1e6


def _fresh_bodies(most: int) -> Iterator[bytes]:
    return (body(sign(key, 0, CHAIN_ID)) for key in islice(random_keys(), most))


def _next(stock: Iterator[bytes]) -> list[bytes]:
    return list(islice(stock, SENDERS * TIMES))
