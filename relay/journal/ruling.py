"""Why a decision is refused.

Job: the one reading of version, fence, table and guards that all stores share; a store that speaks SQL checks the same
in its statement, and asks here only what to say. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.journal.records import Decision, Forbidden, Missing, Stale
from relay.lifecycle import Guard, State, holds, transition

if TYPE_CHECKING:
    from relay.journal.records import Record, Refused, Seal
    from relay.lifecycle import Transition

_WORDS = {
    Guard.NONE: "",
    Guard.UNSENT: "it was sent before",
    Guard.CERTAIN: "an attempt is not proven untaken, so it may still land",
    Guard.ATTESTED: "it may still land; attest that it was stopped",
}


def sealing(seal: Seal) -> Decision:
    """The decision in a seal."""
    return Decision(
        seal.submission,
        seal.origin,
        seal.version,
        State.SEALED,
        fence=seal.fence,
        reason=seal.reason,
        detail=seal.detail,
        actor=seal.actor,
    )


def way(decision: Decision) -> Transition | None:
    """The row of the table that ``decision`` goes by, None if there is none. Into SEALED leads only a seal."""
    if decision.target is State.SEALED and decision.origin is not State.SEALED:
        return None
    return transition(decision.origin, decision.target)


def seal_way(seal: Seal) -> Transition | None:
    """The row that ``seal`` goes by. What was sealed when a relay died is sealed again."""
    return transition(seal.origin, State.SEALED)


def refusal(record: Record | None, decision: Decision, row: Transition | None) -> Refused | None:
    """What is said to ``decision``, going by ``row``, where the newest is ``record``; None if nothing is against it."""
    if record is None:
        return Missing(decision.submission)
    if decision.version != record.version or decision.origin is not record.state or _old_fence(record, decision):
        return Stale(record)
    if row is None:
        return Forbidden(record, f"no decision leads from {decision.origin} to {decision.target}")
    if not holds(row.guard, attempts=record.attempts, open_attempts=record.open_attempts, attested=decision.attested):
        return Forbidden(record, _WORDS[row.guard])
    return None


def _old_fence(record: Record, decision: Decision) -> bool:
    return 0 < decision.fence < record.fence
