"""The sweep: everything that is open, looked at by everybody that can be asked.

Job: walk the open records in nonce order, receipts first; then gather evidence and carry out what `rules` says, resends
included.
Rules: rows, not jobs: a page at a time, nothing kept of the last. At most `BUDGET_S` of look-ups; the next sweep goes
on at that place. What this process has in flight, and what is younger than its time, is left alone. Resends take the
lane's turn, at most `AT_ONCE` at a time; how they end is for the recorder to write.
Must not know: how a turn is taken, who owns the sweep.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import structlog

from relay.journal.faults import Unavailable, Unusable
from relay.journal.records import Cursor
from relay.lifecycle import OPEN, Reason, State
from relay.settlement.evidence import Move, Resend
from relay.settlement.reach import Reach
from relay.settlement.rules import concluded, is_young
from relay.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from relay.journal.records import Decision, Payload, Record
    from relay.journal.store import Journal
    from relay.settlement.deciding import Deciding
    from relay.settlement.evidence import Evidence
    from relay.settlement.landings import Landings
    from relay.settlement.looks import Looks, World
    from relay.settlement.rules import Rules
    from relay.telemetry.metrics import Metrics

    TakeUp = Callable[[Record, Payload], Coroutine[Any, Any, bool]]

BUDGET_S: Final = 120.0
PAGE: Final = 200
AT_ONCE: Final = 64
LATELY_MS: Final = 3_600_000
"""What was completed since is looked at again: a deep reorganisation may reach it."""
LATELY: Final = 500
_MINE: Final = frozenset({State.QUEUED, State.SEALED, State.SENT, State.PENDING, State.DEAD_LETTER})


class End(StrEnum):
    """How far a sweep came."""

    DONE = "done"
    CUT = "cut"
    """Its budget was used up."""
    FAILED = "failed"
    """The node or the store could not be asked."""
    LEFT = "left"
    """It is another instance's."""


class Sweep:
    """See the module. ``take_up`` and ``holds`` are the recorder's."""

    def __init__(  # noqa: PLR0913 - the rooms it stands between
        self,
        landings: Landings,
        looks: Looks,
        deciding: Deciding,
        rules: Rules,
        *,
        take_up: TakeUp,
        holds: Callable[[int], bool],
        metrics: Metrics,
        report: Callable[[str, BaseException], None],
        clock: Callable[[], float],
    ) -> None:
        self._landings = landings
        self._looks = looks
        self._deciding = deciding
        self._rules = rules
        self._take_up = take_up
        self._holds = holds
        self._clock = clock
        self._owner = TaskOwner("resend", report)
        self._room = asyncio.Semaphore(AT_ONCE)
        self._place: Cursor | None = None
        self._reach = Reach()
        self._resends = {state: metrics.resends.cell(state) for state in metrics.resends.labels["state"]}
        self._unresolved = 0
        """Of the walk that is under way."""
        self.unresolved = 0
        """Of the last walk that came to its end."""
        metrics.sweep_unresolved.read_from(lambda: self.unresolved)
        self._log = structlog.get_logger("relay.settlement")

    def __repr__(self) -> str:
        return f"<sweep at {self._place}, {len(self._owner)} resends>"

    async def run(self, journal: Journal, chain_id: int, now_ms: int) -> End:
        """One sweep, from where the last one stopped. Resends may outlast it: `settled` waits for them."""
        world = await self._looks.world(chain_id, now_ms)
        if world is None:
            return End.FAILED
        began = self._clock()
        if self._place is None:
            self._unresolved = 0
            await self._late(journal, world)
        cursor = self._place or Cursor(chain_id)
        while self._clock() - began < BUDGET_S:
            page = [
                record
                for record in await journal.unfinished(cursor, limit=PAGE, states=OPEN)
                if record.chain_id == chain_id
            ]
            if page:
                await self._page(journal, page, world)
                self._place = cursor = Cursor.after(page[-1])
            if len(page) < PAGE:
                self._place, self.unresolved = None, self._unresolved
                return End.DONE
        self._log.warning("the sweep used up its time, the next one goes on at this place", seconds=BUDGET_S)
        return End.CUT

    async def settled(self) -> None:
        """Wait until every resend has had its turn."""
        await self._owner.settled()

    async def close(self) -> None:
        """Stop waiting for resends. What has a ticket keeps it."""
        await self._owner.close()

    async def _late(self, journal: Journal, world: World) -> None:
        """What was completed lately: a reorganisation deeper than `confirmations`."""
        lately = await journal.listing(State.COMPLETED, limit=LATELY)
        since_ms = world.now_ms - LATELY_MS
        records = [each for each in lately if each.chain_id == world.chain_id and each.since_ms >= since_ms]
        if records:
            await self._landings.look(journal, records, world.head.height)

    async def _page(self, journal: Journal, page: Sequence[Record], world: World) -> None:
        looked = await self._landings.look(journal, page, world.head.height)
        self._unresolved += looked.unsaid
        due = {record for record in looked.empty if self._is_due(record, world.now_ms)}
        decisions: list[Decision] = []
        for evidence in await self._looks.gather(journal, page, due, world):
            conclusion = concluded(self._reach.of(evidence), self._rules)
            if evidence.somebody_knows or isinstance(conclusion, Resend):
                self._reach.filled(evidence.record)
            if isinstance(conclusion, Resend):
                await self._resend(journal, evidence.record)
            elif isinstance(conclusion, Move):
                decisions.append(self._decision(evidence, conclusion))
                self._unresolved += conclusion.reason is Reason.HELD_UNANSWERED
            else:
                self._unresolved += conclusion.unresolved
        await self._deciding.decide(journal, decisions)

    def _is_due(self, record: Record, now_ms: int) -> bool:
        young = is_young(record.state, now_ms - record.since_ms, self._rules)
        return record.state in _MINE and not young and not self._holds(record.id)

    def _decision(self, evidence: Evidence, move: Move) -> Decision:
        other = evidence.rival if move.target is State.SUPERSEDED else None
        return self._deciding.decision(evidence.record, move, other=other)

    async def _resend(self, journal: Journal, record: Record) -> None:
        payload = await journal.payload(record.id)
        if payload is None or self._holds(record.id):
            return
        await self._room.acquire()
        self._resends[record.state].n += 1
        self._owner.start("turn", self._turn(record, payload))

    async def _turn(self, record: Record, payload: Payload) -> None:
        """Tasks begin in the order in which they are made, and take a ticket before they wait: in nonce order."""
        try:
            await self._take_up(record, payload)
        except (Unavailable, Unusable) as fault:
            self._log.warning("a resend could not be recorded", submission=record.id, error=str(fault))
        finally:
            self._room.release()
