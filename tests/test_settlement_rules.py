"""What is concluded from what: the tables of `relay.settlement`, without a node and without a store."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.journal.records import Receipt, Record
from relay.lifecycle import LIVE, WORDS, Mode, Reason, State, transition
from relay.settlement import landing, rules
from relay.settlement.evidence import RESEND, Canon, Counts, Evidence, Leave, Move, Resend, Sight
from relay.settlement.landing import ABSENCES
from relay.settlement.looks import Looks
from relay.settlement.reach import Reach
from relay.settlement.rules import LOOKS, OVERDUE, PRIVATE_MS, SWEEP, TIMEOUT_MS, Rules, concluded, is_young, overdue
from relay.telemetry import metrics
from relay.verdict import Client
from tests.settlement_page import PAGE, drawn

OURS, THEIRS = b"\x01" * 32, b"\x02" * 32
KNOBS = Rules(max_resends=3, max_wait_ms=25_000)
NONCE = 5
OUT = [State.SENT, State.PENDING]
STATES = [*OUT, State.QUEUED, State.SEALED, State.DEAD_LETTER]


def record(state: State = State.PENDING, **changes: Any) -> Record:
    """A submission that was sent once."""
    base = Record(
        1, 1337, b"\xaa" * 20, NONCE, OURS, "eth_sendRawTransaction", Mode.ACCEPTED, 0, state, None, "", None, 4, 0, 1,
        1, 1, 0,
    )  # fmt: skip
    return base._replace(**changes)


FREE = Counts(latest=NONCE, pending=NONCE, final=NONCE)
USED = Counts(latest=NONCE + 1, pending=NONCE + 1, final=NONCE)
FINAL = Counts(latest=NONCE + 1, pending=NONCE + 1, final=NONCE + 1)


def evidence(state: State = State.PENDING, **changes: Any) -> Evidence:
    """Of a submission that everybody was asked about, that nobody knows, whose slot is free, and that is old."""
    fields = {"known": (False, False), "counts": (FREE, FREE), "reach": NONCE, **changes}
    its = {name: fields.pop(name) for name in tuple(fields) if name in Record._fields}
    return Evidence(record(state, **its), fields.pop("age_ms", 10 * PRIVATE_MS), **fields)


def test_the_page_is_drawn_from_the_tables() -> None:
    """docs/journal.md; `python -m tests.settlement_page` draws it anew."""
    text = PAGE.read_text("utf-8")
    assert drawn(text) == text


def test_the_metric_has_every_reason_that_holds_something() -> None:
    """Each reason of the kinds timeout and held is a label, and nothing else."""
    kinds = {"timeout", "held"}
    assert list(metrics.HOLDS) == [reason for reason in Reason if WORDS[reason].sub_status in kinds]


@pytest.mark.parametrize("row", [*SWEEP, *OVERDUE], ids=lambda row: row.name)
def test_every_row_of_the_sweep_is_a_way_of_the_life(row: rules.Row) -> None:
    """From each of its states there is a transition, under a reason that goes with the state."""
    assert isinstance(row.then, Move | Resend | Leave)
    if not isinstance(row.then, Move):
        return
    for state in row.states:
        target = state if state in OUT and row.then.target in OUT else row.then.target
        assert transition(state, target) is not None, state
    assert row.then.reason is None or row.then.target in WORDS[row.then.reason].states


@pytest.mark.parametrize("row", landing.ROWS, ids=lambda row: row.name)
def test_every_row_of_receipts_is_a_way_of_the_life(row: landing.Row) -> None:
    """As above."""
    if isinstance(row.move, Move):
        assert all(transition(state, row.move.target) is not None for state in row.states)
        assert row.move.reason is None or row.move.target in WORDS[row.move.reason].states


@pytest.mark.parametrize("rows", [SWEEP, OVERDUE, landing.ROWS], ids=["sweep", "overdue", "landing"])
def test_names_of_rows_are_told_apart(rows: Any) -> None:
    """No row stands twice."""
    assert len({row.name for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, RESEND),
        ({"age_ms": TIMEOUT_MS - 1}, Leave()),
        ({"known": (True, False)}, Move(State.PENDING, Reason.TIMEOUT_IN_POOL)),
        ({"known": (False, True)}, Move(State.PENDING, Reason.TIMEOUT_IN_POOL)),
        ({"known": (False, None)}, Move(State.PENDING, Reason.HELD_UNANSWERED)),
        ({"counts": (FREE, Counts(None, None, None))}, Move(State.PENDING, Reason.HELD_UNANSWERED)),
        ({"counts": (FREE, FREE._replace(behind=True))}, Move(State.PENDING, Reason.HELD_UNANSWERED)),
        ({"counts": (FREE, FREE._replace(behind=True)), "looks": LOOKS}, RESEND),
        ({"counts": (FREE, FREE._replace(pending=NONCE + 1))}, Move(State.PENDING, Reason.HELD_DROPPED)),
        ({"counts": (USED, FREE)}, Move(State.PENDING, Reason.TIMEOUT_NONCE_USED)),
        ({"counts": (FINAL, USED), "rival": THEIRS}, Move(State.PENDING, Reason.TIMEOUT_NONCE_USED)),
        ({"counts": (FINAL, FINAL), "rival": THEIRS}, Move(State.SUPERSEDED, Reason.NONCE_TAKEN)),
        ({"counts": (FINAL, FINAL), "rival": OURS, "looks": 99}, Move(State.PENDING, Reason.TIMEOUT_NONCE_USED)),
        ({"counts": (FINAL, FINAL)}, Move(State.PENDING, Reason.TIMEOUT_NONCE_USED)),
        ({"counts": (FINAL, FINAL), "looks": LOOKS}, Move(State.SUPERSEDED, Reason.NONCE_TAKEN)),
        ({"reach": NONCE - 1}, Move(State.PENDING, Reason.BEHIND_GAP)),
        ({"reach": NONCE - 1, "known": (True, False)}, Move(State.PENDING, Reason.BEHIND_GAP)),
        ({"base_fee": 11, "fee_cap": 10}, Move(State.PENDING, Reason.UNDER_BASE_FEE)),
        ({"base_fee": 11, "fee_cap": 10, "known": (True, True)}, Move(State.PENDING, Reason.UNDER_BASE_FEE)),
        ({"base_fee": 10, "fee_cap": 10}, RESEND),
        ({"balance": 9, "cost": 10}, Move(State.PENDING, Reason.UNFUNDED)),
        ({"balance": 9, "cost": 10, "known": (True, True)}, Move(State.PENDING, Reason.UNFUNDED)),
        ({"paused": True}, Leave()),
        ({"tries": 3}, RESEND),
        ({"tries": 4}, Move(State.DEAD_LETTER, Reason.RESENDS_USED_UP)),
        ({"tries": 4, "known": (False, True)}, Move(State.PENDING, Reason.TIMEOUT_IN_POOL)),
        ({"public": False, "age_ms": PRIVATE_MS - 1}, Leave()),
        ({"public": False}, RESEND),
    ],
)
def test_what_was_sent(changes: dict[str, Any], expected: object) -> None:
    """A pending submission by what is known of it."""
    assert concluded(evidence(**changes), KNOBS) == expected


def test_what_is_sent_stays_sent_until_a_node_has_it() -> None:
    """No row makes *pending* of what no node is known to have, nor takes a node's word back."""
    assert concluded(evidence(State.SENT, reach=0), KNOBS) == Move(State.SENT, Reason.BEHIND_GAP)
    assert concluded(evidence(State.PENDING, reach=0), KNOBS) == Move(State.PENDING, Reason.BEHIND_GAP)
    known = (True, False)
    assert concluded(evidence(State.SENT, known=known), KNOBS) == Move(State.PENDING, Reason.TIMEOUT_IN_POOL)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, RESEND),
        ({"attempts": 0, "tries": 0, "reach": 0}, RESEND),
        ({"age_ms": KNOBS.max_wait_ms - 1}, Leave()),
        ({"known": (None, False)}, Leave(unresolved=True)),
        ({"paused": True, "attempts": 0}, Move(State.QUEUED, Reason.HELD_PAUSED)),
        ({"reach": 0}, Move(State.QUEUED, Reason.BEHIND_GAP)),
        ({"balance": 9, "cost": 10}, Move(State.QUEUED, Reason.HELD_FUNDS)),
        ({"balance": 9, "cost": 10, "reason": Reason.HELD_FUNDS}, Leave()),
        ({"balance": 10, "cost": 10, "reason": Reason.HELD_FUNDS}, RESEND),
        ({"base_fee": 11, "fee_cap": 10}, Move(State.QUEUED, Reason.HELD_REPRICE)),
        ({"known": (True, False)}, Move(State.PENDING)),
        ({"counts": (USED, USED)}, Leave()),
        ({"tries": 4}, Move(State.DEAD_LETTER, Reason.RESENDS_USED_UP)),
    ],
)
def test_what_waits(changes: dict[str, Any], expected: object) -> None:
    """A queued submission that nobody works on."""
    assert concluded(evidence(State.QUEUED, **changes), KNOBS) == expected


