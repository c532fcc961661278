"""Between the path and the journal: everything is on disk before it leaves, and before a client hears of it.

    enter     synchronous: the intake goes into the next group, beside the lane; `entered` waits for it at the turn
    seal      at the turn, right before the bytes leave: the intent, under the lease's fence
    again     before each further send within a turn
    end       what became of it; whoever waits is told when it is on disk
    back      the turn came to nothing

Rules: nothing is sent unrecorded. A lane does not wait for the end of its turn to be written (G3), a client does; the
next turn of the same submission does, too. What is recorded for one submission is recorded in the order in which it was
told here.
Must not know: lanes, how a store writes.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Final

from relay.journal.faults import Unavailable, Unusable
from relay.journal.records import Record, Seal, Sealed, Stale, Taken
from relay.journal.row import Row
from relay.lifecycle import Mode, Reason, State, transition
from relay.recorder import answers, facts, steps
from relay.recorder.ending import End, Ending
from relay.recorder.entering import Entering
from relay.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relay.journal.records import Refused
    from relay.journal.shelf import Shelf
    from relay.lifecycle import Step
    from relay.proof import NodeFacts
    from relay.recorder.steps import How
    from relay.submission import Outcome, Submission
    from relay.telemetry.metrics import Metrics
    from relay.upstream.client import Attempt

SEALS: Final = 3
"""Tries to seal what others move meanwhile."""
HOUR_MS: Final = 3_600_000
CLOSE_S: Final = 0.5
"""For what is still to be written when the process ends: less than its clients are still given to hear of it."""


class Hint(Enum):
    """What `Recorder.seal` says of one that has not ended."""

    GO = "go"
    """The intent is on disk: send it."""
    LOOK = "look"
    """Another process may have sent it meanwhile: ask for it first."""
    BACK = "back"
    """The lane is another instance's by now."""


