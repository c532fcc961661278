"""The journal in a file: for the relays of one host.

Job: `store.Journal` on SQLite. One thread writes, in groups, and one reads; several processes may share the file.
Rules: a write-ahead log with a sync at each commit: what was answered survives the loss of power. A process that is
stopped in the middle of a commit keeps the others from writing; they are told so after `connection.LOCK_S`.
Must not know: SQL (`statements.sql`), what a submission means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.journal.records import START, storable
from relay.journal.sqlite import reads, writes
from relay.journal.sqlite.connection import LOCK_S, Place
from relay.journal.sqlite.thread import DatabaseThread, Health
from relay.lifecycle import LIVE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from relay.journal.records import (
        Admission,
        Attempt,
        Census,
        Change,
        Claim,
        Cursor,
        Decision,
        Delivery,
        Event,
        Fact,
        Intake,
        Key,
        Lane,
        Notice,
        Outstanding,
        Payload,
        ReceiptSeen,
        Record,
        Refused,
        Seal,
        Sealed,
    )
    from relay.lifecycle import State


class SqliteJournal:
    """Made by `open`."""

    def __init__(self, path: Path, *, receivers: Sequence[str], lock_s: float) -> None:
        self._path = path
        self._jobs = writes.Writes(receivers)
        health = Health()
        self._writer = DatabaseThread(Place(path, lock_s, writes=True), health)
        self._reader = DatabaseThread(Place(path, lock_s, writes=False), health)

    @classmethod
    async def open(cls, path: Path, *, receivers: Sequence[str] = (), lock_s: float = LOCK_S) -> SqliteJournal:
        """Open the file, making it where there is none, and bring its tables up to date."""
        journal = cls(path, receivers=receivers, lock_s=lock_s)
        try:
            await journal._writer.start()
            await journal._reader.start()
        except BaseException:
            journal._reader.end()
            journal._writer.end()
            raise
        return journal

    def __repr__(self) -> str:
        return f"<journal {self._path}: {self._writer.waiting} writes and {self._reader.waiting} reads wait>"

    # A submission's way.

    async def admit(self, intakes: Sequence[Intake]) -> list[Admission]:
        """As `store.Journal.admit`."""
        return await self._writer.run(self._jobs.admit, intakes)

    async def seal(self, seals: Sequence[Seal]) -> list[Sealed | Refused]:
        """As `store.Journal.seal`."""
        return await self._writer.run(self._jobs.seal, seals)

    async def decide(self, decisions: Sequence[Decision]) -> list[Record | Refused]:
        """As `store.Journal.decide`."""
        return await self._writer.run(self._jobs.decide, decisions)

    async def attempt(self, submission: int, node: str, *, fence: int = 0, actor: str = "") -> int | None:
        """As `store.Journal.attempt`."""
        return await self._writer.run(writes.attempt, submission, node, fence, actor)

    async def note(self, facts: Sequence[Fact]) -> None:
        """As `store.Journal.note`."""
        await self._writer.run(writes.note, facts)

    # Looking.

    async def by_id(self, submission: int) -> Record | None:
        """As `store.Journal.by_id`."""
        return await self._reader.run(reads.by_id, submission)

    async def by_hash(self, chain_id: int | None, hash_: bytes) -> Record | None:
        """As `store.Journal.by_hash`."""
        return await self._reader.run(reads.by_hash, chain_id, hash_)

    async def by_key(self, chain_id: int, sender: bytes, key: str) -> Admission | None:
        """As `store.Journal.by_key`."""
        return await self._reader.run(reads.by_key, chain_id, sender, key)

    async def payload(self, submission: int) -> Payload | None:
        """As `store.Journal.payload`."""
        return await self._reader.run(reads.payload, submission)

    async def unfinished(
        self, after: Cursor = START, *, limit: int = 500, states: Collection[State] = LIVE
    ) -> list[Record]:
        """As `store.Journal.unfinished`."""
        return await self._reader.run(reads.unfinished, after, limit, states)

    async def outstanding(self, after: Cursor = START, *, limit: int = 500) -> list[Outstanding]:
        """As `store.Journal.outstanding`."""
        return await self._reader.run(reads.outstanding, after, limit)

    async def lowest(self, chain_id: int, sender: bytes) -> int | None:
        """As `store.Journal.lowest`."""
        return await self._reader.run(reads.lowest, chain_id, sender)

    async def lane(self, chain_id: int, sender: bytes, *, limit: int = 100) -> tuple[Lane, list[Record]]:
        """As `store.Journal.lane`."""
        return await self._reader.run(reads.lane, chain_id, sender, limit)

    async def listing(self, state: State, *, before: tuple[int, int] | None = None, limit: int = 100) -> list[Record]:
        """As `store.Journal.listing`."""
        return await self._reader.run(reads.listing, state, before, limit)

    async def attempts(self, submission: int) -> list[Attempt]:
        """As `store.Journal.attempts`."""
        return await self._reader.run(reads.attempts, submission)

    async def receipts(self, submission: int) -> list[ReceiptSeen]:
        """As `store.Journal.receipts`."""
        return await self._reader.run(reads.receipts, submission)

    async def history(self, submission: int) -> list[Event]:
        """As `store.Journal.history`."""
        return await self._reader.run(reads.history, submission)

    async def keys(self, submission: int) -> list[Key]:
        """As `store.Journal.keys`."""
        return await self._reader.run(reads.keys, submission)

    async def census(self) -> Census:
        """As `store.Journal.census`."""
        return await self._reader.run(reads.census)

    # Following.

    async def latest_changes(self, limit: int) -> list[Change]:
        """As `store.Journal.latest_changes`."""
        return await self._reader.run(reads.latest_changes, limit)

    async def changes_since(self, after: int, *, limit: int = 500) -> list[Change]:
        """As `store.Journal.changes_since`."""
        return await self._reader.run(reads.changes_since, after, limit)

    async def changes_of(self, events: Collection[int]) -> list[Change]:
        """As `store.Journal.changes_of`."""
        return await self._reader.run(reads.changes_of, events)

    # Lanes.

    async def set_paused(
        self, chain_id: int, sender: bytes, *, paused: bool, version: int, detail: str, actor: str
    ) -> Lane | None:
        """As `store.Journal.set_paused`."""
        values = {
            "chain_id": chain_id, "sender": sender, "paused": paused, "version": version, "detail": storable(detail),
            "actor": actor,
        }  # fmt: skip
        return await self._writer.run(writes.set_paused, values)

    async def paused(self) -> list[Lane]:
        """As `store.Journal.paused`."""
        return await self._reader.run(reads.paused)

    async def lane_history(self, chain_id: int, sender: bytes) -> list[Lane]:
        """As `store.Journal.lane_history`."""
        return await self._reader.run(reads.lane_history, chain_id, sender)

    # Telling.

    async def take_notices(self, receiver: str, limit: int, *, hold_ms: int) -> list[Notice]:
        """As `store.Journal.take_notices`."""
        return await self._writer.run(writes.take_notices, receiver, limit, hold_ms)

    async def mark_notice(
        self, event: int, receiver: str, delivery: Delivery, *, due_in_ms: int = 0, error: str = ""
    ) -> None:
        """As `store.Journal.mark_notice`."""
        values = {"event": event, "receiver": receiver, "delivery": delivery, "due_in_ms": due_in_ms, "error": error}
        await self._writer.run(writes.mark_notice, values)

    async def bury_notices(self, *, older_than_ms: int, error: str, limit: int = 1000) -> int:
        """As `store.Journal.bury_notices`."""
        return await self._writer.run(writes.bury_notices, older_than_ms, error, limit)

    # Housekeeping.

    async def claim(self, name: str, owner: str, *, for_ms: int) -> Claim:
        """As `store.Journal.claim`."""
        return await self._writer.run(writes.claim, name, owner, for_ms)

    async def release(self, name: str, owner: str) -> None:
        """As `store.Journal.release`."""
        await self._writer.run(writes.release, name, owner)

    async def note_count(self, endpoint: str, chain_id: int, sender: bytes, count: int) -> int:
        """As `store.Journal.note_count`."""
        return await self._writer.run(writes.note_count, endpoint, chain_id, sender, count)

    async def prune(self, *, older_than_ms: int, limit: int = 1000) -> int:
        """As `store.Journal.prune`."""
        return await self._writer.run(self._jobs.prune, older_than_ms, limit)

    async def check(self) -> None:
        """As `store.Journal.check`."""
        await self._writer.run(writes.check)

    async def close(self) -> None:
        """As `store.Journal.close`."""
        await self._reader.close()
        await self._writer.close()
