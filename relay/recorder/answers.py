"""What a client hears because of the journal: pure.

Job: from what was found for a repeated submission, and from a store's faults, to outcomes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relay import errors
from relay.journal.faults import Unavailable
from relay.journal.idempotency import Repeat
from relay.lifecycle import WORDS, State

if TYPE_CHECKING:
    from relay.errors import Refusal
    from relay.journal.records import Record
    from relay.submission import Outcome, Submission

_ENDED: Final = {
    State.FAILED: "it failed",
    State.SUPERSEDED: "another transaction took its nonce for good",
    State.CANCELLED: "it was withdrawn before it was sent",
    State.DEAD_LETTER: "recovery gave it up",
}
_CONFLICT: Final = {
    Repeat.CONFLICT_BYTES: "it belongs to another transaction",
    Repeat.CONFLICT_OLD: "it was first used longer ago than the dedupe window ([journal] dedupe_h)",
}


def conflict(repeat: Repeat, record: Record) -> Refusal:
    """The key is another's, or too old. ``record`` is what it belongs to."""
    data = _shown(record)
    return errors.KEY_CONFLICT.refusal(detail=_CONFLICT[repeat], data=data)


def closed(record: Record) -> Refusal:
    """It ended, and not with success."""
    detail = _ENDED.get(record.state, f"it is {record.state}")
    if record.reason is not None:
        detail += f" ({WORDS[record.reason].words})"
    if record.may_still_land:
        detail += "; it may still land, so send no other in its place until it settles"
    data = _shown(record)
    return errors.KEY_CLOSED.refusal(detail=detail, data=data)


def ended(submission: Submission, record: Record) -> Outcome:
    """Somebody else brought it to an end before its turn."""
    return submission.own_hash if record.state in (State.MINED, State.COMPLETED) else closed(record)


def unsealed(fault: Exception) -> Refusal:
    """The intent could not be written: nothing is sent, and its record says so before this is told."""
    return errors.JOURNAL_UNAVAILABLE.refusal(detail=_for_clients(fault))


def _for_clients(fault: Exception) -> str:
    """Where the journal lies, and what is wrong with it, is in the log and in /readyz."""
    return "send again shortly" if isinstance(fault, Unavailable) else "its operator must act"


def unwritten(submission: Submission, fault: Exception) -> Outcome:
    """The record could not be written: nothing was sent; but if it may be there, it may be sent later."""
    if isinstance(fault, Unavailable) and fault.maybe:
        return submission.unknown
    return errors.JOURNAL_UNAVAILABLE.refusal(detail=_for_clients(fault))


def _shown(record: Record) -> dict[str, object]:
    return {"hash": "0x" + record.hash.hex(), "state": record.state.value, "mayStillLand": record.may_still_land}
