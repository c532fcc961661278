"""What a dead lane process had at the node is found out before its lanes go on.

Job: write down which turns run (`inflight`), and after a death hold each lane of which something was under way.
Rules: a held lane begins no turn until the node shows the hash, or the same bytes are at their turn again (they go
first, and may have been sent), or ``upstream.timeout_s`` is over (G1); at most half of ``max_wait_s``, so that what
waits behind it still gets its turn (G5). All other lanes pay one look-up in an empty dict.
Must not know: links, tickets' waiters.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import structlog

from relay.lanes import SLEEP, Go
from relay.workers.inflight import Send

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relay.config import Settings
    from relay.lanes import Lane, Step, Ticket
    from relay.submission import Submission
    from relay.tasks import TaskOwner
    from relay.telemetry.metrics import Metrics
    from relay.upstream.accounts import Accounts
    from relay.workers.inflight import InflightTable

LOOKS_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Between looks at the node; the last one repeats."""


class Aftermath:
    """The witness of the turns (`relay.turns.Witness`) of a lane process."""

    def __init__(  # noqa: PLR0913 - the rooms it stands between
        self,
        table: InflightTable,
        *,
        settings: Settings,
        accounts: Accounts,
        metrics: Metrics,
        owner: TaskOwner,
        clock: Callable[[], float],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._table = table
        self._bound_s = min(settings.upstream.timeout_s, settings.ordering.max_wait_s / 2)
        self._accounts = accounts
        self._owner = owner
        self._clock = clock
        self._pause = pause
        self._open: dict[bytes, dict[str, int]] = {}
        """By lane, by hash: the slots of the dead process that are not resolved yet."""
        self._held: dict[bytes, Lane[Any]] = {}
        self._slots: dict[Ticket[Any], int | None] = {}
        self._full = False
        self._ends = {end: metrics.orphans.cell(end) for end in ("found", "repeated", "expired")}
        self._log = structlog.get_logger("relay.workers")
        self.wake: Callable[[Lane[Any]], None] = lambda lane: None

    def __repr__(self) -> str:
        return f"<aftermath: {len(self._open)} lanes unresolved, {len(self._slots)} turns written down>"

    def start(self) -> None:
        """Read what was left behind. Call it when no other process writes any more, and before tickets come."""
        found = self._table.found()
        for slot, send in found:
            self._open.setdefault(send.key, {})[send.hash] = slot
            self._owner.start("aftermath", self._resolve(send))
        if found:
            self._log.warning("the lane process before had submissions at the node", submissions=len(found))

    # What the turns ask.

    def screen(self, lane: Lane[Submission], step: Step[Submission]) -> Step[Submission]:
        """What becomes of the lane's next step."""
        unresolved = self._open.get(lane.key)
        if unresolved is None:
            return step
        if not isinstance(step, Go):
            self._held.pop(lane.key, None)  # one that is empty must not be woken
            return step
        submission = step.ticket.submission
        if submission.transaction.hash not in unresolved:
            self._held[lane.key] = lane
            return SLEEP
        submission.maybe_sent = True
        self._close(lane.key, submission.transaction.hash, "repeated")
        return step

    def begins(self, lane: Lane[Submission], ticket: Ticket[Submission]) -> None:
        """A turn begins."""
        signed = ticket.submission.transaction
        slot = self._slots[ticket] = self._table.begin(Send(lane.key, signed.nonce, signed.hash))
        if slot is None and not self._full:
            self._full = True
            self._log.warning("more turns at once than can be written down", slots=len(self._slots))

    def ends(self, ticket: Ticket[Submission]) -> None:
        """It has ended, and its outcome is known. A turn that was cancelled has not."""
        if (slot := self._slots.pop(ticket)) is not None:
            self._table.end(slot)

    # Finding out.

    async def _resolve(self, send: Send) -> None:
        """Ends with the lane set free, but by cancellation: the slot is then for the next process."""
        try:
            found = await self._appears(send)
        except Exception:
            self._close(send.key, send.hash, "expired")
            raise
        self._close(send.key, send.hash, "found" if found else "expired")

    async def _appears(self, send: Send) -> bool:
        deadline = self._clock() + self._bound_s
        looks = iter(LOOKS_S)
        wait = 0.0
        while send.hash in self._open.get(send.key, ()) and (left := deadline - self._clock()) > 0:
            if await self._accounts.knows(send.hash, left):
                return True
            wait = next(looks, wait)
            await self._pause(min(wait, max(0.0, deadline - self._clock())))
        return False

    def _close(self, key: bytes, hash_: str, end: str) -> None:
        unresolved = self._open.get(key, {})
        slot = unresolved.pop(hash_, None)
        if slot is None:
            return
        self._table.end(slot)
        self._ends[end].n += 1
        if not unresolved:
            del self._open[key]
            if (lane := self._held.pop(key, None)) is not None:
                self.wake(lane)
