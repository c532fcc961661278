"""What stores share: the ruling on a decision, idempotency, statements from files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.journal.idempotency import Repeat, judge
from relay.journal.memory import MemoryJournal
from relay.journal.records import LARGEST, Admission, Decision, Forbidden, Missing, Record, Stale, recordable
from relay.journal.ruling import refusal, way
from relay.journal.statements import load, migrations
from relay.lifecycle import LIVE, Mode, Reason, State, holds
from relay.testing.samples import CHAIN, intake

states = st.sampled_from(State)
small = st.integers(0, 3)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Any record, its attempts in order."""
    attempts = draw(small)
    return Record(
        1, CHAIN, b"\xaa" * 20, 0, b"\x01" * 32, "m", draw(st.sampled_from(Mode)), 0, draw(states),
        draw(st.none() | st.sampled_from(Reason)), "", None, draw(st.integers(1, 3)), draw(small), 0, attempts,
        draw(st.integers(0, attempts)), 0,
    )  # fmt: skip


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    """Any decision."""
    return Decision(
        1, draw(states), draw(st.integers(1, 3)), draw(states), fence=draw(small), attested=draw(st.booleans())
    )


@given(record=records(), decision=decisions())
def test_a_decision_passes_if_and_only_if_all_holds(record: Record, decision: Decision) -> None:
    """Version, state, fence, table and guard; staleness is told before anything else."""
    row = way(decision)
    told = refusal(record, decision, row)
    current = decision.version == record.version and decision.origin is record.state
    current = current and (decision.fence == 0 or decision.fence >= record.fence)
    allowed = row is not None and holds(
        row.guard, attempts=record.attempts, open_attempts=record.open_attempts, attested=decision.attested
    )
    assert isinstance(told, Stale) == (not current)
    assert isinstance(told, Forbidden) == (current and not allowed)
    assert (told is None) == (current and allowed)


def test_a_decision_on_nothing_is_missing() -> None:
    """There is no record."""
    assert refusal(None, Decision(9, State.QUEUED, 1, State.FAILED), None) == Missing(9)


@given(record=records(), same=st.booleans(), age=st.integers(0, 200))
def test_a_repeat_is_taken_in_only_where_it_is_safe(record: Record, same: bool, age: int) -> None:
    """Never a second payment: other bytes and old keys conflict; what may still land is never begun anew."""
    repeat = judge(Admission(record, fresh=False, same_bytes=same, key_age_ms=age), 100)
    assert repeat is not Repeat.ENTER
    assert (repeat is Repeat.CONFLICT_BYTES) == (not same)
    if same and age > 100:
        assert repeat is Repeat.CONFLICT_OLD
    if repeat is Repeat.AGAIN:
        assert record.state is State.FAILED
        assert record.releases_key
    if repeat in (Repeat.ATTACH, Repeat.READ_BACK):
        assert record.state in LIVE | {State.COMPLETED}


def test_numbers_that_no_store_holds() -> None:
    """63 bits fit."""
    assert recordable(LARGEST, LARGEST)
    assert not recordable(LARGEST + 1, 0)
    assert not recordable(1, LARGEST + 1)


@pytest.mark.parametrize("package", ["relay.journal.sqlite", "relay.journal.postgres"])
def test_each_statement_has_a_name_and_one_statement(package: str) -> None:
    """So that a log or a profile of the database leads back to it."""
    statements = load(package)
    assert len(statements) > 30
    for name, text in statements.items():
        assert text, name
        assert ";" not in text, name
        assert "{" not in text, name
    assert migrations(package)


async def test_an_old_key_by_the_clock_of_the_store() -> None:
    """25 hours later the same key is a conflict, the same bytes alone are not."""
    now = 1_000_000
    journal = MemoryJournal(now_ms=lambda: now)
    entry = intake(key="k")
    await journal.admit([entry])
    now += 25 * 3_600_000
    day = 24 * 3_600_000
    assert judge((await journal.admit([entry]))[0], day) is Repeat.CONFLICT_OLD
    assert judge((await journal.admit([entry._replace(key="")]))[0], day) is Repeat.ATTACH
