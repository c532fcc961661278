"""Contenders in turn: A B C, C B A, and so on, so that a slow drift of the machine meets all of them alike.

Job: run each contender's turn so often, and give all its results.
Rules: a turn in which others took more than a tenth of a core is run again. CPU is what the kernel's scheduler counted
for the process measured, all its threads; never wall time.
Must not know: what a turn does.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

ROUNDS: Final = 4
FOREIGN: Final = 0.10
PATIENCE_S: Final = 420.0
MOMENT_S: Final = 1.0
TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
PROC: Final = Path("/proc")

T = TypeVar("T")


class MachineBusy(Exception):  # noqa: N818 - what is the matter
    """Other programs take so much of the machine that nothing can be measured."""


@dataclass(slots=True)
class Turns:
    """Runs turns; ``dropped`` counts those that others disturbed."""

    rounds: int = ROUNDS
    dropped: int = 0
    _began: float = field(default_factory=monotonic)

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
            if watch.foreign() <= FOREIGN:
                return result
            self.dropped += 1
            await self._quiet()

    async def _quiet(self) -> None:
        """Until others have left the machine alone for a moment."""
        foreign = 1.0
        while foreign > FOREIGN:
            if monotonic() > self._began + PATIENCE_S:
                raise MachineBusy(f"other programs take {foreign:.0%} of a core; end them, or measure later")
            watch = _Watch()
            await asyncio.sleep(MOMENT_S)
            foreign = watch.foreign()


class _Watch:
    """Looks at what others take, from now on."""

    def __init__(self) -> None:
        self._began = monotonic()
        self._others_s = _machine_s() - _own_s()

    def foreign(self) -> float:
        """The share of a core that they took."""
        return (_machine_s() - _own_s() - self._others_s) / (monotonic() - self._began)


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
