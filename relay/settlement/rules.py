"""What is done about a submission that has no receipt: two tables.

Job: `concluded` reads the evidence of a sweep by `SWEEP`, `overdue` that of the watch by `OVERDUE`, the first row that
fits; ``docs/journal.md`` is drawn from them.
Rules: every way out needs proof. While one endpoint has not answered, nothing moves; while one knows the transaction,
it is not resent; absence from a pool proves nothing about the chain. A resend is harmless (the same bytes), so it needs
less than a verdict. Nothing is resent that the chain would not take now for a reason that has a name.
Must not know: nodes, stores, lanes' turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from relay.lifecycle import Reason, State
from relay.settlement.evidence import LEAVE, RESEND, UNRESOLVED, Leave, Move

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.settlement.evidence import Conclusion, Evidence

TIMEOUT_MS: Final = 120_000
"""Without a receipt for so long: a reason is given, and the sweep may resend."""
SKEW_MS: Final = 60_000
"""What is further in the future than this was written by a clock that was set back since: it is old."""
PRIVATE_MS: Final = 600_000
"""A private submission is shown to nobody while it waits; for so long its absence means nothing."""
LOOKS: Final = 3
"""Sweeps in a row with the same counts before they are believed without a second witness: that a nonce is taken by
somebody who cannot be named, that a count has really fallen."""


class Rules(NamedTuple):
    """What an operator sets: how often the same bytes are sent again, how long a turn may take."""

    max_resends: int
    max_wait_ms: int


class Row(NamedTuple):
    """One row: in these states, if ``holds``, then ``then``; ``when`` and ``why`` are for a person."""

    name: str
    states: frozenset[State]
    when: str
    holds: Callable[[Evidence, Rules], bool]
    then: Conclusion
    why: str


_S, _R = State, Reason
_OUT: Final = frozenset({_S.SENT, _S.PENDING})
_SEALED: Final = frozenset({_S.SEALED})
_QUEUED: Final = frozenset({_S.QUEUED})
_LIVE: Final = _OUT | _SEALED | _QUEUED
_ALL: Final = _LIVE | {_S.DEAD_LETTER}


def _unanswered(evidence: Evidence, _: Rules) -> bool:
    """Silence, or a count that has fallen: that endpoint lags, unless it says so again and again."""
    lags = evidence.looks < LOOKS and any(each.behind for each in evidence.counts)
    return (
        lags or None in evidence.known or any(each.latest is None or each.pending is None for each in evidence.counts)
    )


def _taken(evidence: Evidence, _: Rules) -> bool:
    if not evidence.nonce_final or evidence.rival == evidence.record.hash:
        return False
    return evidence.rival is not None or evidence.looks >= LOOKS


def is_young(state: State, age_ms: int, rules: Rules) -> bool:
    """Is it too early to do anything? Of a dead letter it never is: proof may come at any time."""
    return state in _LIVE and -SKEW_MS < age_ms < (TIMEOUT_MS if state in _OUT else rules.max_wait_ms)


def _young(evidence: Evidence, rules: Rules) -> bool:
    return is_young(evidence.record.state, evidence.age_ms, rules)


def _knows(evidence: Evidence, _: Rules) -> bool:
    return evidence.somebody_knows


def _private(evidence: Evidence, _: Rules) -> bool:
    return not evidence.public and evidence.age_ms < PRIVATE_MS and evidence.record.attempts > 0


def _used_up(evidence: Evidence, rules: Rules) -> bool:
    return evidence.record.tries > rules.max_resends


def _never_sent(evidence: Evidence, _: Rules) -> bool:
    return evidence.record.attempts == 0


SWEEP: Final[tuple[Row, ...]] = (
    Row(
        "taken for good", _ALL,
        "all endpoints answered, none knows it, all count its nonce `confirmations` deep, and the chain shows another "
        f"hash there (or none can be named, {LOOKS} sweeps in a row)",
        lambda evidence, rules: not _unanswered(evidence, rules) and not evidence.somebody_knows
        and _taken(evidence, rules),
        Move(_S.SUPERSEDED, _R.NONCE_TAKEN), "another hash is final at its nonce",
    ),
    Row(
        "given up", frozenset({_S.DEAD_LETTER}), "otherwise", lambda *_: True, LEAVE,
        "only proof or a person moves a dead letter",
    ),
    Row(
        "young", _LIVE, f"in its state for less than {TIMEOUT_MS // 1000} s (queued and sealed: `ordering.max_wait_s`)",
        _young, LEAVE, "whoever sent it may still be at it",
    ),
    Row(
        "pool, unfunded", _OUT, "an endpoint knows it, and the balance does not cover it",
        lambda evidence, _: evidence.somebody_knows and not evidence.nonce_used and evidence.unfunded,
        Move(_S.PENDING, _R.UNFUNDED), "no block takes it until the sender is funded",
    ),
    Row(
        "pool, under base fee", _OUT, "an endpoint knows it, and its fee cap is below the base fee",
        lambda evidence, _: evidence.somebody_knows and not evidence.nonce_used and evidence.under_base_fee,
        Move(_S.PENDING, _R.UNDER_BASE_FEE), "no block takes it until the base fee falls",
    ),
    Row(
        "pool, behind a gap", _OUT, "an endpoint knows it, and a lower nonce of its sender is missing",
        lambda evidence, _: evidence.somebody_knows and evidence.behind_gap,
        Move(_S.PENDING, _R.BEHIND_GAP), "no block takes it until the gap is filled",
    ),
    Row(
        "in a pool", _OUT, "an endpoint knows it", _knows, Move(_S.PENDING, _R.TIMEOUT_IN_POOL), "it waits there",
    ),
    Row(
        "found", _QUEUED | _SEALED, "an endpoint knows it", _knows, Move(_S.PENDING), "a node has it already",
    ),
    Row(
        "unanswered", _OUT, "an endpoint did not answer, or told a higher count before", _unanswered,
        Move(_S.SENT, _R.HELD_UNANSWERED), "nothing is concluded; it stays in its state",
    ),
    Row(
        "unanswered before it was sent", _QUEUED | _SEALED, "an endpoint did not answer, or told a higher count before",
        _unanswered, UNRESOLVED, "nothing is concluded",
    ),
    Row(
        "nonce used", _OUT | _SEALED, "an endpoint counts its nonce as mined", lambda evidence, _: evidence.nonce_used,
        Move(_S.SENT, _R.TIMEOUT_NONCE_USED),
        "by another, or by itself and the receipt is not there yet; waited for until it is deep enough",
    ),
    Row(
        "nonce used before it was sent", _QUEUED, "an endpoint counts its nonce as mined",
        lambda evidence, _: evidence.nonce_used, LEAVE, "waited for until it is deep enough",
    ),
    Row(
        "private", _LIVE, f"by a private method, sent less than {PRIVATE_MS // 60_000} min ago", _private, LEAVE,
        "it is shown to nobody while it waits",
    ),
    Row(
        "paused", _QUEUED, "its lane is paused", lambda evidence, _: evidence.paused, Move(_S.QUEUED, _R.HELD_PAUSED),
        "nothing is sent until an operator resumes it",
    ),
    Row(
        "paused, out", _OUT | _SEALED, "its lane is paused", lambda evidence, _: evidence.paused, LEAVE,
        "nothing is sent until an operator resumes it",
    ),
    Row(
        "first send", _QUEUED, "never sent", _never_sent, RESEND, "whoever was to send it is gone",
    ),
    Row(
        "dropped, slot taken", _OUT | _SEALED, "nobody knows it, and a pending count says that its nonce is taken",
        lambda evidence, _: evidence.pending > evidence.record.nonce,
        Move(_S.SENT, _R.HELD_DROPPED), "a pool holds another in its place, or counts past gaps",
    ),
    Row(
        "behind a gap", _OUT | _SEALED, "nobody knows it, and a lower nonce of its sender is missing",
        lambda evidence, _: evidence.behind_gap, Move(_S.SENT, _R.BEHIND_GAP), "sent again once the gap is filled",
    ),
    Row(
        "queued behind a gap", _QUEUED, "a lower nonce of its sender is missing",
        lambda evidence, _: evidence.behind_gap, Move(_S.QUEUED, _R.BEHIND_GAP), "sent again once the gap is filled",
    ),
    Row(
        "unfunded", _OUT | _SEALED, "nobody knows it, and the balance does not cover it",
        lambda evidence, _: evidence.unfunded, Move(_S.SENT, _R.UNFUNDED), "sent again once the sender is funded",
    ),
    Row(
        "queued, unfunded", _QUEUED, "the balance does not cover it", lambda evidence, _: evidence.unfunded,
        Move(_S.QUEUED, _R.HELD_FUNDS), "sent again once the sender is funded",
    ),
    Row(
        "under base fee", _OUT | _SEALED, "nobody knows it, and its fee cap is below the base fee",
        lambda evidence, _: evidence.under_base_fee, Move(_S.SENT, _R.UNDER_BASE_FEE),
        "sent again once the base fee falls",
    ),
    Row(
        "queued, under base fee", _QUEUED, "its fee cap is below the base fee",
        lambda evidence, _: evidence.under_base_fee, Move(_S.QUEUED, _R.HELD_REPRICE),
        "sent again once the base fee falls",
    ),
    Row(
        "used up", _LIVE, "nobody knows it, its slot is free, and it was sent again `max_resends` times", _used_up,
        Move(_S.DEAD_LETTER, _R.RESENDS_USED_UP), "a person decides, or proof",
    ),
    Row(
        "dropped", _LIVE, "nobody knows it, and its slot is free", lambda *_: True, RESEND,
        "the same bytes can do no harm",
    ),
)  # fmt: skip
"""By the sweep, once receipts were looked for. What is SENT or PENDING stays which of the two it is, unless a node has
it."""


OVERDUE: Final[tuple[Row, ...]] = (
    Row(
        "young", _OUT, f"in its state for less than {TIMEOUT_MS // 1000} s", _young, LEAVE, "it may take a while",
    ),
    Row(
        "in a pool", _OUT, "the upstream knows it", _knows, Move(_S.PENDING, _R.TIMEOUT_IN_POOL), "it waits there",
    ),
    Row(
        "unanswered", _OUT, "the upstream did not answer", _unanswered, UNRESOLVED, "asked again at the next head",
    ),
    Row(
        "nonce used", _OUT, "its nonce is mined", lambda evidence, _: evidence.nonce_used,
        Move(_S.SENT, _R.TIMEOUT_NONCE_USED), "by another, or the receipt is not there yet",
    ),
    Row(
        "gap", _OUT, "a lower nonce of its sender is missing", lambda evidence, _: evidence.behind_gap,
        Move(_S.SENT, _R.TIMEOUT_GAP), "it waits for that one",
    ),
    Row(
        "dropped", _OUT, "otherwise", lambda *_: True, Move(_S.SENT, _R.TIMEOUT_DROPPED),
        "probably dropped; the sweep asks everybody",
    ),
)  # fmt: skip
"""By the watch, which asks the upstream alone and so only names."""


def row_for(evidence: Evidence, rules: Rules, rows: tuple[Row, ...] = SWEEP) -> Row:
    """The first that fits."""
    return next(row for row in rows if evidence.record.state in row.states and row.holds(evidence, rules))


def concluded(evidence: Evidence, rules: Rules) -> Conclusion:
    """What the sweep does."""
    return _said(evidence, row_for(evidence, rules).then)


def overdue(evidence: Evidence, rules: Rules) -> Conclusion:
    """What the watch says of a submission without a receipt, in SENT or PENDING."""
    return _said(evidence, row_for(evidence, rules, OVERDUE).then)


def _said(evidence: Evidence, then: Conclusion) -> Conclusion:
    """The rows say SENT or PENDING for whatever stays out; a node's word for it is never taken back here.

    What is there already for that reason is left alone, so that no event tells what did not happen.
    """
    if not isinstance(then, Move):
        return then
    record = evidence.record
    if record.state in _OUT and then.target in _OUT and not evidence.somebody_knows:
        then = then._replace(target=record.state)
    if (then.target, then.reason) == (record.state, record.reason):
        return Leave(unresolved=then.reason is _R.HELD_UNANSWERED)
    return then
