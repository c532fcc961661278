"""What goes into a journal and what comes out: values.

Job: facts (an intake with its bytes, an attempt, an answer, a receipt) apart from decisions (where a submission
stands), and what a store says to them.
Rules: hashes and addresses are bytes, times are the store's own clock in milliseconds since the epoch, durations are
milliseconds. A fact is true whoever tells it and is kept; a decision carries the version and the fence that it was
made under, and is refused when either is old.
Must not know: SQL, files, connections.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from relay.lifecycle import Mode, Reason, State, may_still_land, releases_key

LARGEST: Final = (1 << 63) - 1
"""The largest chain id and nonce that a store can hold."""


def recordable(chain_id: int, nonce: int) -> bool:
    """Can a store hold it? What it cannot (no chain has such a number) passes as transactions of unknown types do."""
    return chain_id <= LARGEST and nonce <= LARGEST


MAX_TEXT: Final = 2_000
"""Characters of a node's or a person's words that are kept. A gateway may answer with a page."""


def storable(text: str) -> str:
    """``text`` as every store can hold it: not too long, no NUL, no half of a character."""
    if len(text) <= MAX_TEXT and text.isascii() and "\0" not in text:
        return text
    return text[:MAX_TEXT].encode("utf-8", "replace").decode().replace("\0", "\ufffd")


class Intake(NamedTuple):
    """A submission as it came: a fact.

    ``method`` is the one that goes upstream; ``params`` the JSON text of its params where the raw transaction alone
    does not make them. ``key`` is the client's idempotency key, "" without. ``actor``: the instance.
    """

    chain_id: int
    sender: bytes
    nonce: int
    hash: bytes
    raw: bytes
    method: str
    params: bytes = b""
    mode: Mode = Mode.VERDICT
    key: str = ""
    actor: str = ""


class Record(NamedTuple):
    """Where a submission stands. ``version`` rises by one with every decision, and never otherwise.

    ``tries`` are the turns that sent it since it was last queued with a fresh budget, ``attempts`` all its sends, and
    ``open_attempts`` those that are not proven not to have been taken. ``since_ms``: in this state since.
    """

    id: int
    chain_id: int
    sender: bytes
    nonce: int
    hash: bytes
    method: str
    mode: Mode
    admitted_ms: int
    state: State
    reason: Reason | None
    detail: str
    other_hash: bytes | None
    version: int
    fence: int
    tries: int
    attempts: int
    open_attempts: int
    since_ms: int

    @property
    def may_still_land(self) -> bool:
        """Could these bytes still be mined?"""
        return may_still_land(self.state, self.open_attempts)

    @property
    def releases_key(self) -> bool:
        """Is its idempotency key free again?"""
        return releases_key(self.state, self.mode, self.attempts)


class Payload(NamedTuple):
    """What is sent. Kept apart from the record, for a blob transaction has megabytes."""

    raw: bytes
    method: str
    params: bytes


class Admission(NamedTuple):
    """What came of an intake. The record is the intake's own, or the one that was there before.

    ``fresh``: it is a new row. ``same_bytes`` is false where the key belongs to another transaction. ``key_age_ms`` is
    the time since the key's first use, 0 without a key.
    """

    record: Record
    fresh: bool
    same_bytes: bool = True
    key_age_ms: int = 0


class Taken(StrEnum):
    """Did the node take the bytes?"""

    YES = "yes"
    NO = "no"
    """Proven: they did not leave, or the node refused them."""
    UNKNOWN = "unknown"


class Answer(NamedTuple):
    """What came of an attempt. ``verdict`` is a disposition or a word of ours, ``text`` the node's words, cut."""

    attempt: int
    taken: Taken
    verdict: str
    text: str = ""


class Attempt(NamedTuple):
    """The bytes were about to leave for ``node`` at ``at_ms``. ``taken`` is None until an answer is known."""

    id: int
    submission: int
    node: str
    fence: int
    actor: str
    at_ms: int
    answered_ms: int | None
    taken: Taken | None
    verdict: str
    text: str


class Receipt(NamedTuple):
    """A receipt that was seen, at ``node``. ``status``: 1 executed, 0 reverted."""

    submission: int
    block_number: int
    block_hash: bytes
    status: int
    node: str = ""


