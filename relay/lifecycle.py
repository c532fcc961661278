"""The life of a submission: its states, the ways between them, and what each is called.

Job: one table of transitions with the reason of each, the guards of some of them, the words of every reason, and what a
node's answer leads to. Code, stores, tests and ``docs/lifecycle.md`` share it.
Rules: what is not in `TRANSITIONS` is forbidden, and every store refuses it. A terminal state is left by proof, by a
reorganisation or by a person, never by a writer that is late. *Failed* is said only when nothing was ever uncertain:
an attempt counts as open until a node's answer proves that it did not take the bytes.
Must not know: stores, lanes, nodes, who decides.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from relay.verdict import Disposition


class State(StrEnum):
    """Where a submission stands."""

    QUEUED = "queued"
    """On disk, and waiting for its lane's turn."""
    SEALED = "sealed"
    """Its turn came and the intent to send is on disk: from here on the bytes may be out."""
    SENT = "sent"
    """The bytes left, and no answer proves what became of them."""
    PENDING = "pending"
    """A node has it."""
    MINED = "mined"
    """It is in a block that may still be taken back."""
    COMPLETED = "completed"
    """Its block is as deep as asked for."""
    FAILED = "failed"
    """Refused, and nothing was ever uncertain: the bytes are in no pool that the relay sent them to."""
    SUPERSEDED = "superseded"
    """Another transaction took the nonce for good."""
    CANCELLED = "cancelled"
    """Withdrawn before it was ever sent."""
    DEAD_LETTER = "dead_letter"
    """Recovery gave up; a person decides, or proof."""


LIVE: Final = frozenset({State.QUEUED, State.SEALED, State.SENT, State.PENDING, State.MINED})
"""What the relay still works on."""

TERMINAL: Final = frozenset(State) - LIVE

OPEN: Final = LIVE | {State.DEAD_LETTER}
"""What still waits for something: for the chain, or for a person."""


class Guard(StrEnum):
    """What must hold beside the state. Facts of late writers count, so a store checks it in the same statement."""

    NONE = "none"
    UNSENT = "unsent"
    """No attempt was ever made."""
    CERTAIN = "certain"
    """No attempt is open: each is proven not to have been taken."""
    ATTESTED = "attested"
    """No attempt is open, or a person attests that the bytes were stopped."""


class Transition(NamedTuple):
    """One row. ``renews``: the submission may be sent ``max_resends`` times again."""

    origin: State
    target: State
    why: str
    guard: Guard = Guard.NONE
    renews: bool = False


_S = State
_PROVEN: Final = "another hash is final at its nonce"
_GAVE_UP: Final = "recovery gave up"
_ON_CHAIN: Final = "a receipt was seen"

