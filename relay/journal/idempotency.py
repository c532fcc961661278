"""What a repeated submission leads to.

Job: from what a store found for an intake to what is to be done with it. Pure: the store settles races (a key and a
hash exist once), this decides what the winner means to the others.
Rules: the key guards against paying twice, so in doubt it refuses. The window is the key's alone: the same bytes are
the same submission for ever.
Must not know: stores, HTTP, JSON-RPC.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from relay.lifecycle import State

if TYPE_CHECKING:
    from relay.journal.records import Admission


class Repeat(StrEnum):
    """What to do with an intake."""

    ENTER = "enter"
    """It is new: take it in."""
    AGAIN = "again"
    """It failed and the client knows: the same bytes are a new attempt of the same row."""
    ATTACH = "attach"
    """It is on its way: wait with it."""
    READ_BACK = "read_back"
    """A node had it: answer with the hash."""
    REFUSE = "refuse"
    """It ended otherwise: say how."""
    CONFLICT_BYTES = "conflict_bytes"
    """The key was used for another transaction."""
    CONFLICT_OLD = "conflict_old"
    """The key was first used before the window."""


_BY_STATE: Final = {
    State.QUEUED: Repeat.ATTACH,
    State.SEALED: Repeat.ATTACH,
    State.SENT: Repeat.ATTACH,
    State.PENDING: Repeat.READ_BACK,
    State.MINED: Repeat.READ_BACK,
    State.COMPLETED: Repeat.READ_BACK,
    State.FAILED: Repeat.REFUSE,
    State.SUPERSEDED: Repeat.REFUSE,
    State.CANCELLED: Repeat.REFUSE,
    State.DEAD_LETTER: Repeat.REFUSE,
}


def judge(admission: Admission, window_ms: int) -> Repeat:
    """What ``admission`` means to whoever asked. ``window_ms``: how long a key may be used again."""
    if admission.fresh:
        return Repeat.ENTER
    if not admission.same_bytes:
        return Repeat.CONFLICT_BYTES
    if admission.key_age_ms > window_ms:
        return Repeat.CONFLICT_OLD
    if admission.record.releases_key:
        return Repeat.AGAIN
    return _BY_STATE[admission.record.state]
