"""The operator's side of N workers: one page for all.

Job: add up what the workers count, those that have died included; what each one checks, by its name; the processes'
own figures.
Rules: no question waits long for a worker: of one that does not answer the last figures are shown, and /readyz names
it. Counters never go back: what a dead worker last said is kept.
Must not know: what is counted or checked.
"""

from __future__ import annotations

import asyncio
import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import PlatformCollector, ProcessCollector
from prometheus_client.registry import Collector

from relay.ops import registry
from relay.telemetry.totals import Totals
from relay.workers.child import ANSWER_S, CHECK_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from prometheus_client.core import Metric

    from relay.telemetry.metrics import Metrics
    from relay.workers.child import Child
    from relay.workers.slot import Slot

CPU: Final = "process_cpu_seconds"
OF_ONE: Final = frozenset({"process_start_time_seconds", "process_max_fds"})
"""Figures that do not add up: the parent's are shown."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a check says."""

    ready: bool
    detail: str


class Operator:
    """See the module."""

    def __init__(self, slots: Sequence[Slot], metrics: Metrics) -> None:
        self._slots = slots
        self._metrics = metrics
        self.totals = Totals()
        self.registry = registry(self.totals, _Processes(self))
        PlatformCollector(registry=self.registry)
        metrics.workers.read_from(lambda: sum(slot.works for slot in slots), "working")
        metrics.workers.read_from(lambda: sum(not slot.works for slot in slots), "missing")

    def __repr__(self) -> str:
        return f"<Operator of {len(self._slots)} workers>"

    def children(self) -> list[Child]:
        """Every worker process there is."""
        return [child for slot in self._slots for child in slot.all if not child.ended.is_set()]

    def chain_id(self) -> int | None:
        """The node's, as far as a worker knows it."""
        return next((child.chain_id for child in self.children() if child.chain_id is not None), None)

    async def count(self) -> None:
        """Bring every worker's figures up to date, as far as it answers."""
        self.totals.told(self, self._metrics.snapshot())
        await asyncio.gather(*(child.count() for child in self.children() if child.ready.is_set()))

    def checked(self, slot: Slot) -> Callable[[], Awaitable[Found]]:
        """The check of one worker: does it work, and what do its own checks say?"""

        async def check() -> Found:
            child = slot.current
            if child is None or not slot.works:
                return Found(ready=False, detail=slot.trouble)
            if not await child.count():
                return Found(ready=False, detail=f"no answer within {ANSWER_S:g} s; a worker that hangs is replaced")
            if not await child.check():
                return Found(ready=False, detail=f"its checks take longer than {CHECK_S:g} s")
            details = (f"{name}: {detail}" for name, _, detail in child.checks)
            return Found(ready=all(ready for _, ready, _ in child.checks), detail="; ".join(details))

        return check

    async def keep(self, child: Child) -> None:
        """When ``child`` has ended, keep what it had counted."""
        await child.ended.wait()
        self.totals.ended(child)


class _Processes(Collector):
    """``process_*`` of the parent and all workers together, as the system tells: nobody need answer."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def describe(self) -> Iterable[Metric]:
        """Nothing is asked at the registration."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The parent's families, with the workers' values added."""
        families = list(_of("self"))
        others = [list(_of(child.pid)) for child in self._operator.children()]
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)  # of those that have ended, and have been seen to
        for family in families:
            total = sum(sample.value for sample in family.samples)
            if family.name not in OF_ONE:
                total += sum(one.samples[0].value for other in others for one in other if one.name == family.name)
            if family.name == CPU:
                total += spent.ru_utime + spent.ru_stime
            family.samples = [family.samples[0]._replace(value=total)]
        return families


def _of(pid: int | str) -> Iterator[Metric]:
    return iter(ProcessCollector(pid=lambda: pid, registry=None).collect())
