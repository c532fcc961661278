"""What the end of a turn means for the record: pure.

Job: from how it ended (a node's disposition, or a reason of ours where nothing was sent) to the next state.
Rules: *failed* only where no attempt is open (the store checks it again). A client who was told yes is never failed for
what may pass, nor is what a dead process left failed for want of a turn or of a node. What the table of
`relay.lifecycle` has no way for is left as it stands: its facts are kept.
Must not know: stores, clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relay.lifecycle import TERMINAL, Mode, Reason, State, Step, consequence, transition
from relay.verdict import Disposition

if TYPE_CHECKING:
    from relay.journal.records import Record

How = Disposition | Reason

_WAITS: Final = Step(State.QUEUED)

UNSENT: Final[dict[Reason, tuple[Step, Step]]] = {
    Reason.PRECHECK: (Step(State.FAILED, Reason.PRECHECK), Step(State.QUEUED, Reason.HELD_FUNDS)),
    Reason.NONCE_SPENT: (Step(State.FAILED, Reason.NONCE_SPENT), Step(State.FAILED, Reason.NONCE_SPENT)),
    Reason.TURNED_AWAY: (Step(State.FAILED, Reason.TURNED_AWAY), _WAITS),
    Reason.BEHIND_GAP: (Step(State.FAILED, Reason.TURNED_AWAY), Step(State.QUEUED, Reason.BEHIND_GAP)),
    Reason.NOT_SENT: (Step(State.FAILED, Reason.NOT_SENT), Step(State.QUEUED, Reason.HELD_UNREACHABLE)),
}
"""Nothing was sent: answered after the verdict, answered as accepted."""

_STILL: Final = {
    Reason.TURNED_AWAY: Reason.HELD_UNANSWERED,
    Reason.NOT_SENT: Reason.HELD_UNREACHABLE,
    Reason.BEHIND_GAP: Reason.BEHIND_GAP,
    Reason.NONCE_SPENT: Reason.TIMEOUT_NONCE_USED,
}
"""Nothing was sent in this turn, and an earlier attempt is open."""


def after(record: Record, how: How, mode: Mode, *, uncertain: bool, resumed: bool = False) -> Step | None:
    """Where ``record`` goes, None if it stays as it is.

    ``uncertain``: an earlier attempt is still open. ``resumed``: nobody waits for it who could be told no.
    """
    if record.state in TERMINAL or (resumed and how is Reason.TURNED_AWAY):
        return None  # an end that somebody else has decided is left to persons, to clients and to proof
    if resumed and how is Reason.NOT_SENT:
        mode = Mode.ACCEPTED
    step = _unsent(how, mode, uncertain) if isinstance(how, Reason) else consequence(how, mode, uncertain=uncertain)
    if record.state is State.PENDING and step.target is not State.PENDING:
        return None  # a node has had it: the watch and the sweep judge it
    if record.state is step.target and record.reason is step.reason:
        return None
    return step if transition(record.state, step.target) is not None else None


def _unsent(how: Reason, mode: Mode, uncertain: bool) -> Step:  # noqa: FBT001 - as `after` has it
    if uncertain:
        return Step(State.SENT, _STILL.get(how, Reason.HELD_REFUSED))
    return UNSENT[how][mode is Mode.ACCEPTED]


def back(record: Record, *, uncertain: bool) -> Step | None:
    """Its turn came to nothing, and it waits again."""
    if record.state is not State.SEALED:
        return None
    return Step(State.SENT) if uncertain else _WAITS
