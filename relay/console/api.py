"""What each route of the operator's API does.

Job: read the journal, decide in it, and ask the lanes' process to make it come true at once.
Rules: what is decided is in the journal before it is answered, with the actor and the reason in the history. The
judge's word (`actions`) is given on the newest version; the store's guards have the last one. Who decided on what
another changed meanwhile looks again, unless he said which version he saw.
Must not know: HTTP's messages, how a store keeps it, who has the lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from relay import views
from relay.console import views as own
from relay.console.actions import Action, judge
from relay.console.openapi import document
from relay.console.problems import Problem
from relay.console.reading import ACTOR, ADDRESS, AFTER, BEFORE, CHAIN, LIMIT, PAUSED, STATE, TRANSACTION
from relay.console.replacement import replacement
from relay.journal.records import START, Decision, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.console.actions import Move
    from relay.console.hand import Hand
    from relay.console.reading import Asked
    from relay.journal import Journal
    from relay.journal.records import Lane
    from relay.journal.shelf import Shelf

LOOKS: Final = 5
"""Tries to decide on what others change meanwhile."""
LANE_ROWS: Final = 100


class Answer(NamedTuple):
    """A JSON value, and the version of what it shows, if it has one."""

    body: Any
    version: int | None = None


class Api:
    """A method for each route, by its name. They raise what the journal raises. ``chain`` tells the node's chain id."""

    def __init__(self, shelf: Shelf, hand: Hand, chain: Callable[[], int | None]) -> None:
        self._shelf = shelf
        self._hand = hand
        self._chain = chain
        self._log = structlog.get_logger("relay.console")

    def __repr__(self) -> str:
        return f"<operator's api on {self._shelf!r}>"

    @property
    def _journal(self) -> Journal:
        return self._shelf.journal

    # Looking.

    async def transactions(self, asked: Asked) -> Answer:
        """The rows of one state."""
        rows = await self._journal.listing(asked[STATE], before=asked[BEFORE], limit=asked[LIMIT])
        last = rows[-1] if len(rows) == asked[LIMIT] else None
        following = None if last is None else f"{last.since_ms}-{last.id}"
        return Answer({"transactions": [views.operator_row(row) for row in rows], "next": following})

    async def transaction(self, asked: Asked) -> Answer | Problem:
        """One of them, in full."""
        journal, record = self._journal, await self._record(asked)
        if isinstance(record, Problem):
            return record
        attempts, receipts = await journal.attempts(record.id), await journal.receipts(record.id)
        shown = views.operator(record, attempts, receipts, await journal.history(record.id))
        return Answer(shown | {"idempotencyKeys": own.keys(await journal.keys(record.id))}, record.version)

    async def lanes(self, asked: Asked) -> Answer:
        """Those with something live, in pages, and with the first page those that are paused: so many of each."""
        paused = await self._journal.paused()
        listed = [] if asked[AFTER] else [views.lane(lane) for lane in paused[: asked[LIMIT]]]
        if asked[PAUSED]:
            return Answer({"lanes": [], "paused": listed, "next": None})
        rows = await self._journal.outstanding(asked[AFTER] or START, limit=asked[LIMIT])
        held = {(lane.chain_id, lane.sender) for lane in paused}
        last = rows[-1] if len(rows) == asked[LIMIT] else None
        following = None if last is None else f"{last.chain_id}-{views.data(last.sender)}"
        shown = [own.waiting_lane(row, paused=(row.chain_id, row.sender) in held) for row in rows]
        return Answer({"lanes": shown, "paused": listed, "next": following})

    async def lane(self, asked: Asked) -> Answer | Problem:
        """One of them, in full. A lane that was never used is an empty one."""
        chain = self._chain_of(asked)
        if isinstance(chain, Problem):
            return chain
        setting, rows = await self._journal.lane(chain, asked[ADDRESS], limit=LANE_ROWS + 1)
        history = await self._journal.lane_history(chain, asked[ADDRESS])
        shown = own.lane(setting, rows[:LANE_ROWS], history, more=len(rows) > LANE_ROWS)
        return Answer(shown, setting.version)

    async def census(self, _asked: Asked) -> Answer:
        """Counts."""
        return Answer(own.census(await self._journal.census()))

    async def openapi(self, _asked: Asked) -> Answer:
        """The document of all this."""
        return Answer(document())

    # Steering submissions.

    async def retry(self, asked: Asked) -> Answer | Problem:
        """Queue it again, with a fresh budget."""
        return await self._act(Action.RETRY, asked, attested=asked.body.attest)

    async def resend(self, asked: Asked) -> Answer | Problem:
        """Send its bytes once more."""
        return await self._act(Action.RESEND, asked)

    async def fail(self, asked: Asked) -> Answer | Problem:
        """End it."""
        return await self._act(Action.FAIL, asked)

    async def cancel(self, asked: Asked) -> Answer | Problem:
        """Withdraw it."""
        return await self._act(Action.CANCEL, asked)

    async def _act(self, action: Action, asked: Asked, *, attested: bool = False) -> Answer | Problem:
        for _ in range(LOOKS):
            record = await self._record(asked)
            if isinstance(record, Problem):
                return record
            if not asked.saw(record.version):
                return _changed(record.version)
            move = judge(action, record, attested=attested)
            if isinstance(move, Problem):
                return await self._explained(move, record)
            done = await self._decide(record, move, asked, attested=attested)
            if isinstance(done, Record):
                self._did(action, asked, submission=done.id)
                if move.sends:
                    self._hand.resend(done.id)
                return Answer(views.operator_row(done), done.version)
        return _contested()

    async def _decide(self, record: Record, move: Move, asked: Asked, *, attested: bool) -> Record | None:
        """None: somebody changed it meanwhile, or a fact came that speaks against it."""
        decision = Decision(
            record.id,
            record.state,
            record.version,
            move.target,
            reason=move.reason,
            detail=asked.body.reason,
            actor=asked[ACTOR],
            attested=attested,
        )
        done = (await self._journal.decide([decision]))[0]
        return done if isinstance(done, Record) else None

    async def _explained(self, problem: Problem, record: Record) -> Problem:
        """Who cannot cancel is told what replaces it."""
        if problem.name != "was_sent" or not record.may_still_land:
            return problem
        payload = await self._journal.payload(record.id)
        signs = None if payload is None else replacement(record, payload.raw)
        if signs is None:
            return problem
        return Problem(problem.name, problem.detail, problem.ways, {"replacement": signs})

    async def _record(self, asked: Asked) -> Record | Problem:
        which = asked[TRANSACTION]
        found = await (self._journal.by_id(which) if isinstance(which, int) else self._journal.by_hash(None, which))
        if found is None:
            return Problem(
                "not_found", "no such submission is recorded here; it may have been pruned ([journal] retention_d)"
            )
        return found

    # Steering lanes.

    async def pause(self, asked: Asked) -> Answer | Problem:
        """Let it begin no turn."""
        return await self._set_paused(asked, paused=True)

    async def resume(self, asked: Asked) -> Answer | Problem:
        """Let it go on."""
        return await self._set_paused(asked, paused=False)

    async def _set_paused(self, asked: Asked, *, paused: bool) -> Answer | Problem:
        chain = self._chain_of(asked)
        if isinstance(chain, Problem):
            return chain
        sender = asked[ADDRESS]
        for _ in range(LOOKS):
            before, _rows = await self._journal.lane(chain, sender, limit=1)
            if not asked.saw(before.version):
                return _changed(before.version)
            lane = await self._journal.set_paused(
                chain, sender, paused=paused, version=before.version, detail=asked.body.reason, actor=asked[ACTOR]
            )
            if lane is not None:
                return self._set(lane, asked)
        return _contested()

    def _set(self, lane: Lane, asked: Asked) -> Answer:
        self._did("pause" if lane.paused else "resume", asked, sender=views.data(lane.sender), chain_id=lane.chain_id)
        self._hand.lanes_changed()
        return Answer(views.lane(lane), lane.version)

    async def sweep(self, asked: Asked) -> Answer:
        """It has no history of its own: the log has who and why."""
        self._did("sweep", asked)
        self._hand.sweep()
        return Answer({"asked": "sweep"})

    def _chain_of(self, asked: Asked) -> int | Problem:
        chain: int | None = self._chain() if asked[CHAIN] is None else asked[CHAIN]
        if chain is None:
            return Problem("chain_unknown", "the node has not said yet which chain it is on", ("give it: ?chain=ID",))
        return chain

    def _did(self, action: str, asked: Asked, **what: Any) -> None:
        self._log.info("an operator decided", action=str(action), actor=asked[ACTOR], reason=asked.body.reason, **what)


def _changed(version: int) -> Problem:
    return Problem("changed", f"its version is {version} now; look at it again, then decide", more={"version": version})


def _contested() -> Problem:
    return Problem("contested", f"it changed {LOOKS} times while this was decided", ("look at it, and ask again",))