class ReceiptSeen(NamedTuple):
    """A receipt, and when it was first seen."""

    receipt: Receipt
    at_ms: int


Fact: TypeAlias = Answer | Receipt


class Seal(NamedTuple):
    """The intent to send: makes the attempt, and moves the submission to SEALED."""

    submission: int
    origin: State
    version: int
    node: str
    fence: int = 0
    actor: str = ""
    reason: Reason | None = None
    detail: str = ""


class Decision(NamedTuple):
    """Where a submission goes: decided by one who saw it in ``origin`` at ``version``, holding ``fence`` (0: no lease).

    ``facts`` are kept even where the decision is refused. ``attested``: a person vouches that open attempts were
    stopped. ``mode`` changes how the client was answered, None leaves it.
    """

    submission: int
    origin: State
    version: int
    target: State
    fence: int = 0
    reason: Reason | None = None
    detail: str = ""
    actor: str = ""
    other_hash: bytes | None = None
    attested: bool = False
    mode: Mode | None = None
    facts: tuple[Fact, ...] = ()


class Sealed(NamedTuple):
    """The intent is on disk; the bytes may leave."""

    record: Record
    attempt: int


class Stale(NamedTuple):
    """Refused: decided on what is no longer so. ``record`` has the newest version, fence and state."""

    record: Record


class Forbidden(NamedTuple):
    """Refused: the life of a submission has no such way, or its guard does not hold. ``why`` is for a person."""

    record: Record
    why: str


class Missing(NamedTuple):
    """Refused: no such submission, or it was pruned."""

    submission: int


Refused: TypeAlias = Stale | Forbidden | Missing


class Event(NamedTuple):
    """A change, as it is told. ``origin`` is None for the first. ``detail`` is in the actor's words."""

    id: int
    submission: int
    origin: State | None
    state: State
    reason: Reason | None
    detail: str
    actor: str
    fence: int
    version: int
    at_ms: int


class Lane(NamedTuple):
    """A sender's lane as an operator set it. ``version`` 0: never touched."""

    chain_id: int
    sender: bytes
    paused: bool
    version: int
    detail: str
    actor: str
    at_ms: int


def untouched(chain_id: int, sender: bytes) -> Lane:
    """A lane that nobody set."""
    return Lane(chain_id, sender, paused=False, version=0, detail="", actor="", at_ms=0)


class Key(NamedTuple):
    """An idempotency key that is bound to a submission, and when it was first used for it."""

    key: str
    first_ms: int


class Outstanding(NamedTuple):
    """A lane with something open: its lowest open nonce, how many, and since when the oldest."""

    chain_id: int
    sender: bytes
    lowest: int
    rows: int
    oldest_ms: int


class Count(NamedTuple):
    """How many stand in an open state for one reason, and since when the oldest."""

    state: State
    reason: Reason | None
    rows: int
    oldest_ms: int


class Census(NamedTuple):
    """For the metrics: what is open, and what waits to be told."""

    now_ms: int
    open: tuple[Count, ...]
    outbox_waiting: int
    outbox_oldest_ms: int | None
    outbox_dead: int


class Change(NamedTuple):
    """An event, and the record as it is now: perhaps further than the event."""

    event: Event
    record: Record


class Delivery(StrEnum):
    """How far a notice came."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    DEAD = "dead"


class Notice(NamedTuple):
    """An event on its way to a receiver, at least once. ``tries`` counts this one."""

    event: Event
    record: Record
    tries: int


class Claim(NamedTuple):
    """A task that one instance at a time does. ``fence`` rises with every change of owner."""

    name: str
    owner: str
    fence: int
    until_ms: int
    mine: bool


class Cursor(NamedTuple):
    """A place in the order of lanes: chain, sender, nonce, arrival."""

    chain_id: int = -1
    sender: bytes = b""
    nonce: int = -1
    id: int = -1

    @classmethod
    def after(cls, record: Record) -> Cursor:
        """The place right behind ``record``."""
        return cls(record.chain_id, record.sender, record.nonce, record.id)


START: Final = Cursor()
