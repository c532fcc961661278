"""Group ``senders``: what a submission costs, and what the relay holds and how long it pauses, as senders grow.

Rules: a relay with its defaults for each number of senders, each of which has sent once before anything is measured.
In a turn they go on one after the other, with fewer connections than the fewest senders, so that no lane waits.
"""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from functools import partial
from itertools import count, islice
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from acceptance.bench import proxies
from acceptance.bench.sheet import Findings, met, ratio, table
from acceptance.bench.turns import Turns, pin, spent_s
from acceptance.rig.load import body, pump
from acceptance.rig.signing import random_keys, sign

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from coincurve import PrivateKey

    from acceptance.rig.parts import Part, Rig

CHAIN_ID: Final = 1337
SIZES: Final = (10, 1000, 100_000)
WARM_UP: Final = 1000
TURN: Final = 5000
CONNECTIONS: Final = 8
MIB: Final = 2**20
GROWTH: Final = 1.2
PAUSE_MS: Final = 10.0
LANES_MIB: Final = 50.0


class Pause(NamedTuple):
    """What the probe saw, in milliseconds; ``most``: 99 % of its questions were answered as fast."""

    longest: float
    most: float


class Grown(NamedTuple):
    """A relay that has met its senders, and how long it paused meanwhile."""

    relay: Part
    senders: Iterator[tuple[PrivateKey, int]]
    pause: Pause
    added_mib: float


async def measure(rig: Rig, turns: Turns) -> Findings:
    """CPU and pauses in turns, memory at their end."""
    once = replace(turns, rounds=1)
    with proxies.cores_apart() as core:
        node = await rig.yes_node()
        grown: dict[str, Grown] = {}
        for size in SIZES:
            (grown[f"{size:,}"],) = (await once.of({"growth": partial(_grown, rig, node, core, size)}))["growth"]
        costs = await turns.of({name: partial(_cost_us, one) for name, one in grown.items()})
        pauses = await turns.of({name: partial(_paused, rig, one) for name, one in grown.items()})
    return Findings(
        [
            f"A turn is {TURN:,} submissions over {CONNECTIONS} kept connections, of senders that the relay knows;"
            f" medians of {turns.rounds} turns, {turns.dropped + once.dropped} dropped. *Pause* is how long the"
            " relay took for a preflight, one each millisecond, while submissions came as fast as they were answered:"
            " of known senders, the longest of all turns, and before, while each sender was new.",
            "",
            *_table(grown, costs, pauses),
            "",
            *_targets(grown, costs, pauses),
        ],
    )


async def _grown(rig: Rig, node: Part, core: set[int], size: int) -> Grown:
    """A fresh relay, warmed up by other senders, and the first submission of each sender."""
    relay = await rig.relay(node.url)
    pin(relay.process.pid, core)
    await _accepted(relay, (body(sign(key, 0, CHAIN_ID)) for key in islice(random_keys(), WARM_UP)))
    before = relay.process.rss_bytes()
    keys = list(islice(random_keys(), size))
    pause = await _watched(rig, relay, (body(sign(key, 0, CHAIN_ID)) for key in keys))
    added_mib = (relay.process.rss_bytes() - before) / MIB
    return Grown(relay, ((key, nonce) for nonce in count(1) for key in keys), pause, added_mib)


async def _cost_us(grown: Grown) -> float:
    todo = list(_turn(grown))
    pid = grown.relay.process.pid
    before = spent_s(pid)
    await _accepted(grown.relay, todo)
    return (spent_s(pid) - before) / TURN * 1e6


async def _paused(rig: Rig, grown: Grown) -> Pause:
    return await _watched(rig, grown.relay, _turn(grown))


def _turn(grown: Grown) -> Iterator[bytes]:
    return (body(sign(key, nonce, CHAIN_ID)) for key, nonce in islice(grown.senders, TURN))


async def _watched(rig: Rig, relay: Part, bodies: Iterable[bytes]) -> Pause:
    """Submit, and have the probe watch."""
    probe = await rig.start("probe", [sys.executable, "-m", "acceptance.bench.probe", relay.url])
    await probe.line("ready")
    await _accepted(relay, bodies)
    probe.signal(signal.SIGINT)
    await probe.ended()
    return Pause(**json.loads(probe.lines[-1]))


async def _accepted(relay: Part, bodies: Iterable[bytes]) -> None:
    answers = await pump(relay.url, bodies, CONNECTIONS)
    refused = [answer.body for answer in answers if b'"result"' not in answer.body]
    assert not refused, refused[0]


def _table(
    grown: Mapping[str, Grown], costs: Mapping[str, Sequence[float]], pauses: Mapping[str, Sequence[Pause]]
) -> list[str]:
    rows = [
        [
            name,
            f"{median(costs[name]):.1f} µs ({min(costs[name]):.1f}–{max(costs[name]):.1f})",
            f"{one.relay.process.rss_bytes() / MIB:.0f} MiB",
            f"{max(pause.longest for pause in pauses[name]):.1f} ms",
            f"{median(pause.most for pause in pauses[name]):.1f} ms",
            f"{one.pause.longest:.1f} ms",
        ]
        for name, one in grown.items()
    ]
    return table(["senders", "CPU a submission (range)", "RSS", "longest pause", "99 %", "longest, new senders"], rows)


def _targets(
    grown: Mapping[str, Grown], costs: Mapping[str, Sequence[float]], pauses: Mapping[str, Sequence[Pause]]
) -> list[str]:
    few, *_, many = grown
    longest = max(grown[many].pause.longest, *(pause.longest for pause in pauses[many]))
    added = grown[many].added_mib
    return [
        ratio(f"CPU, {many} senders ÷ {few}", median(costs[many]) / median(costs[few]), GROWTH),
        f"- longest pause with {many} senders: **{longest:.1f} ms**, at most {PAUSE_MS:.0f} ms:"
        f" {met(longest <= PAUSE_MS)}",
        f"- {many} idle lanes: **{added:.1f} MiB**, at most {LANES_MIB:.0f} MiB: {met(added <= LANES_MIB)}",
    ]