def test_a_reason_that_stands_there_already_is_not_written_again() -> None:
    """No event tells of what did not happen; what is unresolved is counted all the same."""
    again = evidence(known=(None, False), reason=Reason.HELD_UNANSWERED)
    assert concluded(again, KNOBS) == Leave(unresolved=True)
    assert concluded(evidence(known=(True, True), reason=Reason.TIMEOUT_IN_POOL), KNOBS) == Leave()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Move(State.PENDING, Reason.TIMEOUT_DROPPED)),
        ({"age_ms": TIMEOUT_MS - 1}, Leave()),
        ({"known": (True,)}, Move(State.PENDING, Reason.TIMEOUT_IN_POOL)),
        ({"known": (None,)}, Leave(unresolved=True)),
        ({"counts": (USED,)}, Move(State.PENDING, Reason.TIMEOUT_NONCE_USED)),
        ({"reach": 2}, Move(State.PENDING, Reason.TIMEOUT_GAP)),
    ],
)
def test_what_the_watch_says(changes: dict[str, Any], expected: object) -> None:
    """The four reasons of a time-out, and when there is none."""
    given_ = {"known": (False,), "counts": (FREE,)} | changes
    assert overdue(evidence(**given_), KNOBS) == expected


_number = st.integers(0, NONCE + 2)
_count = st.builds(Counts, st.none() | _number, st.none() | _number, st.none() | _number, st.booleans())


