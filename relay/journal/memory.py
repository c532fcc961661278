"""A journal in memory: for tests, and the shortest reading of what a store must do.

Job: `store.Journal` without a disk: nothing survives the process. Every operation runs in one synchronous stretch.
Must not know: SQL, files.
"""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import count, islice
from typing import TYPE_CHECKING

from relay.journal.memory_outbox import Outbox
from relay.journal.records import (
    START,
    Admission,
    Answer,
    Attempt,
    Census,
    Change,
    Claim,
    Count,
    Cursor,
    Delivery,
    Event,
    Key,
    Lane,
    Notice,
    Outstanding,
    Payload,
    ReceiptSeen,
    Record,
    Sealed,
    Taken,
    storable,
    untouched,
)
from relay.journal.ruling import refusal, seal_way, sealing, way
from relay.lifecycle import LIVE, OPEN, TERMINAL, State

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from relay.journal.records import Decision, Fact, Intake, Refused, Seal
    from relay.lifecycle import Reason, Transition

_Sender = tuple[int, bytes]


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryJournal:
    """The tables, and the operations on them. ``now_ms`` is the store's clock."""

    def __init__(self, *, receivers: Sequence[str] = (), now_ms: Callable[[], int] = _wall_ms) -> None:
        self._now = now_ms
        self._ids = count(1)
        self._records: dict[int, Record] = {}
        self._payloads: dict[int, Payload] = {}
        self._by_hash: dict[tuple[int, bytes], int] = {}
        self._keys: dict[tuple[int, bytes, str], tuple[int, int]] = {}
        self._attempts: dict[int, Attempt] = {}
        self._receipts: dict[tuple[int, bytes], ReceiptSeen] = {}
        self._events: dict[int, list[Event]] = defaultdict(list)
        self._outbox = Outbox(receivers)
        self._lanes: dict[_Sender, list[Lane]] = defaultdict(list)
        self._claims: dict[str, Claim] = {}
        self._counts: dict[tuple[str, int, bytes], int] = {}

    def __repr__(self) -> str:
        return f"<journal in memory: {len(self._records)} submissions>"

    # A submission's way.

    async def admit(self, intakes: Sequence[Intake]) -> list[Admission]:
        """As `store.Journal.admit`."""
        return [self._admit(intake) for intake in intakes]

    def _admit(self, intake: Intake) -> Admission:
        key = (intake.chain_id, intake.sender, intake.key)
        if intake.key and (bound := self._keys.get(key)) is not None:
            holder = self._records[bound[0]]
            if not holder.releases_key:
                return Admission(
                    holder, fresh=False, same_bytes=holder.hash == intake.hash, key_age_ms=self._now() - bound[1]
                )
        known = self._by_hash.get((intake.chain_id, intake.hash))
        record = self._records[known] if known is not None else self._insert(intake)
        if intake.key:
            self._keys[key] = (record.id, self._now())
        return Admission(record, fresh=known is None)

    def _insert(self, intake: Intake) -> Record:
        now = self._now()
        record = Record(
            next(self._ids), intake.chain_id, intake.sender, intake.nonce, intake.hash, intake.method, intake.mode,
            now, State.QUEUED, None, "", None, 1, 0, 0, 0, 0, now,
        )  # fmt: skip
        self._payloads[record.id] = Payload(intake.raw, intake.method, intake.params)
        self._by_hash[intake.chain_id, intake.hash] = record.id
        return self._changed(None, record, intake.actor)

    def _changed(self, origin: State | None, record: Record, actor: str) -> Record:
        """Every change of state, its event and the event's place in the outbox are one."""
        self._records[record.id] = record
        event = Event(
            next(self._ids), record.id, origin, record.state, record.reason, record.detail, actor, record.fence,
            record.version, self._now(),
        )  # fmt: skip
        self._events[record.id].append(event)
        self._outbox.put(event)
        return record

    async def seal(self, seals: Sequence[Seal]) -> list[Sealed | Refused]:
        """As `store.Journal.seal`."""
        return [self._seal(seal) for seal in seals]

    def _seal(self, seal: Seal) -> Sealed | Refused:
        done = self._move(sealing(seal), seal_way(seal))
        if not isinstance(done, Record):
            return done
        attempt = self._attempt(done._replace(tries=done.tries + 1), seal.node, seal.fence, seal.actor)
        return Sealed(self._records[done.id], attempt)

    async def decide(self, decisions: Sequence[Decision]) -> list[Record | Refused]:
        """As `store.Journal.decide`."""
        return [self._decide(decision) for decision in decisions]

    def _decide(self, decision: Decision) -> Record | Refused:
        self._note(decision.facts)
        return self._move(decision, way(decision))

    def _move(self, decision: Decision, row: Transition | None) -> Record | Refused:
        record = self._records.get(decision.submission)
        if (refused := refusal(record, decision, row)) is not None:
            return refused
        assert record is not None
        moved = record._replace(
            state=decision.target,
            reason=decision.reason,
            detail=storable(decision.detail),
            other_hash=decision.other_hash or record.other_hash,
            mode=decision.mode or record.mode,
            version=record.version + 1,
            fence=max(record.fence, decision.fence),
            tries=0 if row is not None and row.renews else record.tries,
            since_ms=record.since_ms if decision.target is record.state else self._now(),
        )
        return self._changed(record.state, moved, decision.actor)

    async def attempt(self, submission: int, node: str, *, fence: int = 0, actor: str = "") -> int | None:
        """As `store.Journal.attempt`."""
        record = self._records.get(submission)
        return None if record is None else self._attempt(record, node, fence, actor)

    def _attempt(self, record: Record, node: str, fence: int, actor: str) -> int:
        attempt = Attempt(next(self._ids), record.id, node, fence, actor, self._now(), None, None, "", "")
        self._attempts[attempt.id] = attempt
        self._records[record.id] = record._replace(attempts=record.attempts + 1, open_attempts=record.open_attempts + 1)
        return attempt.id

    async def note(self, facts: Sequence[Fact]) -> None:
        """As `store.Journal.note`."""
        self._note(facts)

    def _note(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, Answer):
                self._answer(fact)
            elif fact.submission in self._records:
                seen = ReceiptSeen(fact, self._now())
                self._receipts.setdefault((fact.submission, fact.block_hash), seen)

    def _answer(self, answer: Answer) -> None:
        attempt = self._attempts.get(answer.attempt)
        if attempt is None or attempt.taken is not None:
            return
        self._attempts[attempt.id] = attempt._replace(
            answered_ms=self._now(), taken=answer.taken, verdict=answer.verdict, text=storable(answer.text)
        )
        if answer.taken is Taken.NO:
            record = self._records[attempt.submission]
            self._records[record.id] = record._replace(open_attempts=record.open_attempts - 1)

    # Looking.

    async def by_id(self, submission: int) -> Record | None:
        """As `store.Journal.by_id`."""
        return self._records.get(submission)

    async def by_hash(self, chain_id: int | None, hash_: bytes) -> Record | None:
        """As `store.Journal.by_hash`."""
        if chain_id is None:
            known = max((id_ for (_, each), id_ in self._by_hash.items() if each == hash_), default=None)
        else:
            known = self._by_hash.get((chain_id, hash_))
        return None if known is None else self._records[known]

    async def by_key(self, chain_id: int, sender: bytes, key: str) -> Admission | None:
        """As `store.Journal.by_key`."""
        bound = self._keys.get((chain_id, sender, key))
        if bound is None:
            return None
        return Admission(self._records[bound[0]], fresh=False, key_age_ms=self._now() - bound[1])

    async def payload(self, submission: int) -> Payload | None:
        """As `store.Journal.payload`."""
        return self._payloads.get(submission)

    async def unfinished(
        self, after: Cursor = START, *, limit: int = 500, states: Collection[State] = LIVE
    ) -> list[Record]:
        """As `store.Journal.unfinished`."""
        return [record for record in self._ordered(states) if Cursor.after(record) > after][:limit]

    def _ordered(self, states: Collection[State]) -> list[Record]:
        return sorted((record for record in self._records.values() if record.state in states), key=Cursor.after)

    async def outstanding(self, after: Cursor = START, *, limit: int = 500) -> list[Outstanding]:
        """As `store.Journal.outstanding`."""
        lanes: dict[_Sender, list[Record]] = defaultdict(list)
        for record in self._ordered(LIVE):
            lanes[record.chain_id, record.sender].append(record)
        rest = (
            Outstanding(*lane, rows[0].nonce, len(rows), min(row.admitted_ms for row in rows))
            for lane, rows in lanes.items()
            if lane > (after.chain_id, after.sender)
        )
        return list(islice(rest, limit))

    async def lowest(self, chain_id: int, sender: bytes) -> int | None:
        """As `store.Journal.lowest`."""
        return next(
            (row.nonce for row in self._ordered(LIVE) if (row.chain_id, row.sender) == (chain_id, sender)), None
        )

    async def lane(self, chain_id: int, sender: bytes, *, limit: int = 100) -> tuple[Lane, list[Record]]:
        """As `store.Journal.lane`."""
        rows = (row for row in self._ordered(OPEN) if (row.chain_id, row.sender) == (chain_id, sender))
        return self._lane(chain_id, sender), list(islice(rows, limit))

    def _lane(self, chain_id: int, sender: bytes) -> Lane:
        settings = self._lanes.get((chain_id, sender))
        return settings[-1] if settings else untouched(chain_id, sender)

    async def listing(self, state: State, *, before: tuple[int, int] | None = None, limit: int = 100) -> list[Record]:
        """As `store.Journal.listing`."""
        rows = [row for row in self._records.values() if row.state is state]
        rows.sort(key=lambda row: (row.since_ms, row.id), reverse=True)
        return [row for row in rows if before is None or (row.since_ms, row.id) < before][:limit]

    async def attempts(self, submission: int) -> list[Attempt]:
        """As `store.Journal.attempts`."""
        return [attempt for attempt in self._attempts.values() if attempt.submission == submission]

    async def receipts(self, submission: int) -> list[ReceiptSeen]:
        """As `store.Journal.receipts`."""
        return [seen for seen in self._receipts.values() if seen.receipt.submission == submission]

    async def history(self, submission: int) -> list[Event]:
        """As `store.Journal.history`."""
        return list(self._events.get(submission, ()))

    async def keys(self, submission: int) -> list[Key]:
        """As `store.Journal.keys`."""
        bound = (Key(key[2], first) for key, (holder, first) in self._keys.items() if holder == submission)
        return sorted(bound, key=lambda key: (key.first_ms, key.key))

    async def census(self) -> Census:
        """As `store.Journal.census`."""
        groups: dict[tuple[State, Reason | None], list[int]] = defaultdict(list)
        for record in self._ordered(OPEN):
            groups[record.state, record.reason].append(record.since_ms)
        waiting = self._outbox.waiting()
        return Census(
            self._now(),
            tuple(Count(state, reason, len(since), min(since)) for (state, reason), since in groups.items()),
            len(waiting),
            min(waiting, default=None),
            self._outbox.dead(),
        )

    # Following.

    async def latest_changes(self, limit: int) -> list[Change]:
        """As `store.Journal.latest_changes`."""
        return self._changes(lambda _: True)[-limit:]

    async def changes_since(self, after: int, *, limit: int = 500) -> list[Change]:
        """As `store.Journal.changes_since`."""
        return self._changes(lambda id_: id_ > after)[:limit]

    async def changes_of(self, events: Collection[int]) -> list[Change]:
        """As `store.Journal.changes_of`."""
        return self._changes(set(events).__contains__)

    def _changes(self, wanted: Callable[[int], bool]) -> list[Change]:
        events = sorted(event for each in self._events.values() for event in each if wanted(event.id))
        return [Change(event, self._records[event.submission]) for event in events]

    # Lanes.

    async def set_paused(
        self, chain_id: int, sender: bytes, *, paused: bool, version: int, detail: str, actor: str
    ) -> Lane | None:
        """As `store.Journal.set_paused`."""
        if self._lane(chain_id, sender).version != version:
            return None
        lane = Lane(chain_id, sender, paused, version + 1, storable(detail), actor, self._now())
        self._lanes[chain_id, sender].append(lane)
        return lane

    async def paused(self) -> list[Lane]:
        """As `store.Journal.paused`."""
        return sorted(settings[-1] for settings in self._lanes.values() if settings[-1].paused)

    async def lane_history(self, chain_id: int, sender: bytes) -> list[Lane]:
        """As `store.Journal.lane_history`."""
        return list(self._lanes.get((chain_id, sender), ()))

    # Telling.

    async def take_notices(self, receiver: str, limit: int, *, hold_ms: int) -> list[Notice]:
        """As `store.Journal.take_notices`."""
        taken = self._outbox.take(receiver, limit, self._now(), hold_ms)
        return [Notice(row.event, self._records[row.event.submission], row.tries) for row in taken]

    async def mark_notice(
        self, event: int, receiver: str, delivery: Delivery, *, due_in_ms: int = 0, error: str = ""
    ) -> None:
        """As `store.Journal.mark_notice`."""
        self._outbox.mark(event, receiver, delivery, self._now() + due_in_ms, error)

    async def bury_notices(self, *, older_than_ms: int, error: str, limit: int = 1000) -> int:
        """As `store.Journal.bury_notices`."""
        return self._outbox.bury(self._now() - older_than_ms, error, limit)

    # Housekeeping.

    async def claim(self, name: str, owner: str, *, for_ms: int) -> Claim:
        """As `store.Journal.claim`."""
        now = self._now()
        held = self._claims.get(name)
        if held is not None and held.owner != owner and now < held.until_ms <= now + 4 * for_ms:
            return held._replace(mine=False)
        fence = 1 if held is None else held.fence + (held.owner != owner)
        self._claims[name] = claim = Claim(name, owner, fence, now + for_ms, mine=True)
        return claim

    async def release(self, name: str, owner: str) -> None:
        """As `store.Journal.release`."""
        held = self._claims.get(name)
        if held is not None and held.owner == owner:
            self._claims[name] = held._replace(until_ms=0)

    async def note_count(self, endpoint: str, chain_id: int, sender: bytes, count: int) -> int:
        """As `store.Journal.note_count`."""
        key = (endpoint, chain_id, sender)
        self._counts[key] = max(self._counts.get(key, 0), count)
        return self._counts[key]

    async def prune(self, *, older_than_ms: int, limit: int = 1000) -> int:
        """As `store.Journal.prune`."""
        old = [record for record in self._records.values() if self._prunable(record, self._now() - older_than_ms)]
        for record in old[:limit]:
            self._forget(record)
        return len(old[:limit])

    def _prunable(self, record: Record, before_ms: int) -> bool:
        if record.state not in TERMINAL or record.may_still_land or record.since_ms > before_ms:
            return False
        lane = (record.chain_id, record.sender)
        higher = any((row.chain_id, row.sender) == lane and row.nonce > record.nonce for row in self._records.values())
        return higher and not self._outbox.waits_for({event.id for event in self._events[record.id]})

    def _forget(self, record: Record) -> None:
        del self._records[record.id], self._payloads[record.id], self._by_hash[record.chain_id, record.hash]
        self._outbox.forget({event.id for event in self._events.pop(record.id)})
        self._keys = {key: bound for key, bound in self._keys.items() if bound[0] != record.id}
        self._attempts = {id_: row for id_, row in self._attempts.items() if row.submission != record.id}
        self._receipts = {id_: row for id_, row in self._receipts.items() if id_[0] != record.id}

    async def check(self) -> None:
        """Always."""

    async def close(self) -> None:
        """Nothing to let go."""
