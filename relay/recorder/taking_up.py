"""Records that take another turn: what a dead process left, and what the sweep sends again.

Job: from a record and its bytes to a ticket in its lane; at the start, that for every record that nobody works on.
Rules: the same bytes by the same method, lane by lane, lowest nonce first. What may have been sent is asked for by its
hash before it is sent again. A record that another living process may have in work is left to the sweep: it is one's
own if one's own name wrote it last, or if it has stood still for longer than a submission may wait.
Must not know: how a turn is carried out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from relay.journal.faults import Unavailable, Unusable
from relay.journal.records import START, Cursor
from relay.lifecycle import State, transition
from relay.methods import SUBMISSIONS, Request
from relay.submission import Submission
from relay.tasks import TaskOwner
from relay.transaction import Undecodable, decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.errors import Refusal
    from relay.journal.records import Payload, Record
    from relay.journal.shelf import Shelf
    from relay.recorder import Recorder

PAGE: Final = 500
AT_ONCE: Final = 256
"""Records that take their turn at once, of all senders: what comes fresh needs room, too."""
AGAIN_S: Final = 0.5
"""Before a lane that has no room is asked again, and a store that is away."""
ORPHANS: Final = frozenset({State.QUEUED, State.SEALED})
"""What only a process that works on it can move. What was sent and not answered is the sweep's."""


class TakingUp:
    """See the module. ``take`` and ``find`` are the desk's (`relay.submit`)."""

    def __init__(  # noqa: PLR0913 - the rooms it stands between
        self,
        shelf: Shelf,
        recorder: Recorder,
        *,
        take: Callable[[Submission], Refusal | None],
        find: Callable[[tuple[str, bytes]], Submission | None],
        max_wait_s: float,
        report: Callable[[str, BaseException], None],
        clock: Callable[[], float],
    ) -> None:
        self._shelf = shelf
        self._recorder = recorder
        self._take = take
        self._find = find
        self._old_ms = int(max_wait_s * 1000)
        self._clock = clock
        self._owner = TaskOwner("take up", report)
        self._room = asyncio.Semaphore(AT_ONCE)
        self._log = structlog.get_logger("relay.recorder")

    def __repr__(self) -> str:
        return f"<taking up {len(self._owner)}>"

    async def take_up(self, record: Record, payload: Payload) -> bool:
        """Have ``record`` take its turn, and wait until its end is on disk. False: there is no room for it now."""
        submission = self._submission(record, payload)
        if submission is None:
            return True
        if (same := self._find(submission.key)) is None:
            self._recorder.enter_again(submission, record)
            if self._take(submission) is not None:
                self._recorder.let_go(submission)
                return False
            same = submission
        await asyncio.wait([same.outcome])
        return True

    def again(self, submission: int) -> None:
        """A person wants one more send of it; returns at once. What is in work here is on its way already."""
        if not self._recorder.holds(submission):
            self._owner.start("again", self._again(submission))

    async def _again(self, submission: int) -> None:
        try:
            record = await self._shelf.journal.by_id(submission)
            payload = await self._shelf.journal.payload(submission)
        except (Unavailable, Unusable) as fault:
            self._log.warning("cannot be sent again, the sweep will see to it", submission=submission, error=str(fault))
            return
        if record is None or payload is None or transition(record.state, State.SEALED) is None:
            return
        if not self._recorder.holds(submission) and not await self.take_up(record, payload):
            self._log.warning("its lane has no room now, the sweep will see to it", submission=submission)

    async def orphans(self) -> None:
        """Take up what was left. Ends when all of it has had its turn."""
        await self._shelf.opened.wait()
        cursor, taken = START, 0
        while True:
            try:
                page = await self._shelf.journal.unfinished(cursor, limit=PAGE, states=ORPHANS)
                mine = await self._mine(page)
            except (Unavailable, Unusable):
                await asyncio.sleep(AGAIN_S)
                continue
            for record in mine:
                await self._room.acquire()
                self._owner.start("orphan", self._orphan(record))
            taken += len(mine)
            if len(page) < PAGE:
                break
            cursor = Cursor.after(page[-1])
        if taken:
            self._log.warning("submissions that were not finished are taken up", submissions=taken)
        await self._owner.settled()

    async def close(self) -> None:
        """Stop what still waits."""
        await self._owner.close()

    async def _mine(self, page: list[Record]) -> list[Record]:
        if not page:
            return []
        now_ms = (await self._shelf.journal.census()).now_ms
        return [one for one in page if not self._recorder.holds(one.id) and await self._is_left(one, now_ms)]

    async def _is_left(self, record: Record, now_ms: int) -> bool:
        if now_ms - record.since_ms > self._old_ms:
            return True
        history = await self._shelf.journal.history(record.id)
        return bool(history) and history[-1].actor == self._recorder.actor

    async def _orphan(self, record: Record) -> None:
        try:
            while True:
                if await self._taken(record):
                    return
                await asyncio.sleep(AGAIN_S)
        finally:
            self._room.release()

    async def _taken(self, record: Record) -> bool:
        """Has it had its turn, here or elsewhere?"""
        try:
            newest = await self._shelf.journal.by_id(record.id)
            if newest is None or newest.state not in ORPHANS or self._recorder.holds(newest.id):
                return True
            payload = await self._shelf.journal.payload(record.id)
        except (Unavailable, Unusable):
            return False
        return payload is None or await self.take_up(newest, payload)

    def _submission(self, record: Record, payload: Payload) -> Submission | None:
        """As it would be if a client had sent it. None: it cannot be read, and is left to a person."""
        method = SUBMISSIONS[payload.method]
        params = payload.params or b'["0x%b"]' % payload.raw.hex().encode()
        try:
            signed = decode(payload.raw)
        except Undecodable as error:
            self._log.error("a recorded transaction cannot be read", submission=record.id, error=str(error))
            return None
        submission = Submission(Request(method, payload.raw, params, 0.0), signed, self._clock())
        submission.mode = record.mode
        submission.maybe_sent = record.attempts > 0
        return submission
