"""Watch and sweep over a real path: a development chain (or any node), the relay's own recorder, a journal in memory.

Time is told by the test: `Rig.pass_s` moves the store's clock and the settlement's together.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relay.journal.memory import MemoryJournal
from relay.journal.shelf import Shelf
from relay.recorder.taking_up import TakingUp
from relay.settlement import Settlement
from relay.transaction import decode
from tests.stand import Stand

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relay.devnode import DevNode, NodeSettings
    from relay.journal.records import Record
    from relay.lifecycle import State
    from relay.settlement.sweep import End
    from relay.tasks import TaskOwner
    from relay.telemetry.metrics import Metrics

BEGAN_MS = 1_700_000_000_000
OLD_S = 130.0
"""Longer than a receipt is waited for."""


@dataclass
class Time:
    """Seconds since the beginning."""

    s: float = 0.0

    def __call__(self) -> float:
        return self.s

    def ms(self) -> int:
        """For the store."""
        return BEGAN_MS + int(self.s * 1000)


class Held(Shelf):
    """A shelf whose journal is there already."""

    def __init__(self, journal: Any) -> None:
        super().__init__("memory:")
        self._journal = journal
        self.opened.set()

    async def start(self, background: TaskOwner) -> None:
        """It is open."""


@dataclass
class Rig:
    """See the module."""

    stand: Stand
    journal: MemoryJournal
    time: Time
    settlement: Settlement

    @property
    def node(self) -> DevNode:
        """The development chain."""
        return self.stand.node

    @property
    def metrics(self) -> Metrics:
        """What is counted."""
        return self.stand.metrics

    def pass_s(self, seconds: float) -> None:
        """So much time goes by."""
        self.time.s += seconds

    async def send(self, raw: str) -> Record:
        """Submit through the relay, which accepts it: the record."""
        answer = await self.stand.send(raw)
        assert "result" in answer, answer
        return await self.record(raw)

    async def record(self, raw: str) -> Record:
        """Where it stands."""
        hash_ = decode(bytes.fromhex(raw[2:])).hash
        record = await self.journal.by_hash(None, bytes.fromhex(hash_[2:]))
        assert record is not None
        return record

    async def state(self, raw: str) -> State:
        """Its state."""
        return (await self.record(raw)).state

    async def watch(self) -> None:
        """One look at the head."""
        await self.settlement._standing.refresh(self.journal)
        await self.settlement._step(self.journal)

    async def sweep(self) -> End:
        """One sweep, and every turn that it led to."""
        end = await self.settlement._sweep_once(self.journal, asked=True)
        await self.settlement._sweep.settled()
        assert self.stand.recorder is not None
        await self.stand.recorder.settled()
        return end

    async def old_sweep(self) -> End:
        """A sweep when everything is old enough for one."""
        self.pass_s(OLD_S)
        return await self.sweep()


def settled_by(stand: Stand, shelf: Shelf, time: Time) -> Settlement:
    """Over ``stand``, as `relay.sides` makes it."""
    assert stand.recorder is not None
    taking_up = TakingUp(
        shelf,
        stand.recorder,
        take=stand.submitter.take,
        find=stand.submitter.find,
        max_wait_s=stand.settings.ordering.max_wait_s,
        report=stand.report,
        clock=time,
    )
    return Settlement(
        shelf,
        stand.client,
        stand.identity,
        stand.settings,
        stand.metrics,
        upstream=stand.pool.endpoint.name,
        actor="stand",
        report=stand.report,
        clock=time,
        take_up=taking_up.take_up,
        holds=stand.recorder.holds,
    )


@asynccontextmanager
async def rig(node: NodeSettings | None = None, *, url: str = "", **tables: Any) -> AsyncIterator[Rig]:
    """Over a development chain with these settings, or over the node at ``url``."""
    time = Time()
    store = MemoryJournal(now_ms=time.ms)
    shelf = Held(store)
    if url:
        tables["upstream"] = {"url": url, **tables.get("upstream", {})}
    tables["journal"] = {"confirmations": 3, **tables.get("journal", {})}
    async with Stand.recording(shelf, node, **tables) as stand:
        settlement = settled_by(stand, shelf, time)
        try:
            yield Rig(stand, store, time, settlement)
        finally:
            await settlement.close()
