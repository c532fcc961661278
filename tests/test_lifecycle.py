"""The table of a submission's life."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.lifecycle import (
    CONSEQUENCES,
    LIVE,
    OPEN,
    PROVES_NOT_TAKEN,
    TERMINAL,
    TRANSITIONS,
    WORDS,
    Guard,
    Mode,
    Reason,
    State,
    SubStatus,
    consequence,
    holds,
    may_still_land,
    releases_key,
    transition,
)
from relay.verdict import Disposition
from tests.lifecycle_page import PAGE, drawn


def test_the_page_is_drawn_from_the_table() -> None:
    """docs/lifecycle.md; `python -m tests.lifecycle_page` draws it anew."""
    text = PAGE.read_text("utf-8")
    assert drawn(text) == text


def test_terminal_states_have_only_these_ways_out() -> None:
    """A reorganisation, proof, or a person; nothing else, whatever is added to the table."""
    assert {(row.origin, row.target) for row in TRANSITIONS if row.origin in TERMINAL} == {
        (State.COMPLETED, State.MINED),
        (State.DEAD_LETTER, State.COMPLETED),
        (State.DEAD_LETTER, State.SUPERSEDED),
        (State.DEAD_LETTER, State.QUEUED),
        (State.FAILED, State.QUEUED),
    }


def test_each_way_stands_once() -> None:
    """Two rows for one pair would hide a guard."""
    assert len({(row.origin, row.target) for row in TRANSITIONS}) == len(TRANSITIONS)
    assert all(row.origin is not row.target and row.why for row in TRANSITIONS)


def test_every_state_is_reached_and_every_live_one_ends() -> None:
    """From QUEUED to everywhere, and from everywhere live to somewhere terminal."""
    targets = {State.QUEUED} | {row.target for row in TRANSITIONS}
    assert targets == set(State)
    for state in LIVE:
        assert {row.target for row in TRANSITIONS if row.origin is state} & (TERMINAL | {State.MINED})


def test_failure_is_always_guarded() -> None:
    """No way to FAILED while an attempt is open."""
    assert {row.guard for row in TRANSITIONS if row.target is State.FAILED} == {Guard.CERTAIN}
    assert {row.guard for row in TRANSITIONS if row.target is State.CANCELLED} == {Guard.UNSENT}


def test_only_a_retry_renews_the_budget() -> None:
    """A hold does not: otherwise nothing would ever end."""
    assert {(row.origin, row.target) for row in TRANSITIONS if row.renews} == {
        (State.DEAD_LETTER, State.QUEUED),
        (State.FAILED, State.QUEUED),
    }


@pytest.mark.parametrize("state", State)
def test_staying_is_for_what_is_open(state: State) -> None:
    """A reason may change where something is still waited for."""
    assert (transition(state, state) is not None) == (state in OPEN)


@given(
    guard=st.sampled_from(Guard), attempts=st.integers(0, 3), open_=st.integers(0, 3), attested=st.booleans()
)  # fmt: skip
def test_guards_only_ever_tighten_with_attempts(guard: Guard, attempts: int, open_: int, attested: bool) -> None:
    """One more attempt, open or not, never opens a way."""
    open_ = min(open_, attempts)
    before = holds(guard, attempts=attempts, open_attempts=open_, attested=attested)
    after = holds(guard, attempts=attempts + 1, open_attempts=open_ + 1, attested=attested)
    assert before or not after


def test_may_still_land_is_false_only_on_proof() -> None:
    """Each state, with and without an open attempt."""
    assert {state for state in State if may_still_land(state, 0)} == LIVE
    assert {state for state in State if may_still_land(state, 1)} == OPEN


def test_every_reason_has_words_and_states() -> None:
    """And a kind that fits: failures with failed, giving up with dead letters."""
    assert set(WORDS) == set(Reason)
    for reason, row in WORDS.items():
        assert row.words, reason
        assert row.states, reason
        assert (row.sub_status is SubStatus.GIVEN_UP) == (row.states == {State.DEAD_LETTER}), reason
        assert row.sub_status is not SubStatus.HELD or row.states <= LIVE, reason
    assert len({row.words for row in WORDS.values()}) == len(WORDS)


def test_every_consequence_is_a_way_from_sealed() -> None:
    """Each disposition has one for each mode, under a reason of that state."""
    assert set(CONSEQUENCES) == set(Disposition)
    for steps in CONSEQUENCES.values():
        for target, reason in steps:
            assert transition(State.SEALED, target) is not None
            assert reason is None or target in WORDS[reason].states


@pytest.mark.parametrize("disposition", Disposition)
@pytest.mark.parametrize("mode", Mode)
def test_what_fails_or_waits_is_proven_not_taken(disposition: Disposition, mode: Mode) -> None:
    """The guard of FAILED and QUEUED holds for whatever the table sends there; nothing uncertain goes there."""
    step = consequence(disposition, mode, uncertain=False)
    assert step.target not in (State.FAILED, State.QUEUED) or disposition in PROVES_NOT_TAKEN
    assert consequence(disposition, mode, uncertain=True).target not in (State.FAILED, State.QUEUED)


def test_told_as_refused_is_never_resent() -> None:
    """Whoever was told no has acted on it: nothing of his waits to be sent again."""
    targets = {
        disposition: consequence(disposition, Mode.VERDICT, uncertain=False).target for disposition in Disposition
    }
    assert State.QUEUED not in targets.values()
    assert {each for each, target in targets.items() if target is State.SENT} == {Disposition.UNCERTAIN}


def test_a_key_is_released_where_the_client_was_told_no() -> None:
    """After the verdict, or before anything was sent; never elsewhere."""
    assert releases_key(State.FAILED, Mode.VERDICT, 3)
    assert releases_key(State.FAILED, Mode.ACCEPTED, 0)
    assert not releases_key(State.FAILED, Mode.ACCEPTED, 1)
    assert not any(releases_key(state, mode, 0) for state in State if state is not State.FAILED for mode in Mode)
