"""Ends on their way into the journal.

Job: write decisions down in groups, and tell whoever waits when they are on disk.
Rules
- What a node took is told whether or not it could be written: the record that is left will be looked up. A refusal that
  could not be written is told as "unknown", for that record would have the bytes sent again (G6).
- An end that could not be written is tried again until the submission's time is over, and `INSIST_S` at least.
- A decision that is refused as old is logged; its facts are kept.
- A refusal is told only where the record agrees: while the relay still works on it, its end is unknown.
Must not know: lanes, turns.
"""

from __future__ import annotations

import asyncio
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from relay.journal.faults import Unavailable, Unusable
from relay.journal.records import Decision, Missing, Record, Stale
from relay.lifecycle import LIVE, Mode, State
from relay.recorder import answers
from relay.submission import Accepted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from relay.journal.records import Refused
    from relay.journal.shelf import Shelf
    from relay.lifecycle import Step
    from relay.submission import Outcome, Submission
    from relay.tasks import TaskOwner
    from relay.telemetry.metrics import Metrics

PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4)
"""Before an end that could not be written is tried again; then once a second."""
INSIST_S: Final = 2.0
TAKEN: Final = frozenset({State.PENDING, State.MINED, State.COMPLETED})
"""A node has it, or had it: this process or another handed it on."""
WITHDRAWN: Final = frozenset({State.CANCELLED, State.SUPERSEDED})
"""Somebody else ended it, whatever it waited for here."""
FAULTS: Final = (Unavailable, Unusable)


class End(NamedTuple):
    """``outcome`` None: it has not ended, it waits again. ``told`` takes it.

    ``way`` says where the record goes, None where it stays and only the facts are kept; ``step`` is what it said last.
    """

    submission: Submission
    outcome: Outcome | None
    way: Callable[[], Step | None]
    told: Callable[[Submission, Outcome | None], None]
    step: Step | None = None


