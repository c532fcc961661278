"""Rows of a database as the values of `records`.

Job: both databases answer with tuples in the order of the values' fields; what is an enum or a flag here is text or a
number there. Must not know: SQL, drivers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from relay.journal.records import Attempt, Change, Event, Lane, Receipt, ReceiptSeen, Record, Taken
from relay.lifecycle import Mode, Reason, State

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH: Final = len(Record._fields)
"""Columns of a record."""

_STATES: Final = {str(state): state for state in State}
_REASONS: Final[dict[str | None, Reason | None]] = {None: None, **{str(reason): reason for reason in Reason}}
_MODES: Final = {str(mode): mode for mode in Mode}


def record_of(row: Sequence[Any]) -> Record:
    """The columns of a `Record`."""
    (id_, chain_id, sender, nonce, hash_, method, mode, admitted_ms, state, reason, *rest) = row
    return Record(
        id_, chain_id, sender, nonce, hash_, method, _MODES[mode], admitted_ms, _STATES[state], _REASONS[reason], *rest
    )


def event_of(row: Sequence[Any]) -> Event:
    """The columns of an `Event`."""
    id_, submission, origin, state, reason, *rest = row
    return Event(id_, submission, _STATES.get(origin), _STATES[state], _REASONS[reason], *rest)


def change_of(row: Sequence[Any]) -> Change:
    """The columns of an `Event`, then those of a `Record`."""
    return Change(event_of(row[:-WIDTH]), record_of(row[-WIDTH:]))


def attempt_of(row: Sequence[Any]) -> Attempt:
    """The columns of an `Attempt`."""
    attempt = Attempt._make(row)
    return attempt if attempt.taken is None else attempt._replace(taken=Taken(attempt.taken))


def receipt_of(row: Sequence[Any]) -> ReceiptSeen:
    """The columns of a `Receipt`, and when."""
    *receipt, at_ms = row
    return ReceiptSeen(Receipt(*receipt), at_ms)


def lane_of(row: Sequence[Any]) -> Lane:
    """The columns of a `Lane`."""
    chain_id, sender, paused, *rest = row
    return Lane(chain_id, sender, bool(paused), *rest)


def reason_of(text: str | None) -> Reason | None:
    """A column that is null where there is none."""
    return _REASONS[text]
