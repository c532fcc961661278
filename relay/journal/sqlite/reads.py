"""What the reading thread does: each function is a job.

Job: the operations of `store.Journal` that only look. A reader sees every commit that had returned before it began.
Must not know: threads, the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from relay.journal.records import LARGEST, Admission, Census, Change, Count, Key, Outstanding, Payload, untouched
from relay.journal.rows import WIDTH, attempt_of, change_of, event_of, lane_of, reason_of, receipt_of, record_of
from relay.journal.statements import load
from relay.lifecycle import State

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Sequence

    from relay.journal.records import Attempt, Cursor, Event, Lane, ReceiptSeen, Record

T = TypeVar("T")

SQL = load("relay.journal.sqlite")


def one(connection: sqlite3.Connection, value: Callable[[Sequence[Any]], T], sql: str, parameters: Any) -> T | None:
    """The only row of a statement as a value."""
    row = connection.execute(sql, parameters).fetchone()
    return None if row is None else value(row)


def _many(connection: sqlite3.Connection, value: Callable[[Sequence[Any]], T], sql: str, parameters: Any) -> list[T]:
    return list(map(value, connection.execute(sql, parameters).fetchall()))


def by_id(connection: sqlite3.Connection, submission: int) -> Record | None:
    """As `store.Journal.by_id`."""
    return one(connection, record_of, SQL["by_id"], (submission,))


def by_hash(connection: sqlite3.Connection, chain_id: int | None, hash_: bytes) -> Record | None:
    """As `store.Journal.by_hash`."""
    return one(connection, record_of, SQL["by_hash"], (hash_, chain_id))


def by_key(connection: sqlite3.Connection, chain_id: int, sender: bytes, key: str) -> Admission | None:
    """As `store.Journal.by_key`."""
    row = connection.execute(SQL["holder"], {"chain_id": chain_id, "sender": sender, "key": key}).fetchone()
    if row is None:
        return None
    (now,) = connection.execute(SQL["now"]).fetchone()
    return Admission(record_of(row[:WIDTH]), fresh=False, key_age_ms=now - row[WIDTH])


def payload(connection: sqlite3.Connection, submission: int) -> Payload | None:
    """As `store.Journal.payload`."""
    return one(connection, Payload._make, SQL["payload"], (submission,))


def unfinished(connection: sqlite3.Connection, after: Cursor, limit: int, states: Collection[State]) -> list[Record]:
    """As `store.Journal.unfinished`."""
    wanted = orjson.dumps(sorted(states)).decode()
    return _many(connection, record_of, SQL["unfinished"], after._asdict() | {"limit": limit, "states": wanted})


def outstanding(connection: sqlite3.Connection, after: Cursor, limit: int) -> list[Outstanding]:
    """As `store.Journal.outstanding`."""
    place = {"chain_id": after.chain_id, "sender": after.sender, "limit": limit}
    return _many(connection, Outstanding._make, SQL["outstanding"], place)


def lowest(connection: sqlite3.Connection, chain_id: int, sender: bytes) -> int | None:
    """As `store.Journal.lowest`."""
    return one(connection, lambda row: int(row[0]), SQL["lowest"], (chain_id, sender))


def lane(connection: sqlite3.Connection, chain_id: int, sender: bytes, limit: int) -> tuple[Lane, list[Record]]:
    """As `store.Journal.lane`."""
    setting = one(connection, lane_of, SQL["lane"], (chain_id, sender)) or untouched(chain_id, sender)
    return setting, _many(connection, record_of, SQL["lane_rows"], (chain_id, sender, limit))


def lane_history(connection: sqlite3.Connection, chain_id: int, sender: bytes) -> list[Lane]:
    """As `store.Journal.lane_history`."""
    return _many(connection, lane_of, SQL["lane_history"], (chain_id, sender))


def paused(connection: sqlite3.Connection) -> list[Lane]:
    """As `store.Journal.paused`."""
    return _many(connection, lane_of, SQL["paused"], ())


def listing(connection: sqlite3.Connection, state: State, before: tuple[int, int] | None, limit: int) -> list[Record]:
    """As `store.Journal.listing`."""
    return _many(connection, record_of, SQL["listing"], (state, *(before or (LARGEST, LARGEST)), limit))


def attempts(connection: sqlite3.Connection, submission: int) -> list[Attempt]:
    """As `store.Journal.attempts`."""
    return _many(connection, attempt_of, SQL["attempts"], (submission,))


def receipts(connection: sqlite3.Connection, submission: int) -> list[ReceiptSeen]:
    """As `store.Journal.receipts`."""
    return _many(connection, receipt_of, SQL["receipts"], (submission,))


def history(connection: sqlite3.Connection, submission: int) -> list[Event]:
    """As `store.Journal.history`."""
    return _many(connection, event_of, SQL["history"], (submission,))


def latest_changes(connection: sqlite3.Connection, limit: int) -> list[Change]:
    """As `store.Journal.latest_changes`."""
    return _many(connection, change_of, SQL["latest_changes"], (limit,))[::-1]


def changes_since(connection: sqlite3.Connection, after: int, limit: int) -> list[Change]:
    """As `store.Journal.changes_since`."""
    return _many(connection, change_of, SQL["changes_since"], (after, limit))


def changes_of(connection: sqlite3.Connection, events: Collection[int]) -> list[Change]:
    """As `store.Journal.changes_of`."""
    return _many(connection, change_of, SQL["changes_of"], (orjson.dumps(list(events)).decode(),))


def keys(connection: sqlite3.Connection, submission: int) -> list[Key]:
    """As `store.Journal.keys`."""
    return _many(connection, Key._make, SQL["keys"], (submission,))


def census(connection: sqlite3.Connection) -> Census:
    """As `store.Journal.census`."""
    (now,) = connection.execute(SQL["now"]).fetchone()
    counts = _many(connection, _count_of, SQL["open_counts"], ())
    return Census(now, tuple(counts), *connection.execute(SQL["outbox_counts"]).fetchone())


def _count_of(row: Sequence[Any]) -> Count:
    return Count(State(row[0]), reason_of(row[1]), row[2], row[3])