class Ending:
    """See the module."""

    def __init__(
        self,
        shelf: Shelf,
        owner: TaskOwner,
        metrics: Metrics,
        actor: str,
        *,
        max_wait_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._shelf = shelf
        self._owner = owner
        self._actor = actor
        self._max_wait_s = max_wait_s
        self._clock = clock
        self._group: list[End] = []
        self._closing = asyncio.Event()
        self._written = metrics.journal_writes.cell("decide", "done")
        self._stale = metrics.journal_writes.cell("decide", "stale")
        self._failed = metrics.journal_writes.cell("decide", "failed")
        self._log = structlog.get_logger("relay.recorder")

    def end(self, end: End) -> None:
        """Put it into the next group."""
        self._group.append(end._replace(step=end.way()))
        if len(self._group) == 1:
            asyncio.get_running_loop().call_soon(self.flush)

    def close(self) -> None:
        """Insist no longer: tell at once what cannot be written."""
        self._closing.set()

    def flush(self) -> None:
        """Hand the group over, if there is one."""
        if self._group:
            group, self._group = self._group, []
            self._begin("decide", self._write(group), group)

    def _begin(self, name: str, work: Coroutine[Any, Any, None], group: Sequence[End]) -> None:
        """If it does not come to its end, what is not told by then is told all the same."""

        def left(task: asyncio.Task[None]) -> None:
            if task.cancelled() or task.exception() is not None:
                for end in group:
                    _tell_unwritten(end)

        self._owner.spawn(name, work).add_done_callback(left)

    async def _write(self, group: Sequence[End]) -> None:
        try:
            await self._decide(group)
        except FAULTS as fault:
            self._failed.n += len(group)
            self._log.warning("the journal cannot be written, it is tried again", ends=len(group), error=str(fault))
            for end in group:
                self._begin("insist", self._insist(end), [end])

    async def _decide(self, group: Sequence[End]) -> None:
        """Raises as a store does; then nobody was told."""
        moving = [end for end in group if end.step is not None]
        staying = [end for end in group if end.step is None]
        if facts := [fact for end in staying for fact in end.submission.known_row.facts]:
            await self._shelf.journal.note(facts)
        results: Sequence[Record | Refused] = ()
        seen = [end.submission.known_row.record for end in moving]
        if moving:
            results = await self._shelf.journal.decide([self._decision(end) for end in moving])
        for end in staying:
            end.submission.known_row.facts.clear()
            _tell(end, open_=end.submission.known_row.record.state in LIVE)
        for end, before, result in zip(moving, seen, results, strict=True):
            self._decided(end, before, result)

    def _decision(self, end: End) -> Decision:
        submission, step, row = end.submission, end.step, end.submission.known_row
        assert step is not None
        return Decision(
            row.record.id,
            row.record.state,
            row.record.version,
            step.target,
            fence=submission.permit.fence if submission.permit is not None else 0,
            reason=step.reason,
            detail=submission.verdict if step.reason is not None else "",
            actor=self._actor,
            mode=submission.mode if submission.mode is not row.record.mode else None,
            facts=tuple(row.facts),
        )

    def _decided(self, end: End, seen: Record, result: Record | Refused) -> None:
        """What came of a decision that was made on ``seen``; what is known here may be newer by now."""
        row, open_ = end.submission.known_row, True
        row.facts.clear()
        if isinstance(result, Stale) and _moved_in_place(seen, result.record):
            self._again(end, result.record)
            return
        if isinstance(result, Record):
            self._written.n += 1
            row.record, open_ = result, result.state in LIVE
        elif isinstance(result, Missing):
            self._log.error("a record is gone", hash=end.submission.transaction.hash)
        else:
            self._stale.n += 1
            self._log.warning("a decision came late", wanted=end.step, newest=result.record)
            row.record, open_ = result.record, result.record.may_still_land
        _tell(end, open_=open_)

    def _again(self, end: End, newest: Record) -> None:
        """Its reason changed meanwhile, or a client was told yes: what is decided may be something else now."""
        submission = end.submission
        submission.known_row.record = newest
        if newest.mode is Mode.ACCEPTED:
            submission.mode = Mode.ACCEPTED
        self.end(end)

    async def _insist(self, end: End) -> None:
        until = max(self._clock() + INSIST_S, end.submission.arrived + self._max_wait_s)
        for pause in chain(PAUSES_S, repeat(1.0)):
            if self._closing.is_set() or self._clock() + pause >= until:
                break
            closing = self._owner.spawn("closing", self._closing.wait())
            await asyncio.wait([closing], timeout=pause)
            closing.cancel()
            try:
                if not await self._is_written(end):
                    await self._decide([end])
            except FAULTS:
                continue
            return
        _tell_unwritten(end)

    async def _is_written(self, end: End) -> bool:
        """Was it committed although the answer was lost? Then it is told. Takes over what else is on disk."""
        row = end.submission.known_row
        newest = await self._shelf.journal.by_id(row.record.id)
        if newest is None or newest.version == row.record.version:
            return False
        mine = end.step is not None and newest.version == row.record.version + 1 and newest.state is end.step.target
        if mine:
            await self._shelf.journal.note(row.facts)  # it may have been another's all the same
            self._decided(end, row.record, newest)
        return mine


def _moved_in_place(seen: Record, newest: Record) -> bool:
    return newest.state is seen.state and newest.version > seen.version and newest.attempts == seen.attempts


def _tell(end: End, *, open_: bool) -> None:
    """``open_``: it may still land, as far as the record says. What a node has had by then is no refusal."""
    submission, outcome = end.submission, end.outcome
    if not isinstance(outcome, Accepted | None) and submission.known_row.written:
        record = submission.known_row.record
        if record.state in TAKEN:
            outcome = submission.own_hash
        elif record.state in WITHDRAWN:
            outcome = answers.closed(record)
        elif open_:
            outcome = submission.unknown
    end.told(submission, outcome)


def _tell_unwritten(end: End) -> None:
    _tell(end, open_=True)
