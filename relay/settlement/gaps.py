"""Lanes that cannot go on: the chain waits for a nonce that nobody here has.

Job: compare each lane's lowest outstanding nonce with the chain's count; tell of a gap once, with what is missing or
what blocks it, again when it has been there for `WEDGED_S`, and when it is over.
Rules: the relay holds no keys: it never fills a gap, it says what would. A count that nobody told proves nothing.
Must not know: rows' states beyond what names a blocker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from relay.journal.records import Cursor
from relay.lifecycle import State
from relay.settlement import reading
from relay.settlement.asking import hexed
from relay.verdict import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relay.journal.records import Outstanding
    from relay.journal.store import Journal
    from relay.proof import NodeFacts
    from relay.settlement.asking import Endpoint
    from relay.settlement.evidence import Counts
    from relay.telemetry.metrics import Metrics

WEDGED_S: Final = 600.0
PAGE: Final = 200
MOST: Final = 5_000
"""Lanes in one look; the next one goes on there."""


class Gap:
    """Of one lane: the nonces from ``first`` up to ``lowest`` are missing."""

    __slots__ = ("first", "lowest", "since", "wedged")

    def __init__(self, first: int, lowest: int, since: float) -> None:
        self.first = first
        self.lowest = lowest
        self.since = since
        self.wedged = False


class Gaps:
    """Those that are known."""

    def __init__(self, upstream: Endpoint, facts: NodeFacts, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._upstream = upstream
        self._facts = facts
        self._clock = clock
        self._gaps: dict[bytes, Gap] = {}
        self._seen: set[bytes] = set()
        """Lanes of the walk that is under way that still have a gap, or of which nothing was said."""
        self._place: Cursor | None = None
        self._log = structlog.get_logger("relay.settlement")
        metrics.lanes_gapped.read_from(lambda: len(self._gaps))
        metrics.lanes_wedged.read_from(lambda: sum(gap.wedged for gap in self._gaps.values()))

    def __repr__(self) -> str:
        return f"<gaps in {len(self._gaps)} lanes>"

    async def look(self, journal: Journal, chain_id: int) -> None:
        """At the lanes in which something is live, page by page."""
        cursor, left = self._place or Cursor(chain_id), MOST
        while left > 0:
            page = await journal.outstanding(cursor, limit=PAGE)
            lanes = [lane for lane in page if lane.chain_id == chain_id]
            if lanes:
                await self._judge(journal, lanes)
                cursor = Cursor(chain_id, lanes[-1].sender)
            if len(lanes) < PAGE:
                self._ended()
                return
            left -= len(lanes)
        self._place = cursor

    def forget(self) -> None:
        """Another instance looks now."""
        self._gaps.clear()
        self._seen.clear()
        self._place = None

    async def _judge(self, journal: Journal, lanes: Sequence[Outstanding]) -> None:
        told = await reading.counts(self._upstream, [lane.sender for lane in lanes], None)
        for lane, counts in zip(lanes, told, strict=True):
            next_nonce = self._next(counts)
            if next_nonce is None:
                self._seen.add(lane.sender)
            elif next_nonce < lane.lowest:
                self._seen.add(lane.sender)
                await self._note(journal, lane, next_nonce)

    def _next(self, counts: Counts) -> int | None:
        """The nonce that the chain waits for. Besu's pending count passes over gaps, so there only what is mined."""
        if counts.latest is None or counts.pending is None:
            return None
        return counts.latest if self._facts.client is Client.BESU else max(counts.latest, counts.pending)

    async def _note(self, journal: Journal, lane: Outstanding, first: int) -> None:
        gap = self._gaps.get(lane.sender)
        if gap is None or (gap.first, gap.lowest) != (first, lane.lowest):
            since = self._clock() if gap is None else gap.since
            gap = self._gaps[lane.sender] = Gap(first, lane.lowest, since)
            await self._tell(journal, lane, gap, "nonce.gap")
        if not gap.wedged and self._clock() - gap.since >= WEDGED_S:
            gap.wedged = True
            await self._tell(journal, lane, gap, "lane.wedged")

    async def _tell(self, journal: Journal, lane: Outstanding, gap: Gap, event: str) -> None:
        """With the blocker: a dead letter at a missing nonce; else the missing nonces themselves."""
        _, rows = await journal.lane(lane.chain_id, lane.sender, limit=20)
        dead = [row for row in rows if row.state is State.DEAD_LETTER and gap.first <= row.nonce < gap.lowest]
        blocker = hexed(dead[0].hash) if dead else None
        frees = f"retry {blocker}" if blocker else f"a transaction of this sender with nonce {gap.first}"
        self._log.warning(
            event,
            sender=hexed(lane.sender),
            missing=str(gap.first) if gap.lowest == gap.first + 1 else f"{gap.first}-{gap.lowest - 1}",
            waiting=lane.rows,
            blocker=blocker,
            frees=frees,
            minutes=round((self._clock() - gap.since) / 60, 1),
        )

    def _ended(self) -> None:
        """A whole walk is over: what was not seen in it has no gap any more."""
        for sender in [sender for sender in self._gaps if sender not in self._seen]:
            self._log.info("nonce.gap closed", sender=hexed(sender))
            del self._gaps[sender]
        self._seen.clear()
        self._place = None
