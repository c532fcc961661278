"""What the writing thread does: each function is a job, run inside a transaction.

Job: the operations of `store.Journal` that change something. The write lock is held from the first statement, so what
is read here stays true until the commit.
Must not know: threads, the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from relay.journal.records import Admission, Answer, Claim, Notice, Record, Sealed, Taken, storable
from relay.journal.rows import WIDTH, event_of, lane_of, record_of
from relay.journal.ruling import refusal, seal_way, sealing, way
from relay.journal.sqlite.reads import one
from relay.journal.statements import load

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from relay.journal.records import Decision, Fact, Intake, Lane, Refused, Seal
    from relay.lifecycle import State, Transition

SQL = load("relay.journal.sqlite")

ROOM: Final = "x" * 32_768
"""A file that has not this much room is full: the next submissions may not fit."""


def now_ms(connection: sqlite3.Connection) -> int:
    """The store's clock."""
    return int(connection.execute(SQL["now"]).fetchone()[0])


class Writes:
    """The jobs. Every event is also put into the outbox for each of ``receivers``."""

    def __init__(self, receivers: Sequence[str]) -> None:
        self._receivers = tuple(receivers)

    def admit(self, connection: sqlite3.Connection, intakes: Sequence[Intake]) -> list[Admission]:
        """As `store.Journal.admit`."""
        now = now_ms(connection)
        return [self._admit(connection, intake, now) for intake in intakes]

    def _admit(self, connection: sqlite3.Connection, intake: Intake, now: int) -> Admission:
        if intake.key and (held := held_key(connection, intake, now)) is not None:
            return held
        record = self._insert(connection, intake, now)
        fresh = record is not None
        if record is None:
            record = one(connection, record_of, SQL["by_hash"], (intake.hash, intake.chain_id))
            assert record is not None
        if intake.key:
            bound = {
                "chain_id": intake.chain_id, "sender": intake.sender, "key": intake.key, "submission": record.id,
                "now": now,
            }  # fmt: skip
            connection.execute(SQL["bind_key"], bound)
        return Admission(record, fresh)

    def _insert(self, connection: sqlite3.Connection, intake: Intake, now: int) -> Record | None:
        values = {
            "chain_id": intake.chain_id, "sender": intake.sender, "nonce": intake.nonce, "hash": intake.hash,
            "method": intake.method, "mode": intake.mode, "now": now,
        }  # fmt: skip
        record = one(connection, record_of, SQL["admit"], values)
        if record is not None:
            connection.execute(SQL["keep_payload"], (record.id, intake.raw, intake.method, intake.params))
            self._changed(connection, None, record, intake.actor, now)
        return record

    def _changed(
        self, connection: sqlite3.Connection, origin: State | None, record: Record, actor: str, now: int
    ) -> None:
        event = connection.execute(
            SQL["tell_history"],
            (
                record.id, origin, record.state, record.reason, record.detail, actor, record.fence, record.version, now,
            ),
        ).lastrowid  # fmt: skip
        for receiver in self._receivers:
            connection.execute(SQL["put_out"], (event, receiver, now))

    def seal(self, connection: sqlite3.Connection, seals: Sequence[Seal]) -> list[Sealed | Refused]:
        """As `store.Journal.seal`."""
        now = now_ms(connection)
        return [self._seal(connection, seal, now) for seal in seals]

    def _seal(self, connection: sqlite3.Connection, seal: Seal, now: int) -> Sealed | Refused:
        done = self._move(connection, SQL["seal"], sealing(seal), seal_way(seal), now)
        if not isinstance(done, Record):
            return done
        return Sealed(done, _begin(connection, done.id, seal.node, seal.fence, seal.actor, now))

    def decide(self, connection: sqlite3.Connection, decisions: Sequence[Decision]) -> list[Record | Refused]:
        """As `store.Journal.decide`."""
        now = now_ms(connection)
        return [self._decide(connection, decision, now) for decision in decisions]

    def _decide(self, connection: sqlite3.Connection, decision: Decision, now: int) -> Record | Refused:
        _note(connection, decision.facts, now)
        return self._move(connection, SQL["decide"], decision, way(decision), now)

    def _move(
        self, connection: sqlite3.Connection, sql: str, decision: Decision, row: Transition | None, now: int
    ) -> Record | Refused:
        if row is not None:
            values = decision._asdict()
            values |= {"detail": storable(decision.detail), "guard": row.guard, "renews": row.renews, "now": now}
            del values["facts"]
            if (record := one(connection, record_of, sql, values)) is not None:
                self._changed(connection, decision.origin, record, decision.actor, now)
                return record
        newest = one(connection, record_of, SQL["by_id"], (decision.submission,))
        refused = refusal(newest, decision, row)
        assert refused is not None, "the statement and `ruling` read the same rules"
        return refused

    def prune(self, connection: sqlite3.Connection, older_than_ms: int, limit: int) -> int:
        """As `store.Journal.prune`. Where nobody is told, nothing waits for it."""
        values = {
            "older_than_ms": older_than_ms,
            "limit": limit,
            "tell": bool(self._receivers),
            "now": now_ms(connection),
        }
        return connection.execute(SQL["prune"], values).rowcount


