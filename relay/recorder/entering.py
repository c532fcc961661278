"""Submissions on their way into the journal.

Job: write intakes down in groups, one call for what comes in one turn of the loop; find out what each means where its
bytes or its key were there before.
Rules: whatever happens, each submission that came is *ready* in the end, with a record, or with an outcome of its own.
Must not know: lanes, turns.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from relay.journal.faults import Unavailable, Unusable
from relay.journal.idempotency import Repeat, judge
from relay.journal.records import Decision, Forbidden, Intake, Missing, Record, Stale
from relay.journal.row import Row
from relay.lifecycle import OPEN, Mode, Reason, State
from relay.recorder import answers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relay.journal.records import Admission
    from relay.journal.shelf import Shelf
    from relay.submission import Outcome, Submission
    from relay.tasks import TaskOwner
    from relay.telemetry.metrics import Metrics

FAULTS: Final = (Unavailable, Unusable)
LEFT: Final = Unavailable("the relay ended while it was being written", maybe=True)


TRIES: Final = 3
"""To promise what others move meanwhile."""


class Entering:
    """See the module. ``known`` hears of each that has a record. ``dedupe_ms``: how long a key may be used again."""

    def __init__(
        self,
        shelf: Shelf,
        owner: TaskOwner,
        metrics: Metrics,
        actor: str,
        known: Callable[[Submission], None],
        *,
        dedupe_ms: int,
    ) -> None:
        self._dedupe_ms = dedupe_ms
        self._shelf = shelf
        self._owner = owner
        self._actor = actor
        self._known = known
        self._group: list[tuple[Submission, int]] = []
        self._written = metrics.journal_writes.cell("admit", "done")
        self._failed = metrics.journal_writes.cell("admit", "failed")
        self._log = structlog.get_logger("relay.recorder")

    def enter(self, submission: Submission, chain_id: int) -> None:
        """Put it into the next group. From here on it has a row."""
        loop = asyncio.get_running_loop()
        submission.row = Row(None, loop.create_future())
        self._group.append((submission, chain_id))
        if len(self._group) == 1:
            loop.call_soon(self.flush)

    async def bind(self, copy: Submission, chain_id: int) -> Outcome | None:
        """Bind the key of a client that came later to a record that is there. How that ends; None: it may be used."""
        try:
            [admission] = await self._shelf.journal.admit([self._intake(copy, chain_id)])
        except FAULTS:
            return copy.unknown  # the others' way goes on
        repeat = judge(admission, self._dedupe_ms)
        match repeat:
            case Repeat.CONFLICT_BYTES | Repeat.CONFLICT_OLD:
                return answers.conflict(repeat, admission.record)
            case Repeat.REFUSE:
                return answers.closed(admission.record)
            case _:
                return None

    def flush(self) -> None:
        """Hand the group over, if there is one."""
        if not self._group:
            return
        group, self._group = self._group, []
        admitting = self._owner.spawn("admit", self._admit(group))
        # Not in the task: one that is cancelled before it began runs nothing of its own.
        admitting.add_done_callback(lambda _: self._all_ready([submission for submission, _ in group]))

    async def _admit(self, group: Sequence[tuple[Submission, int]]) -> None:
        submissions = [submission for submission, _ in group]
        try:
            admissions = await self._shelf.journal.admit([self._intake(*one) for one in group])
        except FAULTS as fault:
            self._failed.n += len(group)
            self._log.warning("the journal cannot be written, submissions are refused", error=str(fault))
            self._fail(submissions, fault)
            return
        self._written.n += len(group)
        await self._judge_all(submissions, admissions)

    def _intake(self, submission: Submission, chain_id: int) -> Intake:
        signed, request = submission.transaction, submission.request
        return Intake(
            chain_id=chain_id,
            sender=signed.sender_bytes,
            nonce=signed.nonce,
            hash=bytes.fromhex(signed.hash[2:]),
            raw=request.raw,
            method=request.method.wire,
            params=b"" if request.method.by_bytes else request.wire_params,
            mode=_mode(submission),
            key=submission.idempotency_key,
            actor=self._actor,
        )

    async def _judge_all(self, submissions: Sequence[Submission], admissions: Sequence[Admission]) -> None:
        failed = []
        for submission, admission in zip(submissions, admissions, strict=True):
            _row(submission).record = admission.record
            repeat = judge(admission, self._dedupe_ms)
            if repeat is Repeat.AGAIN:
                failed.append(submission)
            elif repeat is not Repeat.ENTER:
                self._repeated(submission, admission.record, repeat)
        if failed:
            await self.anew(failed)
        await self._promised([submission for submission in submissions if _lacks_promise(submission)])

    async def _promised(self, submissions: Sequence[Submission]) -> None:
        """The record was there before, and nobody was told yes: now somebody will be."""
        await self.promise(submissions)
        for submission in filter(_lacks_promise, submissions):
            row = _row(submission)
            if row.record.releases_key:
                await self.anew([submission])
            else:
                open_ = row.record.state in OPEN
                row.early = submission.unknown if open_ else answers.ended(submission, row.record)

    async def promise(self, submissions: Sequence[Submission]) -> None:
        """Have the records say that a client is told yes. Those that ended, or cannot be written, do not."""
        for _ in range(TRIES):
            left = [one for one in submissions if _lacks_promise(one) and _row(one).record.state in OPEN]
            if not left:
                return
            try:
                results = await self._shelf.journal.decide([self._promise(submission) for submission in left])
            except FAULTS:
                return
            for submission, result in zip(left, results, strict=True):
                if not isinstance(result, Missing):
                    _row(submission).record = result if isinstance(result, Record) else result.record

    def _promise(self, submission: Submission) -> Decision:
        record = _row(submission).record
        return Decision(
            record.id,
            record.state,
            record.version,
            record.state,
            reason=record.reason,
            detail=record.detail,
            actor=self._actor,
            mode=Mode.ACCEPTED,
        )

    def _repeated(self, submission: Submission, record: Record, repeat: Repeat) -> None:
        """What a node once had is read back, but where there is doubt that it still has it: then it is looked for."""
        match repeat:
            case Repeat.CONFLICT_BYTES | Repeat.CONFLICT_OLD:
                _row(submission).early = answers.conflict(repeat, record)
            case Repeat.REFUSE:
                _row(submission).early = answers.closed(record)
            case Repeat.READ_BACK if record.state is not State.PENDING or record.reason is None:
                _row(submission).early = submission.own_hash
            case _:
                submission.maybe_sent |= record.open_attempts > 0
                if record.mode is Mode.ACCEPTED:
                    submission.mode = Mode.ACCEPTED  # somebody was told yes, whatever is told to this one

    async def anew(self, failed: Sequence[Submission]) -> None:
        """They failed and their clients know: the same bytes are a new attempt of the same row."""
        try:
            results = await self._shelf.journal.decide([self._retry(submission) for submission in failed])
        except FAULTS as fault:  # theirs alone: what else came in the group is on disk, and goes its way
            self._fail(failed, fault)
            return
        for submission, result in zip(failed, results, strict=True):
            if isinstance(result, Record):
                _row(submission).record = result
            elif isinstance(result, Stale | Forbidden):  # somebody else sends it again at this moment
                _row(submission).record = result.record
                submission.maybe_sent = True
            else:
                _row(submission).early = submission.unknown

    def _retry(self, submission: Submission) -> Decision:
        record = _row(submission).record
        return Decision(
            record.id,
            record.state,
            record.version,
            State.QUEUED,
            reason=Reason.RETRIED,
            actor=self._actor,
            mode=_mode(submission),
        )

    def _fail(self, submissions: Sequence[Submission], fault: Exception) -> None:
        for submission in submissions:
            _row(submission).early = answers.unwritten(submission, fault)

    def _all_ready(self, submissions: Sequence[Submission]) -> None:
        for submission in submissions:
            self._ready(submission)

    def _ready(self, submission: Submission) -> None:
        row = _row(submission)
        if row.early is None and not row.written:
            self._fail((submission,), LEFT)
        if row.early is None:
            self._known(submission)
        if submission.admitted is not None and not submission.admitted.done():
            submission.admitted.set_result(row.early or submission.own_hash)
        row.ready.set_result(None)


def _row(submission: Submission) -> Row[Outcome]:
    assert submission.row is not None
    return submission.row


def _lacks_promise(submission: Submission) -> bool:
    row = _row(submission)
    return row.early is None and row.written and _mode(submission) is Mode.ACCEPTED is not row.record.mode


def _mode(submission: Submission) -> Mode:
    """What the record begins with. A client whose wait is bounded may be told yes at any time: if the process died
    then, nobody could write that down, so it counts until the verdict is told."""
    return Mode.ACCEPTED if submission.bounded else submission.mode
