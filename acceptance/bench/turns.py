"""Contenders in turn: A B C, C B A, and so on, so that a slow drift of the machine meets all of them alike.

Job: run each contender's turn so often, and give all its results.
Rules: a turn in which others took more than a tenth of a core is run again, until too much time has gone that way. CPU
is what the kernel's scheduler counted for the process measured, all its threads; never wall time.
Must not know: what a turn does.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

ROUNDS: Final = 4
SECONDS: Final = 3
FOREIGN: Final = 0.10
PATIENCE_S: Final = 240.0
MOMENT_S: Final = 1.0
TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
PROC: Final = Path("/proc")

T = TypeVar("T")


class CannotMeasure(Exception):  # noqa: N818 - what is the matter
    """The machine does not allow it; the text says why, and what to do."""


@dataclass(slots=True)
class Turns:
    """Runs turns; ``dropped`` counts those that others disturbed. ``seconds`` is how long one under load lasts."""

    rounds: int = ROUNDS
    seconds: int = SECONDS
    most_foreign: float = FOREIGN
    patience_s: float = PATIENCE_S
    dropped: int = 0
    lost_s: float = 0.0

    def __str__(self) -> str:
        return f"turns of {self.seconds} s, medians of {self.rounds}; {self.dropped} turns dropped"

    async def of(self, contenders: Mapping[str, Callable[[], Awaitable[T]]]) -> dict[str, list[T]]:
        """Each contender's results, of ``rounds`` undisturbed turns."""
        found: defaultdict[str, list[T]] = defaultdict(list)
        names = list(contenders)
        for number in range(self.rounds):
            for name in names if number % 2 == 0 else reversed(names):
                found[name].append(await self._undisturbed(contenders[name]))
        return dict(found)

    async def _undisturbed(self, turn: Callable[[], Awaitable[T]]) -> T:
        while True:
            watch = _Watch()
            result = await turn()
            foreign = watch.foreign()
            if foreign <= self.most_foreign:
                return result
            self.dropped += 1
            self._lose(watch, foreign)
            await self._quiet()

    async def _quiet(self) -> None:
        """Until others have left the machine alone for a moment."""
        while True:
            watch = _Watch()
            await asyncio.sleep(MOMENT_S)
            foreign = watch.foreign()
            self._lose(watch, foreign)
            if foreign <= self.most_foreign:
                return

    def _lose(self, watch: _Watch, foreign: float) -> None:
        self.lost_s += watch.seconds()
        if self.lost_s > self.patience_s:
            raise CannotMeasure(
                f"other programs take {foreign:.0%} of a core, and a turn counts below {self.most_foreign:.0%}; after"
                f" {self.dropped} dropped turns this run gives up. End them, or measure later"
            )


def trial() -> Turns:
    """Short turns, whatever else the machine does: to see that a group works, not what its figures are."""
    return Turns(rounds=2, seconds=1, most_foreign=math.inf)


class _Watch:
    """Looks at what others take, from now on."""

    def __init__(self) -> None:
        self._began = monotonic()
        self._others_s = _machine_s() - _own_s()

    def seconds(self) -> float:
        """How long it has looked."""
        return monotonic() - self._began

    def foreign(self) -> float:
        """The share of a core that they took."""
        return (_machine_s() - _own_s() - self._others_s) / self.seconds()


def spent_s(pid: int) -> float:
    """CPU seconds of a process so far, all threads."""
    threads = (PROC / str(pid) / "task").glob("*/schedstat")
    return sum(int(thread.read_text("ascii").split()[0]) for thread in threads) / 1e9


def pin(pid: int, cores: set[int]) -> None:
    """Keep a process, all threads, on these cores."""
    for thread in (PROC / str(pid) / "task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def children(pid: int) -> list[int]:
    """The processes that ``pid`` has started."""
    return [int(child) for child in (PROC / str(pid) / "task" / str(pid) / "children").read_text("ascii").split()]


def _machine_s() -> float:
    """CPU seconds of all programs, those of the host included that were taken from us; not the kernel's interrupts,
    which are mostly the network traffic of the turn itself."""
    user, nice, system, _idle, _wait, _irq, _softirq, steal = (PROC / "stat").read_text("ascii").split()[1:9]
    return sum(map(int, (user, nice, system, steal))) * TICK_S


def _own_s(pid: int | None = None) -> float:
    """CPU seconds of this program and of all it has started, ended ones included."""
    pid = os.getpid() if pid is None else pid
    try:
        fields = (PROC / str(pid) / "stat").read_text("ascii").rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) * TICK_S + sum(map(_own_s, children(pid)))
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # it has ended between the two looks, and its parent counts it soon
