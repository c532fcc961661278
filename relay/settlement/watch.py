"""The watch: what the newest block did.

Job: poll the head while something is out, and look for the receipts of all that is out at each new one; name what has
none for too long.
Rules: an idle journal costs the node nothing. A walk goes page by page, at most `MOST` records for one head: what is
left is looked at first at the next. It decides nothing that needs more than the upstream's word.
Must not know: resends, witnesses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relay.journal.records import Cursor
from relay.lifecycle import WORDS, State, SubStatus
from relay.methods import SUBMISSIONS
from relay.settlement import reading
from relay.settlement.asking import distinct
from relay.settlement.evidence import Counts, Evidence, Move
from relay.settlement.rules import TIMEOUT_MS, overdue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relay.journal.records import Record
    from relay.journal.store import Journal
    from relay.settlement.asking import Endpoint
    from relay.settlement.deciding import Deciding
    from relay.settlement.landings import Landings
    from relay.settlement.rules import Rules
    from relay.settlement.standing import Standing

PAGE: Final = 500
MOST: Final = 5_000
"""Records for one head."""
STALE_S: Final = 30.0
"""Without a new head, a walk all the same: time passes for what is overdue."""
OUT: Final = frozenset({State.SENT, State.PENDING})
WATCHED: Final = OUT | {State.MINED}


class Watch:
    """Of one chain, at one upstream."""

    def __init__(
        self,
        upstream: Endpoint,
        landings: Landings,
        deciding: Deciding,
        standing: Standing,
        *,
        rules: Rules,
        clock: Callable[[], float],
    ) -> None:
        self._upstream = upstream
        self._landings = landings
        self._deciding = deciding
        self._standing = standing
        self._rules = rules
        self._clock = clock
        self._head: int | None = None
        self._walked = float("-inf")
        self._place: Cursor | None = None

    def __repr__(self) -> str:
        return f"<watch at {self._head}>"

    async def step(self, journal: Journal, chain_id: int) -> bool:
        """One look at the head, and at what is out if it is new. False: nothing is out."""
        start = Cursor(chain_id)
        first = await journal.unfinished(start, limit=1, states=WATCHED)
        if not first or first[0].chain_id != chain_id:
            return False
        head = await self._upstream.head()
        now = self._clock()
        if head is None or (head == self._head and self._place is None and now - self._walked < STALE_S):
            return True
        await self._walk(journal, chain_id, head)
        self._head, self._walked = head, now  # only now: a walk that fails is made again
        return True

    async def _walk(self, journal: Journal, chain_id: int, head: int) -> None:
        """From where the last one stopped, else from the start."""
        cursor, left = self._place or Cursor(chain_id), MOST
        while left > 0:
            page = await journal.unfinished(cursor, limit=PAGE, states=WATCHED)
            records = [record for record in page if record.chain_id == chain_id]
            if records:
                looked = await self._landings.look(journal, records, head)
                await self._name(journal, looked.empty)
                cursor = Cursor.after(records[-1])
            if len(records) < PAGE:
                self._place = None
                return
            left -= len(records)
        self._place = cursor

    async def _name(self, journal: Journal, records: Sequence[Record]) -> None:
        """Say why the overdue among ``records`` have no receipt."""
        now_ms = self._standing.now_ms()
        late = [] if now_ms is None else [record for record in records if _is_late(record, now_ms)]
        if not late:
            return
        assert now_ms is not None
        known = await reading.known(self._upstream, late)
        senders = distinct(record.sender for record in late)
        counts = dict(zip(senders, await reading.counts(self._upstream, senders, None), strict=True))
        decisions = []
        for record, knows in zip(late, known, strict=True):
            evidence = _evidence(record, now_ms, knows, counts[record.sender])
            if isinstance(move := overdue(evidence, self._rules), Move):
                decisions.append(self._deciding.decision(record, move))
        await self._deciding.decide(journal, decisions)


def _is_late(record: Record, now_ms: int) -> bool:
    """Overdue, not named yet, and not private: its absence would say nothing."""
    named = record.reason is not None and WORDS[record.reason].sub_status is not SubStatus.NOTE
    late = record.state in OUT and now_ms - record.since_ms >= TIMEOUT_MS
    return late and not named and SUBMISSIONS[record.method].public


def _evidence(record: Record, now_ms: int, knows: bool | None, counts: Counts) -> Evidence:  # noqa: FBT001 - as read
    reach = None if counts.pending is None else max(counts.pending, counts.latest or 0)
    return Evidence(record, now_ms - record.since_ms, (knows,), (counts,), reach=reach)