class Recorder:
    """For one process that has lanes. ``actor`` is its name in the histories, ``node`` the upstream's."""

    def __init__(  # noqa: PLR0913 - the rooms it stands between
        self,
        shelf: Shelf,
        *,
        node_facts: NodeFacts,
        metrics: Metrics,
        report: Callable[[str, BaseException], None],
        clock: Callable[[], float],
        max_wait_s: float,
        dedupe_h: int,
        node: str,
        actor: str,
    ) -> None:
        self._shelf = shelf
        self._node_facts = node_facts
        self._node = node
        self.actor = actor
        self._held: dict[int, set[Submission]] = {}
        self.owner = TaskOwner("recorder", report)
        self._entering = Entering(shelf, self.owner, metrics, actor, self._hold, dedupe_ms=dedupe_h * HOUR_MS)
        self._ending = Ending(shelf, self.owner, metrics, actor, max_wait_s=max_wait_s, clock=clock)
        self._sealed = {end: metrics.journal_writes.cell("seal", end) for end in ("done", "stale", "failed")}

    def __repr__(self) -> str:
        return f"<recorder {self.actor}: {len(self._held)} in flight>"

    def holds(self, submission: int) -> bool:
        """Is this record in flight here?"""
        return submission in self._held

    def _hold(self, submission: Submission) -> None:
        self._held.setdefault(submission.known_row.record.id, set()).add(submission)

    def _let_go(self, submission: Submission) -> None:
        """Several may have one record: the same bytes by another method."""
        id_ = submission.known_row.record.id
        if held := self._held.get(id_):
            held.discard(submission)
            if not held:
                del self._held[id_]

    # In. Synchronous: no await may come between a ticket and its record's place in the group.

    def enter(self, submission: Submission, chain_id: int) -> None:
        """Have it written down."""
        self._entering.enter(submission, chain_id)

    def enter_again(self, submission: Submission, record: Record) -> None:
        """It is written down already; it only takes a turn."""
        ready = asyncio.get_running_loop().create_future()
        ready.set_result(None)
        submission.row = Row(record, ready)
        submission.row.resumed = True
        submission.admitted = asyncio.get_running_loop().create_future()
        submission.admitted.set_result(submission.own_hash)
        self._hold(submission)

    async def entered(self, submission: Submission) -> Outcome | None:
        """Wait until all that was asked for it is on disk. How it ends without a turn; None if it takes one."""
        row = submission.known_row
        while not row.ready.done():
            await asyncio.wait([row.ready])
        return row.early

    async def bind(self, copy: Submission, original: Submission) -> Outcome | None:
        """Bind the key of ``copy`` to the record of ``original``, which has entered.

        How that ends for its client; None: it waits for the same outcome.
        """
        row = original.known_row
        if not row.written:
            return row.early
        return await self._entering.bind(copy, row.record.chain_id) if copy.idempotency_key else None

    def promise(self, submission: Submission) -> asyncio.Future[bool] | None:
        """Have the record say that a client is told yes before the verdict. None: it says so already.

        True once that is on disk; False if it cannot be: then its client waits for the outcome.
        """
        row = submission.known_row
        if row.written and row.record.mode is Mode.ACCEPTED:
            return None
        kept: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def over(task: asyncio.Task[None]) -> None:
            done = not task.cancelled() and task.exception() is None and row.written
            kept.set_result(done and row.record.mode is Mode.ACCEPTED)

        self.owner.spawn("promise", self._entering.promise([submission])).add_done_callback(over)
        return kept

    # At its turn.

    async def seal(self, submissions: Sequence[Submission]) -> list[Hint | Outcome]:
        """Put the intents on disk, in one call. What is an outcome ends without being sent."""
        hints: dict[Submission, Hint | Outcome] = {}
        for _ in range(SEALS):
            open_ = [submission for submission in submissions if submission not in hints]
            if not open_:
                break
            await self._seal(open_, hints)
        return [hints.get(submission, Hint.BACK) for submission in submissions]

    async def _seal(self, submissions: Sequence[Submission], hints: dict[Submission, Hint | Outcome]) -> None:
        try:
            results = await self._shelf.journal.seal([self._intent(submission) for submission in submissions])
        except (Unavailable, Unusable) as fault:
            self._sealed["failed"].n += len(submissions)
            hints |= {submission: answers.unsealed(fault) for submission in submissions}
            return
        failed: list[Submission] = []
        for submission, result in zip(submissions, results, strict=True):
            if isinstance(result, Sealed):
                self._sealed["done"].n += 1
                submission.known_row.sealed(result)
                hints[submission] = Hint.GO
            else:
                self._sealed["stale"].n += 1
                self._unsealed(submission, result, hints, failed)
        if failed:
            await self._entering.anew(failed)

    def _intent(self, submission: Submission) -> Seal:
        record, permit = submission.known_row.record, submission.permit
        fence = permit.fence if permit is not None else 0
        return Seal(record.id, record.state, record.version, self._node, fence=fence, actor=self.actor)

    def _unsealed(
        self,
        submission: Submission,
        refused: Refused,
        hints: dict[Submission, Hint | Outcome],
        failed: list[Submission],
    ) -> None:
        """Somebody else has moved it: an operator, the sweep, another instance."""
        if not isinstance(refused, Stale):
            hints[submission] = submission.unknown
            return
        row, newest, permit = submission.known_row, refused.record, submission.permit
        row.record = newest
        if newest.releases_key and newest.reason is not Reason.BY_OPERATOR:
            failed.append(submission)  # elsewhere, and its client knows: here the same bytes are a new attempt
        elif transition(newest.state, State.SEALED) is None:
            hints[submission] = answers.ended(submission, newest)
        elif permit is not None and 0 < permit.fence < newest.fence:
            hints[submission] = Hint.BACK
        elif newest.open_attempts and not submission.maybe_sent:
            submission.maybe_sent = True
            hints[submission] = Hint.LOOK

    async def again(self, submission: Submission) -> bool:
        """Put one more send on disk. False: it cannot be, so the bytes must not leave."""
        row, permit = submission.known_row, submission.permit
        fence = permit.fence if permit is not None else 0
        try:
            attempt = await self._shelf.journal.attempt(row.record.id, self._node, fence=fence, actor=self.actor)
        except (Unavailable, Unusable):
            self._sealed["failed"].n += 1
            return False
        if attempt is None:
            return False
        row.again(attempt)
        return True

    def answered(self, submission: Submission, attempt: Attempt) -> None:
        """What came of the last send. It is written with the end of the turn."""
        submission.known_row.answered(*facts.read(submission, attempt, self._node_facts.client))

    # Out.

    def end(
        self, submission: Submission, outcome: Outcome, how: How, tell: Callable[[Submission, Outcome], None]
    ) -> None:
        """Write down what became of it, then tell it."""
        if submission.known_row.ready.done():
            self._end(submission, outcome, how, tell)
            return

        def left(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                tell(submission, submission.unknown)

        self.owner.spawn("end", self._end_when_ready(submission, outcome, how, tell)).add_done_callback(left)

    async def _end_when_ready(
        self, submission: Submission, outcome: Outcome, how: How, tell: Callable[[Submission, Outcome], None]
    ) -> None:
        await self.entered(submission)
        self._end(submission, outcome, how, tell)

    def _end(
        self, submission: Submission, outcome: Outcome, how: How, tell: Callable[[Submission, Outcome], None]
    ) -> None:
        row = submission.known_row
        if row.early is not None:
            tell(submission, row.early)
            return
        if how in facts.LOOKED_UP:
            row.not_taken(how)
        row.unturned = how is Reason.TURNED_AWAY

        def way() -> Step | None:
            return steps.after(row.record, how, submission.mode, uncertain=row.uncertain, resumed=row.resumed)

        def told(submission: Submission, outcome: Outcome | None) -> None:
            self._let_go(submission)
            if outcome is not None:
                tell(submission, outcome)

        self._ending.end(End(submission, outcome, way, told))

    def back(self, submission: Submission) -> None:
        """It waits again. What left of it, or did not, is written beside; its next turn waits for that."""
        row = submission.known_row
        row.answered(Taken.NO, "not_sent", "its turn came to nothing")

        def way() -> Step | None:
            return steps.back(row.record, uncertain=row.open_attempts > 0)

        if way() is None and not row.facts:
            return
        row.ready = ready = asyncio.get_running_loop().create_future()
        self._ending.end(End(submission, None, way, lambda *_: ready.set_result(None)))

    def let_go(self, submission: Submission) -> None:
        """Another process carries it out."""
        if (row := submission.row) is not None and row.written:
            self._let_go(submission)

    async def settled(self) -> None:
        """Wait until all is written and told."""
        await self.owner.settled()

    async def close(self) -> None:
        """Write what can be written soon, tell the rest. Idempotent; what ends later is told as it comes."""
        self._entering.flush()
        self._ending.flush()
        self._ending.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.owner.settled()
        except TimeoutError:
            pass
        await self.owner.close()
