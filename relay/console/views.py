"""What only the operator's API shows, beside `relay.views`.

Must not know: stores, HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay import views

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay.journal.records import Census, Key, Lane, Outstanding, Record
    from relay.views import View


def keys(bound: Sequence[Key]) -> list[View]:
    """The idempotency keys of a submission."""
    return [{"key": key.key, "first": views.moment(key.first_ms)} for key in bound]


def waiting_lane(waiting: Outstanding, *, paused: bool) -> View:
    """A row of the list of lanes."""
    return views.outstanding(waiting) | {"paused": paused}


def lane(setting: Lane, rows: Sequence[Record], history: Sequence[Lane], *, more: bool) -> View:
    """A lane with what is open in it, in nonce order, and each setting that it ever had, oldest first."""
    return {
        **views.lane(setting),
        "open": [views.operator_row(row) for row in rows],
        "more": more,
        "settings": [views.lane(one) for one in history],
    }


def census(counts: Census) -> View:
    """What is open, by state and reason, and what waits to be told."""
    oldest = counts.outbox_oldest_ms
    return {
        "now": views.moment(counts.now_ms),
        "open": [
            {
                "state": count.state.value,
                "subStatus": views.sub_status(count.reason),
                "rows": count.rows,
                "oldest": views.moment(count.oldest_ms),
            }
            for count in counts.open
        ],
        "outbox": {
            "waiting": counts.outbox_waiting,
            "oldest": None if oldest is None else views.moment(oldest),
            "dead": counts.outbox_dead,
        },
    }
