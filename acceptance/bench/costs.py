"""CPU a call of each contender, beside nginx: what the groups of the HTTP path have in common."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from acceptance.bench.load import wrk
from acceptance.bench.sheet import table

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from acceptance.bench.load import Load
    from acceptance.bench.proxies import Contender
    from acceptance.rig.parts import Rig


def work(
    rig: Rig, contenders: Mapping[str, Contender], connections: int, seconds: int, *flags: str, script: str = "post.lua"
) -> dict[str, partial[Coroutine[Any, Any, Load]]]:
    """A turn of `load.wrk` for each contender."""
    turn = partial(wrk, rig, script=script)
    return {name: partial(turn, contender, connections, seconds, *flags) for name, contender in contenders.items()}


def cpu_us(found: Mapping[str, Sequence[Load]]) -> dict[str, float]:
    """Microseconds a call of each contender."""
    return {name: median(load.cpu_us for load in loads) for name, loads in found.items()}


def cpu_table(title: str, found: Mapping[str, Sequence[Load]]) -> list[str]:
    """A row for each contender."""
    cost = cpu_us(found)
    rows = [
        [name, _with_range([load.cpu_us for load in loads]), f"{cost[name] / cost['nginx']:.2f}", _per_second(loads)]
        for name, loads in found.items()
    ]
    return table([title, "CPU a call (range)", "÷ nginx", "calls/s"], rows)


def _with_range(times: Sequence[float]) -> str:
    return f"{_short(median(times))} µs ({_short(min(times))}–{_short(max(times))})"


def _short(number: float) -> str:
    return f"{number:.1f}" if number < 1000 else f"{number:,.0f}"


def _per_second(loads: Sequence[Load]) -> str:
    rate = median(load.per_second for load in loads)
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"
