"""A change of a submission as a receiver reads it.

Job: notice → id and body. Both are the same at every try: the transaction is shown as this change left it, however far
it has come meanwhile.
Rules: what any client may see of a transaction, and no more (`relay.views.public`).
Must not know: HTTP, signatures, receivers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from relay import views
from relay.lifecycle import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay.journal.records import Event, Notice, ReceiptSeen, Record

TYPE: Final = "transaction.state"

ON_CHAIN: Final = frozenset({State.MINED, State.COMPLETED})
"""States whose body says in which block."""


def event_id(event: Event) -> str:
    """Constant, and not used again by another journal: its number, behind the store's time of the change."""
    return f"evt_{event.at_ms}_{event.id}"


def body(notice: Notice, receipts: Sequence[ReceiptSeen] = ()) -> bytes:
    """JSON. ``receipts``: all that were seen, for a change to one of `ON_CHAIN`."""
    event = notice.event
    return orjson.dumps(
        {
            "id": event_id(event),
            "type": TYPE,
            "at": views.moment(event.at_ms),
            "version": event.version,
            "origin": None if event.origin is None else event.origin.value,
            "transaction": views.public(_as_it_was(notice.record, event), receipts),
        }
    )


def _as_it_was(record: Record, event: Event) -> Record:
    """``record`` right after ``event``."""
    return record._replace(
        state=event.state,
        reason=event.reason,
        detail=event.detail,
        version=event.version,
        fence=event.fence,
        since_ms=record.since_ms if event.version == record.version else event.at_ms,
    )