@st.composite
def anything(draw: st.DrawFn) -> Evidence:
    """Any evidence about anything that a sweep meets."""
    endpoints = draw(st.integers(1, 3))
    attempts = draw(st.integers(0, 6))
    its = record(
        draw(st.sampled_from(STATES)),
        reason=draw(st.none() | st.sampled_from(Reason)),
        attempts=attempts,
        tries=draw(st.integers(0, attempts)),
    )
    return Evidence(
        its,
        draw(st.integers(0, 10 * PRIVATE_MS)),
        tuple(draw(st.lists(st.none() | st.booleans(), min_size=endpoints, max_size=endpoints))),
        tuple(draw(st.lists(_count, min_size=endpoints, max_size=endpoints))),
        reach=draw(st.none() | st.integers(0, NONCE)),
        public=draw(st.booleans()),
        paused=draw(st.booleans()),
        rival=draw(st.none() | st.sampled_from([OURS, THEIRS])),
        looks=draw(st.integers(1, 5)),
        base_fee=draw(st.none() | st.integers(0, 20)),
        balance=draw(st.none() | st.integers(0, 20)),
        fee_cap=draw(st.none() | st.integers(0, 20)),
        cost=draw(st.none() | st.integers(0, 20)),
    )


@settings(max_examples=300, deadline=None)
@given(anything())
def test_whatever_is_concluded_is_a_way_of_the_life(evidence: Evidence) -> None:
    """Each evidence has a row, and no row leads where the store would refuse it."""
    conclusion = concluded(evidence, KNOBS)
    if isinstance(conclusion, Move):
        assert transition(evidence.record.state, conclusion.target) is not None
        assert conclusion.reason is None or conclusion.target in WORDS[conclusion.reason].states
    elif isinstance(conclusion, Resend):
        assert evidence.record.state in LIVE


