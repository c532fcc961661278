"""What a dead lane process had at the node is found out before its lanes go on.

Job: write down which turns run (`inflight`), and after a death hold each lane of which something was under way.
Rules
- A held lane begins no turn until the node has shown all that was under way: it may have been a run, whose calls go on
  at the node one after the other. The time for it is ``upstream.timeout_s`` (G1), at most half of ``max_wait_s``, so
  that what waits behind it still gets its turn (G5).
- The last one that is missing goes at once if the same bytes are at their turn again: that is no second transaction.
- When nothing more has shown for `QUIET_S`, what the node has dropped need not be waited for: the same bytes go again,
  and what is lower than all that is missing goes before them.
- What is missing may fill a gap: until then none above it is judged, and none at all before everybody has handed in
  what fills it (`muster`).
All other lanes pay a few look-ups in empty dicts.
Must not know: links, tickets' waiters.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
    from relay.workers.muster import Muster

LOOKS_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Between looks at the node, for as long as they are in vain; the last one repeats."""
QUIET_S: Final = 2.0
"""A node that goes on with a run shows its next transaction within this."""


class _Missing(NamedTuple):
    slot: int
    nonce: int


class _Orphans:
    """Of one lane: what the node has not shown yet, by hash."""

    __slots__ = ("held", "missing", "quiet_from")

    def __init__(self) -> None:
        self.missing: dict[str, _Missing] = {}
        self.held: Lane[Any] | None = None
        """To be woken when something is found out."""
        self.quiet_from = math.inf
        """Nothing more is expected of the node by itself, if it shows nothing before."""

    @property
    def lowest(self) -> int:
        return min(one.nonce for one in self.missing.values())


class Aftermath:
    """The witness of the turns (`relay.turns.Witness`) of a lane process."""

    def __init__(  # noqa: PLR0913 - the rooms it stands between
        self,
        table: InflightTable,
        muster: Muster,
        *,
        settings: Settings,
        accounts: Accounts,
        metrics: Metrics,
        owner: TaskOwner,
        clock: Callable[[], float],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._table = table
        self._muster = muster
        self._bound_s = min(settings.upstream.timeout_s, settings.ordering.max_wait_s / 2)
        self._accounts = accounts
        self._owner = owner
        self._clock = clock
        self._pause = pause
        self._open: dict[bytes, _Orphans] = {}
        """By lane: what is not resolved yet."""
        self._resolved: dict[bytes, float] = {}
        """By lane: since when nothing is missing any more. A count from before may not show it."""
        self._slots: dict[Ticket[Any], int | None] = {}
        self._full = False
        self._ends = {end: metrics.orphans.cell(end) for end in ("found", "repeated", "expired")}
        self._log = structlog.get_logger("relay.workers")
        self.wake: Callable[[Lane[Any]], None] = lambda lane: None

    def __repr__(self) -> str:
        return f"<aftermath: {len(self._open)} lanes unresolved, {len(self._slots)} turns written down>"

    @property
    def holds(self) -> bool:
        """Does a ticket wait for what is found out here?"""
        return any(orphans.held is not None for orphans in self._open.values())

    def start(self) -> None:
        """Read what was left behind. Call it when no other process writes any more, and before tickets come."""
        found = self._table.found()
        for slot, send in found:
            self._open.setdefault(send.key, _Orphans()).missing[send.hash] = _Missing(slot, send.nonce)
        for key, orphans in self._open.items():
            self._owner.start("aftermath", self._resolve(key, orphans))
        if found:
            self._log.warning("the lane process before had submissions at the node", submissions=len(found))

    # What the turns ask.

    def gaps_from(self, lane: Lane[Submission]) -> float:
        """No gap of the lane counts as older than this."""
        since, head, orphans = self._muster.since, lane.head, self._open.get(lane.key)
        if orphans is None:
            return max(since, self._resolved.get(lane.key, since))
        if head is None or orphans.lowest >= head:
            return since
        again = any(one.nonce == head for one in orphans.missing.values())
        return max(since, orphans.quiet_from) if again and self._is_quiet(orphans) else math.inf

    def screen(self, lane: Lane[Submission], step: Step[Submission]) -> Step[Submission]:
        """What becomes of the lane's next step."""
        orphans = self._open.get(lane.key)
        if orphans is None:
            return step
        orphans.held = lane if lane.waiting else None  # one that is empty must not be woken
        if not isinstance(step, Go):
            return step
        submission = step.ticket.submission
        quiet, again = self._is_quiet(orphans), submission.transaction.hash in orphans.missing
        if again and (quiet or len(orphans.missing) == 1):
            submission.maybe_sent = True
            self._close(lane.key, submission.transaction.hash, "repeated")
            return step
        return step if quiet and step.ticket.nonce < orphans.lowest else SLEEP

    def may_follow(self, lane: Lane[Submission], nonce: int) -> bool:
        """May ``nonce`` share the turn that begins, or was it at the node?"""
        orphans = self._open.get(lane.key)
        return orphans is None or nonce < orphans.lowest

    def _is_quiet(self, orphans: _Orphans) -> bool:
        return self._clock() >= orphans.quiet_from

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

    async def _resolve(self, key: bytes, orphans: _Orphans) -> None:
        """Ends with the lane set free, but by cancellation: the slots are then for the next process."""
        try:
            await self._watch(key, orphans)
        except Exception:
            self._expire(key, orphans)
            raise
        self._expire(key, orphans)

    async def _watch(self, key: bytes, orphans: _Orphans) -> None:
        """Look again and again, until nothing is missing or the time is over."""
        deadline = self._clock() + self._bound_s
        looks, wait = iter(LOOKS_S), 0.0
        self._expect_more(orphans)
        while orphans.missing and (left := deadline - self._clock()) > 0:
            if await self._look(key, orphans, left):
                looks = iter(LOOKS_S)
                self._expect_more(orphans)
            wait = next(looks, wait)
            until_quiet = orphans.quiet_from - self._clock()
            await self._pause(max(0.0, min(wait, deadline - self._clock(), until_quiet if until_quiet > 0 else wait)))
            self._stir(orphans)

    async def _look(self, key: bytes, orphans: _Orphans, left: float) -> bool:
        """Did the node show one more? Not one that was sent again meanwhile."""
        hashes = list(orphans.missing)
        seen = await self._accounts.known(hashes, left)
        found = [hash_ for hash_, known in zip(hashes, seen, strict=True) if known and hash_ in orphans.missing]
        for hash_ in found:
            self._close(key, hash_, "found")
        return bool(found)

    def _expect_more(self, orphans: _Orphans) -> None:
        orphans.quiet_from = self._clock() + QUIET_S

    def _expire(self, key: bytes, orphans: _Orphans) -> None:
        for hash_ in list(orphans.missing):
            self._close(key, hash_, "expired")

    def _close(self, key: bytes, hash_: str, end: str) -> None:
        orphans = self._open.get(key)
        if orphans is None or (one := orphans.missing.pop(hash_, None)) is None:
            return
        self._table.end(one.slot)
        self._ends[end].n += 1
        if not orphans.missing:
            del self._open[key]
            self._resolved[key] = self._clock()
        self._stir(orphans)

    def _stir(self, orphans: _Orphans) -> None:
        """Once nothing is missing the lane is not looked after any more: it may rest, and must not be woken then."""
        lane = orphans.held
        if not orphans.missing:
            orphans.held = None
        if lane is not None:
            self.wake(lane)