TRANSITIONS: Final[tuple[Transition, ...]] = (
    Transition(_S.QUEUED, _S.SEALED, "its turn came"),
    Transition(_S.QUEUED, _S.PENDING, "a node has it already"),
    Transition(_S.QUEUED, _S.MINED, _ON_CHAIN),
    Transition(_S.QUEUED, _S.FAILED, "refused before it was sent", Guard.CERTAIN),
    Transition(_S.QUEUED, _S.CANCELLED, "withdrawn before it was ever sent", Guard.UNSENT),
    Transition(_S.QUEUED, _S.SUPERSEDED, _PROVEN),
    Transition(_S.QUEUED, _S.DEAD_LETTER, _GAVE_UP),
    Transition(_S.SEALED, _S.QUEUED, "nothing left, or refused for now: it waits", Guard.CERTAIN),
    Transition(_S.SEALED, _S.SENT, "it left, and no answer proves anything"),
    Transition(_S.SEALED, _S.PENDING, "a node has it"),
    Transition(_S.SEALED, _S.MINED, _ON_CHAIN),
    Transition(_S.SEALED, _S.FAILED, "refused, and nothing was ever uncertain", Guard.CERTAIN),
    Transition(_S.SEALED, _S.SUPERSEDED, _PROVEN),
    Transition(_S.SEALED, _S.DEAD_LETTER, _GAVE_UP),
    Transition(_S.SENT, _S.SEALED, "the same bytes are sent again"),
    Transition(_S.SENT, _S.PENDING, "a node has it"),
    Transition(_S.SENT, _S.MINED, _ON_CHAIN),
    Transition(_S.SENT, _S.FAILED, "refused, and nothing was ever uncertain", Guard.CERTAIN),
    Transition(_S.SENT, _S.SUPERSEDED, _PROVEN),
    Transition(_S.SENT, _S.DEAD_LETTER, _GAVE_UP),
    Transition(_S.PENDING, _S.SEALED, "the pools lost it: the same bytes are sent again"),
    Transition(_S.PENDING, _S.MINED, _ON_CHAIN),
    Transition(_S.PENDING, _S.SUPERSEDED, _PROVEN),
    Transition(_S.PENDING, _S.DEAD_LETTER, _GAVE_UP),
    Transition(_S.MINED, _S.COMPLETED, "its block is deep enough"),
    Transition(_S.MINED, _S.PENDING, "a reorganisation took its block back"),
    Transition(_S.MINED, _S.SUPERSEDED, _PROVEN),
    Transition(_S.COMPLETED, _S.MINED, "a reorganisation reached its block"),
    Transition(_S.DEAD_LETTER, _S.COMPLETED, "proof: its block is deep enough"),
    Transition(_S.DEAD_LETTER, _S.SUPERSEDED, f"proof: {_PROVEN}"),
    Transition(_S.DEAD_LETTER, _S.QUEUED, "a person retries it", Guard.ATTESTED, renews=True),
    Transition(_S.FAILED, _S.QUEUED, "a person retries it, or the client sent it again", renews=True),
)

_TABLE: Final = {(row.origin, row.target): row for row in TRANSITIONS}
_STAYS: Final = {state: Transition(state, state, "another reason", Guard.NONE) for state in OPEN}


def transition(origin: State, target: State) -> Transition | None:
    """The row, None if it is forbidden. What is open may stay where it is and change its reason."""
    return _TABLE.get((origin, target)) or (_STAYS.get(origin) if origin is target else None)


def holds(guard: Guard, *, attempts: int, open_attempts: int, attested: bool) -> bool:
    """Does ``guard`` let it pass?"""
    match guard:
        case Guard.NONE:
            return True
        case Guard.UNSENT:
            return attempts == 0
        case Guard.CERTAIN:
            return open_attempts == 0
        case Guard.ATTESTED:
            return open_attempts == 0 or attested


def may_still_land(state: State, open_attempts: int) -> bool:
    """Could these bytes still be mined (or are they in a block that may be taken back)?

    False only on proof: they are final, another hash is, they never left, or every attempt was proven not taken.
    """
    return state in LIVE or (state is State.DEAD_LETTER and open_attempts > 0)


class SubStatus(StrEnum):
    """What kind of reason it is."""

    TIMEOUT = "timeout"
    """No receipt for a while."""
    HELD = "held"
    """It does not move by itself now; the relay goes on watching."""
    REFUSED = "refused"
    """Why it failed."""
    GIVEN_UP = "given_up"
    """Why it is a dead letter."""
    NOTE = "note"
    """How it came here."""


class Reason(StrEnum):
    """Why a submission stands where it stands. `WORDS` has what a person reads."""

    TIMEOUT_IN_POOL = "timeout_in_pool"
    TIMEOUT_NONCE_USED = "timeout_nonce_used"
    TIMEOUT_GAP = "timeout_gap"
    TIMEOUT_DROPPED = "timeout_dropped"
    HELD_FUNDS = "held_funds"
    HELD_NOT_NOW = "held_not_now"
    HELD_REPRICE = "held_reprice"
    HELD_UNREACHABLE = "held_unreachable"
    HELD_PAUSED = "held_paused"
    HELD_DROPPED = "held_dropped"
    HELD_UNANSWERED = "held_unanswered"
    HELD_REFUSED = "held_refused"
    UNDER_BASE_FEE = "under_base_fee"
    UNFUNDED = "unfunded"
    BEHIND_GAP = "behind_gap"
    PRECHECK = "precheck"
    TURNED_AWAY = "turned_away"
    NOT_SENT = "not_sent"
    NONCE_SPENT = "nonce_spent"
    SLOT_TAKEN = "slot_taken"
    NOT_NOW = "not_now"
    FUNDS = "funds"
    REPRICE = "reprice"
    REFUSED_HERE = "refused_here"
    REFUSED = "refused"
    BY_OPERATOR = "by_operator"
    RESENDS_USED_UP = "resends_used_up"
    REFUSED_UNPROVEN = "refused_unproven"
    RETRIED = "retried"
    RESENT = "resent"
    REORGANISED = "reorganised"
    REVERTED = "reverted"
    NONCE_TAKEN = "nonce_taken"