@settings(max_examples=300, deadline=None)
@given(anything())
def test_nothing_is_resent_while_somebody_knows_it_or_did_not_answer(evidence: Evidence) -> None:
    """Nor once its budget is used up, nor in a paused lane, nor where its nonce is used."""
    if isinstance(concluded(evidence, KNOBS), Resend):
        assert set(evidence.known) == {False}
        assert all(each.latest is not None and each.pending is not None for each in evidence.counts)
        assert all(each.latest is not None and each.latest <= NONCE for each in evidence.counts)
        assert evidence.record.tries <= KNOBS.max_resends or evidence.record.attempts == 0
        assert not evidence.paused


@settings(max_examples=300, deadline=None)
@given(anything())
def test_no_verdict_rests_on_missing_evidence(evidence: Evidence) -> None:
    """Dead letters and superseded ones: everybody answered, and nobody knows it."""
    conclusion = concluded(evidence, KNOBS)
    if isinstance(conclusion, Move) and conclusion.target in (State.DEAD_LETTER, State.SUPERSEDED):
        assert set(evidence.known) == {False}
        assert all(each.latest is not None and each.pending is not None for each in evidence.counts)
    if isinstance(conclusion, Move) and conclusion.target is State.SUPERSEDED:
        assert all(each.final is not None and each.final > NONCE for each in evidence.counts)
        assert evidence.rival == THEIRS or (evidence.rival is None and evidence.looks >= LOOKS)
    if isinstance(conclusion, Move) and conclusion.target is State.DEAD_LETTER:
        assert evidence.record.tries > KNOBS.max_resends


@settings(max_examples=300, deadline=None)
@given(anything(), st.data())
def test_an_endpoint_that_falls_silent_never_leads_to_more(evidence: Evidence, data: st.DataObject) -> None:
    """Whatever was left alone with all answers is not resent, given up or superseded with fewer."""
    place = data.draw(st.integers(0, len(evidence.known) - 1))
    known, counts = list(evidence.known), list(evidence.counts)
    known[place], counts[place] = None, Counts(None, None, None)
    after = concluded(evidence._replace(known=tuple(known), counts=tuple(counts)), KNOBS)
    assert not isinstance(after, Resend)
    assert not (isinstance(after, Move) and after.target in (State.DEAD_LETTER, State.SUPERSEDED))


@settings(max_examples=300, deadline=None)
@given(anything())
def test_a_dead_letter_is_moved_by_proof_alone(evidence: Evidence) -> None:
    """Never resent, never anything but superseded."""
    dead = evidence._replace(record=evidence.record._replace(state=State.DEAD_LETTER))
    assert concluded(dead, KNOBS) in (Leave(), Move(State.SUPERSEDED, Reason.NONCE_TAKEN))


BLOCK = Receipt(1, 100, b"\x0a" * 32, 1)
ELSEWHERE = Receipt(1, 101, b"\x0b" * 32, 1)


