"""Receipts: what the chain says of submissions that may be in a block.

Job: ask for the receipts of a page of records and carry out what `landing` says; what has none is handed back.
Rules: nothing is concluded from one empty receipt. Blocks are asked for only where something depends on them.
Must not know: pools, counts, resends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from relay.lifecycle import State
from relay.settlement import reading
from relay.settlement.evidence import Canon, Move, Sight
from relay.settlement.landing import concluded
from relay.settlement.reading import UNSAID
from relay.settlement.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay.journal.records import Decision, Receipt, Record
    from relay.journal.store import Journal
    from relay.settlement.asking import Endpoint
    from relay.settlement.deciding import Deciding
    from relay.settlement.reading import Unsaid

REMEMBERED: Final = 20_000
ROUNDS: Final = 3
"""Into a block, into another, deep enough: a submission may take all these ways at one look."""
_LANDED: Final = frozenset({State.MINED, State.COMPLETED})


class Looked(NamedTuple):
    """What is left after a look: in no block, says the node; and of how many it said nothing."""

    empty: list[Record]
    unsaid: int


class Landings:
    """At the upstream, whose head and receipts are compared with each other."""

    def __init__(self, upstream: Endpoint, deciding: Deciding, confirmations: int) -> None:
        self._upstream = upstream
        self._deciding = deciding
        self._confirmations = confirmations
        self._before: Recent[int, Receipt] = Recent(REMEMBERED)
        self._absences: Recent[int, tuple[int, int]] = Recent(REMEMBERED)
        """By submission: the last head at which there was no receipt, and how many in a row."""

    def __repr__(self) -> str:
        return f"<landings at {self._upstream.name}>"

    async def look(self, journal: Journal, records: Sequence[Record], head: int) -> Looked:
        """Carry out what the receipts of ``records`` lead to."""
        found = await reading.receipts(self._upstream, records)
        sights = [await self._sight(journal, *each, head) for each in zip(records, found, strict=True)]
        sights = await self._with_blocks(sights)
        empty = [sight.record for sight in sights if sight.said and sight.receipt is None]
        moved: list[Sight] = sights
        for _ in range(ROUNDS):
            moved = await self._carry_out(journal, moved)
            if not moved:
                break
        unsaid = sum(not sight.said for sight in sights)
        return Looked([record for record in empty if record.state not in _LANDED], unsaid)

    async def _sight(self, journal: Journal, record: Record, found: Receipt | Unsaid | None, head: int) -> Sight:
        before = await self._last(journal, record) if record.state in _LANDED else None
        receipt = None if found is UNSAID else found
        absences = self._absent(record, head) if found is None and record.state is State.MINED else 0
        return Sight(record, found is not UNSAID, receipt, before, Canon.UNKNOWN, head, self._confirmations, absences)

    async def _last(self, journal: Journal, record: Record) -> Receipt | None:
        """The receipt that was seen last; of those in the store the newest, which is the last but for A, B, A."""
        if (before := self._before.get(record.id)) is None and (seen := await journal.receipts(record.id)):
            before = seen[-1].receipt
        return before

    def _absent(self, record: Record, head: int) -> int:
        """Heads in a row without a receipt; the same head counts once."""
        last, times = self._absences.get(record.id) or (-1, 0)
        if head != last:
            times += 1
            self._absences.put(record.id, (head, times))
        return times

    async def _with_blocks(self, sights: list[Sight]) -> list[Sight]:
        heights = {height for sight in sights if (height := _height(sight)) is not None}
        said = await reading.blocks(self._upstream, sorted(heights)) if heights else {}
        return [sight._replace(canon=_canon(sight, said)) for sight in sights]

    async def _carry_out(self, journal: Journal, sights: Sequence[Sight]) -> list[Sight]:
        """One step of each. What moved, seen as before."""
        decisions: list[Decision] = []
        for sight in sights:
            if isinstance(move := concluded(sight), Move):
                decisions.append(self._deciding.decision(sight.record, move, receipt=sight.receipt))
            elif sight.receipt is not None:
                self._seen(sight.receipt)
        if not decisions:
            return []
        moved = {record.id: record for record in await self._deciding.decide(journal, decisions)}
        after = [sight for sight in sights if sight.record.id in moved]
        for sight in after:
            if sight.receipt is not None:
                self._seen(sight.receipt)
            else:
                self._absences.drop(sight.record.id)
        return [
            sight._replace(record=moved[sight.record.id], before=sight.receipt)
            for sight in after
            if sight.receipt is not None
        ]

    def _seen(self, receipt: Receipt) -> None:
        self._before.put(receipt.submission, receipt)
        self._absences.drop(receipt.submission)


def _height(sight: Sight) -> int | None:
    """Of the block whose place matters: the one it would be final in, or the one it was in and is not seen in."""
    if sight.receipt is not None:
        known = sight.record.state is State.COMPLETED and not sight.moved
        return sight.receipt.block_number if sight.deep and not known else None
    return sight.before.block_number if sight.said and sight.before is not None else None


def _canon(sight: Sight, said: dict[int, bytes | None]) -> Canon:
    block = sight.receipt or sight.before
    if block is None or _height(sight) is None or block.block_number not in said:
        return Canon.UNKNOWN
    match said[block.block_number]:
        case None:
            return Canon.ABSENT
        case hash_:
            return Canon.SAME if hash_ == block.block_hash else Canon.OTHER
