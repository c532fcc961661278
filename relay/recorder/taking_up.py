"""Records that take another turn: what a dead process left, and what the sweep sends again.

Job: from a record and its bytes to a ticket in its lane; at the start, that for every record that nobody works on.
Rules: the same bytes by the same method, lane by lane, lowest nonce first. What may have been sent is asked for by its
hash before it is sent again. A record that another living process may have in work is left to the sweep: it is one's
own if one's own name wrote it last, or if it has stood still for longer than a submission may wait. What finds no room
in its lane waits, with all that is above it; no lane waits for another's.
Must not know: how a turn is carried out.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Final

import structlog

from relay.journal.faults import Unavailable, Unusable
from relay.journal.records import LARGEST, START, Cursor
from relay.lifecycle import State, transition
from relay.methods import SUBMISSIONS, Request
from relay.submission import Submission
from relay.tasks import TaskOwner
from relay.transaction import Undecodable, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relay.errors import Refusal
    from relay.journal.records import Payload, Record
    from relay.journal.shelf import Shelf
    from relay.recorder import Recorder

FAULTS: Final = (Unavailable, Unusable)
PAGE: Final = 500
LANES: Final = 64
"""That are taken up at once."""
WINDOW: Final = 32
"""Records of one lane that have tickets at once: what comes fresh needs room, too."""
SKEW_MS: Final = 60_000
"""What is further in the future than this was written by a clock that was set back since."""
AGAIN_S: Final = 0.5
"""Before a lane that has no room is asked again, and a store that is away."""
ORPHANS: Final = frozenset({State.QUEUED, State.SEALED})
"""What only a process that works on it can move. What was sent and not answered is the sweep's."""


class Without(Enum):
    """Why a record gets no ticket."""

    NEED = "need"
    """It cannot be sent by this relay."""
    ROOM = "room"


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
        self._room = asyncio.Semaphore(LANES)
        self._taken = 0
        self._log = structlog.get_logger("relay.recorder")

    def __repr__(self) -> str:
        return f"<taking up {len(self._owner)}>"

    async def take_up(self, record: Record, payload: Payload) -> bool:
        """Have ``record`` take its turn, and wait until its end is on disk. False: it got none for now.

        It has its ticket, or will have none, before this waits.
        """
        ticket = self._ticket(record, payload)
        return ticket is Without.NEED or (isinstance(ticket, Submission) and await _all_turned([ticket]))

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
        cursor = START
        while page := await self._page(cursor, PAGE):
            for lane in dict.fromkeys((one.chain_id, one.sender) for one in page):
                await self._room.acquire()
                self._owner.start("lane", self._lane(Cursor(*lane)))
            cursor = Cursor(page[-1].chain_id, page[-1].sender, LARGEST, LARGEST)
        await self._owner.settled()
        if self._taken:
            self._log.warning("submissions that were not finished were taken up", submissions=self._taken)

    async def close(self) -> None:
        """Stop what still waits."""
        await self._owner.close()

    async def _page(self, after: Cursor, limit: int) -> list[Record]:
        """A store that is away is waited for."""
        while True:
            try:
                return await self._shelf.journal.unfinished(after, limit=limit, states=ORPHANS)
            except FAULTS:
                await asyncio.sleep(AGAIN_S)

    async def _lane(self, cursor: Cursor) -> None:
        """One sender's, a window after the other; the same one again where something in it got no turn."""
        lane = cursor.chain_id, cursor.sender
        try:
            while window := [one for one in await self._page(cursor, WINDOW) if (one.chain_id, one.sender) == lane]:
                if await self._is_through(window):
                    cursor = Cursor.after(window[-1])
                else:
                    await asyncio.sleep(AGAIN_S)
        finally:
            self._room.release()

    async def _is_through(self, window: list[Record]) -> bool:
        """Has all of it that is ours had its turn? Tickets are taken in its order."""
        try:
            work = await self._work(window)
        except FAULTS:
            return False
        tickets, room = [], True
        for record, payload in work:
            ticket = self._ticket(record, payload)
            if ticket is Without.ROOM:
                room = False
                break
            if isinstance(ticket, Submission):
                tickets.append(ticket)
        self._taken += len(tickets)
        return await _all_turned(tickets) and room

    async def _work(self, window: list[Record]) -> list[tuple[Record, Payload]]:
        """What of ``window`` nobody works on, with its bytes."""
        now_ms = (await self._shelf.journal.census()).now_ms
        work = []
        for record in window:
            if not self._recorder.holds(record.id) and await self._is_left(record, now_ms):
                payload = await self._shelf.journal.payload(record.id)
                if payload is not None:
                    work.append((record, payload))
        return work

    async def _is_left(self, record: Record, now_ms: int) -> bool:
        if not -SKEW_MS < now_ms - record.since_ms <= self._old_ms:
            return True
        history = await self._shelf.journal.history(record.id)
        return bool(history) and history[-1].actor == self._recorder.actor

    def _ticket(self, record: Record, payload: Payload) -> Submission | Without:
        """Who takes the turn, or has it already."""
        submission = self._submission(record, payload)
        if submission is None:
            return Without.NEED
        if (same := self._find(submission.key)) is not None:
            return same
        self._recorder.enter_again(submission, record)
        if self._take(submission) is not None:
            self._recorder.let_go(submission)
            return Without.ROOM
        return submission

    def _submission(self, record: Record, payload: Payload) -> Submission | None:
        """As it would be if a client had sent it. None: it cannot be read, and is left to a person."""
        params = payload.params or b'["0x%b"]' % payload.raw.hex().encode()
        try:
            method, signed = SUBMISSIONS[payload.method], decode(payload.raw)
        except (KeyError, Undecodable) as error:
            self._log.error("a recorded transaction cannot be read", submission=record.id, error=repr(error))
            return None
        submission = Submission(Request(method, payload.raw, params, 0.0), signed, self._clock())
        submission.mode = record.mode
        submission.maybe_sent = record.open_attempts > 0
        return submission


async def _all_turned(tickets: Sequence[Submission]) -> bool:
    """Wait until all have ended: has each had its turn?"""
    if tickets:
        await asyncio.wait([ticket.outcome for ticket in tickets])
    return not any(ticket.known_row.unturned for ticket in tickets)
