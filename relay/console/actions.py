"""What an operator may do to a submission, and what it leads to.

Job: action × record → the decision, or why not and what else can be done. Pure; the store's guards have the last word.
Rules: nothing is said to have failed that may still land. The bytes never change: no action sends others.
Must not know: HTTP, stores, who asks.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from relay.console.problems import Problem
from relay.lifecycle import LIVE, Reason, State

if TYPE_CHECKING:
    from relay.journal.records import Record


class Action(StrEnum):
    """Each is a route and a command."""

    RETRY = "retry"
    RESEND = "resend"
    FAIL = "fail"
    CANCEL = "cancel"


class Move(NamedTuple):
    """Where to, and why. ``sends``: then its bytes take the lane's turn again."""

    target: State
    reason: Reason
    sends: bool = False


_WAIT: Final = "wait: it is watched, and settles when it is mined or another transaction takes its nonce"
_REPLACE: Final = (
    "have the key's holder replace it: same nonce, higher fees (cancel answers with the fees that it takes); it is "
    "superseded when that one is final"
)
_RESEND: Final = "resend: the same bytes take one more turn"
_RETRY: Final = "retry: the same bytes are sent again, with a fresh budget"
_ATTEST: Final = 'retry with "attest": true, if you know that the bytes were stopped'
_FAIL: Final = "fail: every attempt is proven not to have been taken"

_FINAL: Final = frozenset({State.COMPLETED, State.SUPERSEDED, State.CANCELLED})


def judge(action: Action, record: Record, *, attested: bool = False) -> Move | Problem:
    """What ``action`` leads to. ``attested``: the operator vouches that the bytes were stopped."""
    if record.state in _FINAL:
        return Problem("has_ended", f"it is {record.state}, and nothing leads out of that")
    match action:
        case Action.RETRY:
            return _retry(record, attested=attested)
        case Action.RESEND:
            return _resend(record)
        case Action.FAIL:
            return _fail(record)
        case Action.CANCEL:
            return _cancel(record)


def _retry(record: Record, *, attested: bool) -> Move | Problem:
    if record.state in LIVE:
        return Problem("still_live", f"it is {record.state}: the relay works on it", (_WAIT, _RESEND))
    if record.may_still_land and not attested:
        return Problem("may_still_land", _unproven(record), (_WAIT, _REPLACE, _ATTEST))
    return Move(State.QUEUED, Reason.RETRIED, sends=True)


def _resend(record: Record) -> Move | Problem:
    match record.state:
        case State.QUEUED:
            return Move(State.QUEUED, Reason.RETRIED, sends=True)
        case State.SEALED | State.SENT | State.PENDING:
            return Move(record.state, Reason.RESENT, sends=True)
        case State.MINED:
            return Problem("not_live", "it is in a block: sending it again does nothing", (_WAIT,))
        case _:
            return Problem("not_live", f"it is {record.state}: nothing is on its way", (_RETRY,))


def _fail(record: Record) -> Move | Problem:
    if record.state is State.FAILED:
        return Problem("has_ended", "it has failed already", (_RETRY,))
    if record.state is State.DEAD_LETTER and not record.may_still_land:
        return Problem("has_ended", "it is a dead letter that cannot land: there is nothing left to end", (_RETRY,))
    if record.open_attempts or record.state in (State.PENDING, State.MINED):
        return Problem("may_still_land", _unproven(record), (_WAIT, _REPLACE))
    return Move(State.FAILED, Reason.BY_OPERATOR)


def _cancel(record: Record) -> Move | Problem:
    if record.state in (State.FAILED, State.DEAD_LETTER) and not record.may_still_land:
        return Problem("has_ended", f"it is {record.state} and cannot land: there is nothing left to cancel")
    if record.state is State.QUEUED and not record.attempts:
        return Move(State.CANCELLED, Reason.BY_OPERATOR)
    if record.open_attempts or record.state in (State.PENDING, State.MINED):
        return Problem("was_sent", f"{_unproven(record)}; what was sent cannot be called back", (_WAIT, _REPLACE))
    return Problem("was_sent", "it was sent before, and no node took it", (_FAIL,))


def _unproven(record: Record) -> str:
    if record.state is State.MINED:
        return "it is in a block"
    if not record.open_attempts:
        return f"it is {record.state}: a node has it"
    return f"{record.open_attempts} of its {record.attempts} sends are not proven to have come to nothing"