class Meaning(NamedTuple):
    """One row of `WORDS`: its kind, the states that it goes with, and the words."""

    sub_status: SubStatus
    states: frozenset[State]
    words: str


def _row(kind: SubStatus, states: str, words: str) -> Meaning:
    return Meaning(kind, frozenset(map(State, states.split())), words)


_T, _H, _F, _G, _N = SubStatus.TIMEOUT, SubStatus.HELD, SubStatus.REFUSED, SubStatus.GIVEN_UP, SubStatus.NOTE
_OUT: Final = "sent pending"

WORDS: Final[dict[Reason, Meaning]] = {
    Reason.TIMEOUT_IN_POOL: _row(_T, _OUT, "no receipt yet; a node still has it in its pool"),
    Reason.TIMEOUT_NONCE_USED: _row(_T, _OUT, "no receipt, and its nonce is used: by another, perhaps"),
    Reason.TIMEOUT_GAP: _row(_T, _OUT, "no receipt yet; a lower nonce of its sender is missing"),
    Reason.TIMEOUT_DROPPED: _row(_T, _OUT, "no receipt, and no node that was asked knows it: it was probably dropped"),
    Reason.HELD_FUNDS: _row(_H, "queued", "the sender could not pay; it is sent again"),
    Reason.HELD_NOT_NOW: _row(_H, "queued", "the node did not take it for now; it is sent again"),
    Reason.HELD_REPRICE: _row(_H, "queued", "its fee was too low for the node; it is sent again"),
    Reason.HELD_UNREACHABLE: _row(_H, "queued sent", "the node could not be reached; it is sent again"),
    Reason.HELD_PAUSED: _row(_H, "queued", "its lane is paused"),
    Reason.HELD_DROPPED: _row(_H, _OUT, "no node knows it, yet the pending count says that its nonce is taken"),
    Reason.HELD_UNANSWERED: _row(_H, _OUT, "not every node could be asked, so nothing is concluded"),
    Reason.HELD_REFUSED: _row(_H, _OUT, "refused when sent again, which proves nothing about the first time"),
    Reason.UNDER_BASE_FEE: _row(_H, _OUT, "its fee cap is below the base fee"),
    Reason.UNFUNDED: _row(_H, _OUT, "the sender's balance does not cover it"),
    Reason.BEHIND_GAP: _row(_H, "queued sent pending", "a lower nonce of its sender must come first"),
    Reason.PRECHECK: _row(_F, "failed", "the relay's own checks refused it; nothing was sent"),
    Reason.TURNED_AWAY: _row(_F, "failed", "its lane let it go without a turn; nothing was sent"),
    Reason.NOT_SENT: _row(_F, "failed", "the node could not be reached; nothing was sent"),
    Reason.NONCE_SPENT: _row(_F, "failed", "its nonce was used already"),
    Reason.SLOT_TAKEN: _row(_F, "failed", "another transaction held its nonce in the node's pool"),
    Reason.NOT_NOW: _row(_F, "failed", "the node did not take it for now, and the client was told so"),
    Reason.FUNDS: _row(_F, "failed", "the sender could not pay, and the client was told so"),
    Reason.REPRICE: _row(_F, "failed", "its fee was too low, and the client was told so"),
    Reason.REFUSED_HERE: _row(_F, "failed", "against this node's policy"),
    Reason.REFUSED: _row(_F, "failed", "no node of this chain will take it"),
    Reason.BY_OPERATOR: _row(_F, "failed cancelled", "an operator ended it"),
    Reason.RESENDS_USED_UP: _row(_G, "dead_letter", "sent max_resends times, and still not on the chain"),
    Reason.REFUSED_UNPROVEN: _row(_G, "dead_letter", "the client was told an error that proves nothing; not resent"),
    Reason.RETRIED: _row(_N, "queued", "taken up again"),
    Reason.RESENT: _row(_N, "sealed sent pending", "one more send of the same bytes was asked for"),
    Reason.REORGANISED: _row(_N, "pending mined", "a reorganisation took its block back"),
    Reason.REVERTED: _row(_N, "mined completed", "it is on the chain, and its execution failed"),
    Reason.NONCE_TAKEN: _row(_N, "superseded", "another transaction took its nonce for good"),
}  # fmt: skip


