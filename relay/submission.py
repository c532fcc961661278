"""A submission on its way: what it is, who asked for it, what became of it.

Job: the values that pass between the path (`relay.intake`, `relay.submit`) and those who wait for it. Must not know:
how it is done.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import orjson

from relay import errors
from relay.errors import Refusal
from relay.lifecycle import Mode

if TYPE_CHECKING:
    from relay.journal.row import Row
    from relay.lease import Permit
    from relay.methods import Request
    from relay.transaction import SignedTransaction


class Accepted(msgspec.Struct, frozen=True):
    """The node has the transaction. ``result`` is the text of the answer's result."""

    result: bytes


@dataclass(frozen=True, slots=True)
class Declined:
    """The node refused it. ``error`` is the text of its error, as it came."""

    error: bytes


Outcome = Accepted | Declined | Refusal


class Handle(msgspec.Struct, frozen=True):
    """It is on disk, and what becomes of it can be asked for by its hash. ``applied``: the preferences behind that."""

    hash: str
    applied: str = ""


Told = Outcome | Handle
"""What a client hears."""
Telling: TypeAlias = "asyncio.Future[Outcome] | asyncio.Future[Told]"


class Submission:
    """One transaction on its way, for however many clients that sent it."""

    __slots__ = (
        "admitted",
        "arrived",
        "bounded",
        "copies",
        "ended",
        "held_since",
        "idempotency_key",
        "maybe_sent",
        "mode",
        "original",
        "outcome",
        "permit",
        "request",
        "row",
        "transaction",
        "verdict",
    )

    def __init__(self, request: Request, signed: SignedTransaction, arrived: float) -> None:
        self.request = request
        self.transaction = signed
        self.arrived = arrived
        self.held_since: float | None = None
        self.permit: Permit | None = None
        self.copies = 0
        self.maybe_sent = False
        """Another process may have sent it: the node is asked before it is sent, and no refusal proves anything."""
        self.row: Row[Outcome] | None = None
        """Its place in the journal, None without one."""
        self.idempotency_key = ""
        self.mode = Mode.VERDICT
        self.bounded = False
        """A client waits for the verdict only so long: its mode may yet become ACCEPTED."""
        self.admitted: asyncio.Future[Outcome] | None = None
        """Done when its record is on disk, for whoever asked to be answered then."""
        self.original: Submission | None = None
        """Where it is carried out, if this is only one more client's with a key of its own."""
        self.verdict = ""
        self.ended = False
        """How it ended is known; its clients may still wait until that is on disk."""
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    @property
    def key(self) -> tuple[str, bytes]:
        """Requests with the same key are this submission."""
        return self.request.key

    @property
    def known_row(self) -> Row[Outcome]:
        """Its place in the journal, where it has one."""
        assert self.row is not None
        return self.row

    @property
    def size(self) -> int:
        """Bytes kept while it is in flight: the transaction and the params that go upstream."""
        return len(self.request.raw) + len(self.request.wire_params)

    @property
    def rides(self) -> bool:
        """May it go in a batch with others? Only by its bytes: then its hash tells what became of it. Not after a doubt
        about an earlier send: then it is asked for first."""
        return self.request.method.by_bytes and not self.maybe_sent

    @property
    def own_hash(self) -> Accepted:
        """Accepted, where the node's answer did not bring the hash."""
        return Accepted(orjson.dumps(self.transaction.hash))

    @property
    def unknown(self) -> Refusal:
        """It may be at the node."""
        return errors.OUTCOME_UNKNOWN.refusal(data={"hash": self.transaction.hash})

    @property
    def carrier(self) -> Submission:
        """The one that takes the turn."""
        return self.original or self

    def serves(self, key: str) -> bool:
        """May a client that comes with this idempotency key ("": none) simply wait with the others?

        Not before it is sure that the key of those may be used; without a journal there are none.
        """
        if self.admitted is None or key == self.idempotency_key:
            return True
        return not key and self.admitted.done() and isinstance(self.admitted.result(), Accepted)

    def copy_under(self, key: str) -> Submission:
        """One more client's, which waits for a key of its own to be bound, and then for this one's outcome."""
        copy = Submission(self.request, self.transaction, self.arrived)
        copy.original = self.carrier
        copy.idempotency_key = key
        copy.admitted = asyncio.get_running_loop().create_future()
        return copy

    def refused(self, refusal: Refusal) -> Refusal:
        """What its clients hear if it gets no turn: ``refusal``, if it is certain that nothing was sent."""
        return self.unknown if self.maybe_sent else refusal

    def __repr__(self) -> str:
        return f"<submission {self.transaction.hash}: nonce {self.transaction.nonce} of {self.transaction.sender}>"


class Entry(msgspec.Struct, frozen=True):
    """One client's request, the submission that it made or joined, and what the client will hear of it."""

    request: Request
    submission: Submission
    told: Telling


class Unordered:
    """A transaction of a type that the relay does not know: it passes through without a lane."""

    __slots__ = ()


UNORDERED: Final = Unordered()