def held_key(connection: sqlite3.Connection, intake: Intake, now: int) -> Admission | None:
    """What holds the intake's key, None if nothing does, or what held it has released it."""
    place = {"chain_id": intake.chain_id, "sender": intake.sender, "key": intake.key}
    row = connection.execute(SQL["holder"], place).fetchone()
    if row is None or (record := record_of(row[:WIDTH])).releases_key:
        return None
    return Admission(record, fresh=False, same_bytes=record.hash == intake.hash, key_age_ms=now - row[WIDTH])


def _begin(connection: sqlite3.Connection, *values: int | str) -> int:
    attempt = connection.execute(SQL["begin_attempt"], values).lastrowid
    assert attempt is not None
    return attempt


def attempt(connection: sqlite3.Connection, submission: int, node: str, fence: int, actor: str) -> int | None:
    """As `store.Journal.attempt`."""
    if connection.execute(SQL["count_attempt"], (submission,)).rowcount == 0:
        return None
    return _begin(connection, submission, node, fence, actor, now_ms(connection))


def note(connection: sqlite3.Connection, facts: Sequence[Fact]) -> None:
    """As `store.Journal.note`."""
    _note(connection, facts, now_ms(connection))


def _note(connection: sqlite3.Connection, facts: Iterable[Fact], now: int) -> None:
    for fact in facts:
        if not isinstance(fact, Answer):
            connection.execute(SQL["see_receipt"], (*fact, now))
            continue
        values = (now, fact.taken, fact.verdict, storable(fact.text), fact.attempt)
        first = connection.execute(SQL["answer"], values).rowcount == 1
        if first and fact.taken is Taken.NO:
            connection.execute(SQL["close_attempt"], (fact.attempt,))


def set_paused(connection: sqlite3.Connection, values: dict[str, Any]) -> Lane | None:
    """As `store.Journal.set_paused`."""
    return one(connection, lane_of, SQL["set_lane"], values | {"now": now_ms(connection)})


def take_notices(connection: sqlite3.Connection, receiver: str, limit: int, hold_ms: int) -> list[Notice]:
    """As `store.Journal.take_notices`."""
    values = {"receiver": receiver, "limit": limit, "hold_ms": hold_ms, "now": now_ms(connection)}
    taken = sorted(connection.execute(SQL["take_notices"], values).fetchall())
    notices = []
    for event, tries in taken:
        row = connection.execute(SQL["notice"], (event,)).fetchone()
        notices.append(Notice(event_of(row[:-WIDTH]), record_of(row[-WIDTH:]), tries))
    return notices


def mark_notice(connection: sqlite3.Connection, values: dict[str, Any]) -> None:
    """As `store.Journal.mark_notice`."""
    connection.execute(SQL["mark_notice"], values | {"error": storable(values["error"]), "now": now_ms(connection)})


def bury_notices(connection: sqlite3.Connection, older_than_ms: int, error: str, limit: int) -> int:
    """As `store.Journal.bury_notices`."""
    values = {"older_than_ms": older_than_ms, "error": storable(error), "limit": limit, "now": now_ms(connection)}
    return connection.execute(SQL["bury_notices"], values).rowcount


def claim(connection: sqlite3.Connection, name: str, owner: str, for_ms: int) -> Claim:
    """As `store.Journal.claim`."""
    values = {"name": name, "owner": owner, "for_ms": for_ms, "now": now_ms(connection)}
    mine = connection.execute(SQL["claim"], values).fetchone()
    row = mine or connection.execute(SQL["claimed"], (name,)).fetchone()
    return Claim._make((*row, mine is not None))


def release(connection: sqlite3.Connection, name: str, owner: str) -> None:
    """As `store.Journal.release`."""
    connection.execute(SQL["release"], (name, owner))


def note_count(connection: sqlite3.Connection, endpoint: str, chain_id: int, sender: bytes, count: int) -> int:
    """As `store.Journal.note_count`."""
    return int(connection.execute(SQL["note_count"], (endpoint, chain_id, sender, count)).fetchone()[0])


def check(connection: sqlite3.Connection) -> None:
    """Write one row, and see that there is room for more: a row that is changed in its place needs none."""
    connection.execute(SQL["write_health"], {"now": now_ms(connection)})
    connection.execute("SAVEPOINT room")
    connection.execute(SQL["take_room"], {"room": ROOM})
    connection.execute("ROLLBACK TO room")
    connection.execute("RELEASE room")