class Mode(StrEnum):
    """When the client is answered."""

    VERDICT = "verdict"
    """After the node: a refusal was told to the client, who acts on it."""
    ACCEPTED = "accepted"
    """When it was on disk: the client was told yes, and counts on us."""


class Step(NamedTuple):
    """Where to, and why."""

    target: State
    reason: Reason | None = None


_D = Disposition

CONSEQUENCES: Final[dict[Disposition, tuple[Step, Step]]] = {
    _D.IN_POOL: (Step(_S.PENDING), Step(_S.PENDING)),
    _D.NONCE_SPENT: (Step(_S.FAILED, Reason.NONCE_SPENT), Step(_S.SENT, Reason.TIMEOUT_NONCE_USED)),
    _D.SLOT_TAKEN: (Step(_S.FAILED, Reason.SLOT_TAKEN), Step(_S.FAILED, Reason.SLOT_TAKEN)),
    _D.NOT_NOW: (Step(_S.FAILED, Reason.NOT_NOW), Step(_S.QUEUED, Reason.HELD_NOT_NOW)),
    _D.FUNDS: (Step(_S.FAILED, Reason.FUNDS), Step(_S.QUEUED, Reason.HELD_FUNDS)),
    _D.REPRICE: (Step(_S.FAILED, Reason.REPRICE), Step(_S.QUEUED, Reason.HELD_REPRICE)),
    _D.REFUSED_HERE: (Step(_S.FAILED, Reason.REFUSED_HERE), Step(_S.FAILED, Reason.REFUSED_HERE)),
    _D.REFUSED: (Step(_S.FAILED, Reason.REFUSED), Step(_S.FAILED, Reason.REFUSED)),
    _D.UNCERTAIN: (Step(_S.SENT), Step(_S.SENT)),
    _D.UNRECOGNISED: (Step(_S.DEAD_LETTER, Reason.REFUSED_UNPROVEN), Step(_S.SENT)),
}
"""What a node's "no" leads to when nothing else is open: answered after the verdict, answered as accepted."""

PROVES_NOT_TAKEN: Final = frozenset(
    {_D.SLOT_TAKEN, _D.NOT_NOW, _D.FUNDS, _D.REPRICE, _D.REFUSED_HERE, _D.REFUSED, _D.NONCE_SPENT}
)
"""An attempt answered so is closed: this node did not take the bytes. The hash of a spent nonce is looked up first."""


def consequence(disposition: Disposition, mode: Mode, *, uncertain: bool) -> Step:
    """Where a submission goes after a node's "no". ``uncertain``: an *earlier* attempt is still open.

    Then a refusal proves nothing about the earlier one: the submission is watched on.
    """
    step = CONSEQUENCES[disposition][mode is Mode.ACCEPTED]
    if uncertain and step.target in (State.FAILED, State.QUEUED):
        return Step(State.SENT, Reason.HELD_REFUSED)
    return step


def releases_key(state: State, mode: Mode, attempts: int) -> bool:
    """May the client use its idempotency key for other bytes, and the same bytes be a new attempt of the same row?

    So it is when it was told no: after the node's verdict, or before anything was sent.
    """
    return state is State.FAILED and (mode is Mode.VERDICT or attempts == 0)