def sight(state: State, **changes: Any) -> Sight:
    """A look at a submission in ``state``; it was seen in `BLOCK` if it was mined."""
    landed = state in (State.MINED, State.COMPLETED)
    fields: dict[str, Any] = {
        "said": True, "receipt": BLOCK, "before": BLOCK if landed else None, "canon": Canon.UNKNOWN, "head": 100,
        "confirmations": 3, **changes,
    }  # fmt: skip
    return Sight(record(state), **fields)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (sight(State.PENDING), Move(State.MINED)),
        (sight(State.QUEUED), Move(State.MINED)),
        (sight(State.SENT, receipt=BLOCK._replace(status=0)), Move(State.MINED, Reason.REVERTED)),
        (sight(State.PENDING, receipt=None), Leave()),
        (sight(State.MINED), Leave()),
        (sight(State.MINED, head=101, canon=Canon.SAME), Leave()),
        (sight(State.MINED, head=102, canon=Canon.SAME), Move(State.COMPLETED)),
        (sight(State.MINED, head=102, canon=Canon.OTHER), Leave()),
        (sight(State.MINED, head=102, canon=Canon.UNKNOWN), Leave()),
        (sight(State.MINED, receipt=ELSEWHERE, head=200), Move(State.MINED, Reason.REORGANISED)),
        (sight(State.COMPLETED, receipt=ELSEWHERE), Move(State.MINED, Reason.REORGANISED)),
        (sight(State.MINED, receipt=None, said=False, canon=Canon.OTHER), Leave()),
        (sight(State.MINED, receipt=None, canon=Canon.OTHER), Move(State.PENDING, Reason.REORGANISED)),
        (sight(State.MINED, receipt=None, canon=Canon.SAME, absences=99), Leave()),
        (sight(State.MINED, receipt=None, canon=Canon.UNKNOWN, absences=99), Leave()),
        (sight(State.MINED, receipt=None, canon=Canon.ABSENT, absences=ABSENCES - 1), Leave()),
        (sight(State.MINED, receipt=None, canon=Canon.ABSENT, absences=ABSENCES, head=99), Leave()),
        (sight(State.MINED, receipt=None, canon=Canon.ABSENT, absences=3), Move(State.PENDING, Reason.REORGANISED)),
        (sight(State.COMPLETED, receipt=None, canon=Canon.OTHER), Move(State.MINED, Reason.REORGANISED)),
        (sight(State.COMPLETED, receipt=None, canon=Canon.ABSENT, absences=99), Leave()),
        (sight(State.DEAD_LETTER), Leave()),
        (sight(State.DEAD_LETTER, head=102, canon=Canon.SAME), Move(State.COMPLETED)),
    ],
)  # fmt: skip
def test_what_receipts_lead_to(seen: Sight, expected: object) -> None:
    """Each row, and what is next to it."""
    assert landing.concluded(seen) == expected


class Besu:
    """What is known of the node."""

    client: Client | None = Client.BESU


def test_besus_pending_count_says_nothing_below_an_open_nonce() -> None:
    """It counts past gaps: with a higher nonce open, the slot of a lower one may be free all the same."""
    looks = Looks((), Besu(), confirmations=3)
    lower, higher = record(), record(id=2, nonce=NONCE + 1)
    stranger = record(id=3, sender=b"\xbb" * 20)
    told = (Counts(latest=NONCE, pending=NONCE + 2, final=NONCE),)
    free = (Counts(latest=NONCE, pending=NONCE, final=NONCE),)

    assert looks._of(lower, told, [lower, higher, stranger]) == free
    assert looks._of(lower, told, [lower]) == free, "the next page may have a higher one"
    assert looks._of(lower, told, [lower, stranger]) == told


def walked(*rows: tuple[int, bool]) -> list[int | None]:
    """The reach of each of (nonce, is it filled?), the chain's count being `NONCE`."""
    reach, seen = Reach(), []
    for nonce, filled in rows:
        here = reach.of(evidence(State.QUEUED, nonce=nonce))
        seen.append(here.reach)
        if filled:
            reach.filled(here.record)
    return seen


def test_what_is_held_fills_no_nonce() -> None:
    """What stands above one that is not sent now would be refused, and its budget used up, for a gap."""
    held, sent = (NONCE, False), (NONCE, True)

    assert walked(held, (NONCE + 1, False), (NONCE + 2, False)) == [NONCE, NONCE, NONCE]
    assert walked(sent, (NONCE + 1, True), (NONCE + 2, False)) == [NONCE, NONCE + 1, NONCE + 2]
    assert walked(sent, (NONCE + 1, False), (NONCE + 2, False)) == [NONCE, NONCE + 1, NONCE + 1]


def test_another_sender_begins_anew() -> None:
    """And where no count was said there is no reach."""
    reach = Reach()
    reach.filled(reach.of(evidence(State.QUEUED)).record)

    assert reach.of(evidence(State.QUEUED, sender=b"\xbb" * 20, nonce=NONCE + 1)).reach == NONCE
    assert reach.of(evidence(State.QUEUED, reach=None)).reach is None


@pytest.mark.parametrize("state", [*OUT, State.QUEUED, State.SEALED])
def test_what_is_from_the_future_is_old(state: State) -> None:
    """The clock was set back: it would be young for as long as the jump."""
    assert not is_young(state, -3_600_000, KNOBS)
    assert is_young(state, -5, KNOBS)
