"""The journal in PostgreSQL: for relays on several hosts.

Job: `store.Journal` on PostgreSQL 13 or newer. The tables live in the schema ``relay`` of the URL's database.
What many callers admit, seal and decide at once goes in groups.
Rules: each operation is one statement to the server, in a transaction that begins and ends there: a relay that is
stopped at any moment leaves no lock behind. It needs a direct connection, or a pooler that pools sessions.
Must not know: SQL (`statements.sql`, ``migrations``), how the server is reached (`server`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from relay.journal.postgres.columns import decision_columns, fact_columns, intake_columns, seal_columns
from relay.journal.postgres.grouping import Grouping
from relay.journal.postgres.server import Server
from relay.journal.records import (
    LARGEST,
    START,
    Admission,
    Census,
    Claim,
    Count,
    Key,
    Notice,
    Outstanding,
    Payload,
    Sealed,
    Stale,
    storable,
    untouched,
)
from relay.journal.rows import WIDTH, attempt_of, change_of, event_of, lane_of, reason_of, receipt_of, record_of
from relay.journal.ruling import refusal, seal_way, sealing, way
from relay.lifecycle import LIVE, State
from relay.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from relay.journal.records import (
        Attempt,
        Change,
        Cursor,
        Decision,
        Delivery,
        Event,
        Fact,
        Intake,
        Lane,
        ReceiptSeen,
        Record,
        Refused,
        Seal,
    )
    from relay.lifecycle import Transition

T = TypeVar("T")


class PostgresJournal:
    """Made by `open`."""

    def __init__(self, server: Server, receivers: Sequence[str]) -> None:
        self._server = server
        self._receivers = list(receivers)
        self._owner = TaskOwner("journal", server.report)
        self._admitting = Grouping("admit", self._admit, self._owner)
        self._sealing = Grouping("seal", self._seal, self._owner)
        self._deciding = Grouping("decide", self._decide, self._owner)

    @classmethod
    async def open(cls, url: str, *, receivers: Sequence[str] = ()) -> PostgresJournal:
        """Connect, and bring the tables up to date."""
        server = Server(url)
        try:
            await server.start()
        except BaseException:
            server.disconnect()
            raise
        return cls(server, receivers)

    def __repr__(self) -> str:
        return f"<journal {self._server!r}>"

    # A submission's way.

    async def admit(self, intakes: Sequence[Intake]) -> list[Admission]:
        """As `store.Journal.admit`."""
        return await self._admitting.do(intakes)

    async def _admit(self, intakes: Sequence[Intake]) -> list[Admission]:
        rows = await self._server.change("admit", *intake_columns(intakes), self._receivers)
        return [
            Admission(record_of(row), fresh=fresh, same_bytes=same_bytes, key_age_ms=age_ms)
            for fresh, same_bytes, age_ms, *row in rows
        ]

    async def seal(self, seals: Sequence[Seal]) -> list[Sealed | Refused]:
        """As `store.Journal.seal`."""
        return await self._sealing.do(seals)

    async def _seal(self, seals: Sequence[Seal]) -> list[Sealed | Refused]:
        rows = await self._server.change("seal", *seal_columns(seals), self._receivers)
        return [
            Sealed(record_of(row), attempt) if done else _refused(row, sealing(seal), seal_way(seal))
            for seal, (done, attempt, *row) in zip(seals, rows, strict=True)
        ]

    async def decide(self, decisions: Sequence[Decision]) -> list[Record | Refused]:
        """As `store.Journal.decide`."""
        return await self._deciding.do(decisions)

    async def _decide(self, decisions: Sequence[Decision]) -> list[Record | Refused]:
        rows = await self._server.change("decide", *decision_columns(decisions), self._receivers)
        return [
            record_of(row) if done else _refused(row, decision, way(decision))
            for decision, (done, *row) in zip(decisions, rows, strict=True)
        ]

    async def attempt(self, submission: int, node: str, *, fence: int = 0, actor: str = "") -> int | None:
        """As `store.Journal.attempt`."""
        ((made,),) = await self._server.change("attempt", submission, node, fence, actor)
        return None if made is None else int(made)

    async def note(self, facts: Sequence[Fact]) -> None:
        """As `store.Journal.note`."""
        if facts:
            await self._server.change("note", *fact_columns(facts))

    # Looking.

    async def _one(self, value: Callable[[Sequence[Any]], T], name: str, *arguments: Any) -> T | None:
        rows = await self._server.look(name, *arguments)
        return value(tuple(rows[0])) if rows else None

    async def _many(self, value: Callable[[Sequence[Any]], T], name: str, *arguments: Any) -> list[T]:
        return [value(tuple(row)) for row in await self._server.look(name, *arguments)]

    async def by_id(self, submission: int) -> Record | None:
        """As `store.Journal.by_id`."""
        return await self._one(record_of, "by_id", submission)

    async def by_hash(self, chain_id: int | None, hash_: bytes) -> Record | None:
        """As `store.Journal.by_hash`."""
        return await self._one(record_of, "by_hash", chain_id, hash_)

    async def by_key(self, chain_id: int, sender: bytes, key: str) -> Admission | None:
        """As `store.Journal.by_key`."""
        return await self._one(_held, "by_key", chain_id, sender, key)

    async def payload(self, submission: int) -> Payload | None:
        """As `store.Journal.payload`."""
        return await self._one(Payload._make, "payload", submission)

    async def unfinished(
        self, after: Cursor = START, *, limit: int = 500, states: Collection[State] = LIVE
    ) -> list[Record]:
        """As `store.Journal.unfinished`."""
        return await self._many(record_of, "unfinished", *after, list(states), limit)

    async def outstanding(self, after: Cursor = START, *, limit: int = 500) -> list[Outstanding]:
        """As `store.Journal.outstanding`."""
        return await self._many(Outstanding._make, "outstanding", after.chain_id, after.sender, limit)

    async def lowest(self, chain_id: int, sender: bytes) -> int | None:
        """As `store.Journal.lowest`."""
        return await self._one(lambda row: int(row[0]), "lowest", chain_id, sender)

    async def lane(self, chain_id: int, sender: bytes, *, limit: int = 100) -> tuple[Lane, list[Record]]:
        """As `store.Journal.lane`."""
        setting = await self._one(lane_of, "lane", chain_id, sender)
        rows = await self._many(record_of, "lane_rows", chain_id, sender, limit)
        return setting or untouched(chain_id, sender), rows

    async def listing(self, state: State, *, before: tuple[int, int] | None = None, limit: int = 100) -> list[Record]:
        """As `store.Journal.listing`."""
        return await self._many(record_of, "listing", state, *(before or (LARGEST, LARGEST)), limit)

    async def attempts(self, submission: int) -> list[Attempt]:
        """As `store.Journal.attempts`."""
        return await self._many(attempt_of, "attempts", submission)

    async def receipts(self, submission: int) -> list[ReceiptSeen]:
        """As `store.Journal.receipts`."""
        return await self._many(receipt_of, "receipts", submission)

    async def history(self, submission: int) -> list[Event]:
        """As `store.Journal.history`."""
        return await self._many(event_of, "history", submission)

    async def keys(self, submission: int) -> list[Key]:
        """As `store.Journal.keys`."""
        return await self._many(Key._make, "keys", submission)

    async def census(self) -> Census:
        """As `store.Journal.census`."""
        counts = await self._many(_count_of, "open_counts")
        ((now, waiting, oldest, dead),) = await self._server.look("outbox_counts")
        return Census(now, tuple(counts), waiting, oldest, dead)

    # Following.

    async def latest_changes(self, limit: int) -> list[Change]:
        """As `store.Journal.latest_changes`."""
        return (await self._many(change_of, "latest_changes", limit))[::-1]

    async def changes_since(self, after: int, *, limit: int = 500) -> list[Change]:
        """As `store.Journal.changes_since`."""
        return await self._many(change_of, "changes_since", after, limit)

    async def changes_of(self, events: Collection[int]) -> list[Change]:
        """As `store.Journal.changes_of`."""
        return await self._many(change_of, "changes_of", list(events))

    # Lanes.

    async def set_paused(
        self, chain_id: int, sender: bytes, *, paused: bool, version: int, detail: str, actor: str
    ) -> Lane | None:
        """As `store.Journal.set_paused`."""
        rows = await self._server.change("set_lane", chain_id, sender, paused, version, storable(detail), actor)
        return lane_of(tuple(rows[0])) if rows else None

    async def paused(self) -> list[Lane]:
        """As `store.Journal.paused`."""
        return await self._many(lane_of, "paused")

    async def lane_history(self, chain_id: int, sender: bytes) -> list[Lane]:
        """As `store.Journal.lane_history`."""
        return await self._many(lane_of, "lane_history", chain_id, sender)

    # Telling.

    async def take_notices(self, receiver: str, limit: int, *, hold_ms: int) -> list[Notice]:
        """As `store.Journal.take_notices`."""
        rows = await self._server.change("take_notices", receiver, limit, hold_ms)
        return [Notice(event_of(row[:-WIDTH]), record_of(row[-WIDTH:]), tries) for tries, *row in rows]

    async def mark_notice(
        self, event: int, receiver: str, delivery: Delivery, *, due_in_ms: int = 0, error: str = ""
    ) -> None:
        """As `store.Journal.mark_notice`."""
        await self._server.change("mark_notice", event, receiver, delivery, due_in_ms, storable(error))

    async def bury_notices(self, *, older_than_ms: int, error: str, limit: int = 1000) -> int:
        """As `store.Journal.bury_notices`."""
        ((buried,),) = await self._server.change("bury_notices", older_than_ms, storable(error), limit)
        return int(buried)

    # Housekeeping.

    async def claim(self, name: str, owner: str, *, for_ms: int) -> Claim:
        """As `store.Journal.claim`."""
        mine = await self._server.change("claim", name, owner, for_ms)
        (row,) = mine or await self._server.look("claimed", name)
        return Claim._make((*row, bool(mine)))

    async def release(self, name: str, owner: str) -> None:
        """As `store.Journal.release`."""
        await self._server.change("release", name, owner)

    async def note_count(self, endpoint: str, chain_id: int, sender: bytes, count: int) -> int:
        """As `store.Journal.note_count`."""
        ((highest,),) = await self._server.change("note_count", endpoint, chain_id, sender, count)
        return int(highest)

    async def prune(self, *, older_than_ms: int, limit: int = 1000) -> int:
        """As `store.Journal.prune`."""
        ((pruned,),) = await self._server.change("prune", older_than_ms, limit, bool(self._receivers))
        return int(pruned)

    async def check(self) -> None:
        """As `store.Journal.check`."""
        await self._server.change("write_health")

    async def close(self) -> None:
        """As `store.Journal.close`."""
        try:
            await self._owner.settled()
            await self._server.settled()
        finally:
            self._server.disconnect()


def _refused(row: Sequence[Any], decision: Decision, by: Transition | None) -> Refused:
    """What is said where a statement moved nothing. ``row``: the newest; nulls where there is none."""
    record = None if row[0] is None else record_of(row)
    refused = refusal(record, decision, by)
    if refused is not None:
        return refused
    assert record is not None
    return Stale(record)


def _held(row: Sequence[Any]) -> Admission:
    return Admission(record_of(row[1:]), fresh=False, key_age_ms=row[0])


def _count_of(row: Sequence[Any]) -> Count:
    return Count(State(row[0]), reason_of(row[1]), row[2], row[3])
