"""A submission's way in: `Intake.enter`, and what its client hears in the end: `Intake.outcome`.

    enter    synchronous: read → the same bytes in flight? attach → decode → stateless prechecks → the desk → ticket
    outcome  the answer in the shape of the entry's own method: a hash, or a receipt

Rules
- `enter` does not await: a submission's place is decided at the instant its request is complete (G2).
- Equal submissions in flight are one (G7); once finished, nothing is answered from memory.
- Clients wait for a submission's ``outcome``, and may stop waiting: it belongs to its lane (G8).
Must not know: lanes, how a submission is carried out, HTTP, WebSocket, batches.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import structlog

from relay import errors, methods, prechecks, transaction
from relay.errors import Refusal
from relay.receipts import Receipts
from relay.submission import UNORDERED, Accepted, Entry, Submission, Unordered

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.config import Settings
    from relay.methods import Method
    from relay.submission import Outcome
    from relay.telemetry.metrics import Metrics
    from relay.transaction import SignedTransaction
    from relay.upstream.accounts import Accounts
    from relay.upstream.identity import Identity


class Desk(Protocol):
    """Where tickets are taken."""

    def find(self, key: tuple[str, bytes]) -> Submission | None:
        """The submission of this key that is in flight."""

    def take(self, submission: Submission) -> Refusal | None:
        """Take a ticket, synchronously; the submission's ``outcome`` is set when it is carried out."""


class Intake:
    """Reads, decodes and checks submissions, and hands them to a desk."""

    def __init__(
        self,
        *,
        settings: Settings,
        desk: Desk,
        accounts: Accounts,
        identity: Identity,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._pass_unknown = settings.prechecks.unknown_types == "pass"
        self._desk = desk
        self._identity = identity
        self._clock = clock
        self._receipts = Receipts(accounts, clock)
        self._unknown_types: set[int] = set()
        self._attached = metrics.attached.cell()
        self._unordered = metrics.unordered.cell()
        self._stages = {stage: metrics.prechecks.cell(stage) for stage in ("decode", "stateless")}
        self._log = structlog.get_logger("relay.intake")

    def enter(self, method: Method, params: bytes | None) -> Entry | Refusal | Unordered:
        """Take the submission's place, or say why it gets none."""
        request = methods.read(method, params)
        if isinstance(request, Refusal):
            return request
        if (same := self._desk.find(request.key)) is not None:
            same.copies += 1
            self._attached.n += 1
            return Entry(request, same)
        signed = self._decode(request.raw)
        if not isinstance(signed, transaction.SignedTransaction):
            return signed
        if (refusal := prechecks.stateless(signed, self._identity.policy)) is not None:
            self._stages["stateless"].n += 1
            return refusal
        submission = Submission(request, signed, self._clock())
        return self._desk.take(submission) or Entry(request, submission)

    def _decode(self, raw: bytes) -> SignedTransaction | Refusal | Unordered:
        try:
            return transaction.decode(raw)
        except transaction.UnknownType as error:
            if self._pass_unknown:
                self._note_unknown_type(error.type)
                return UNORDERED
            detail = str(error)
        except transaction.Undecodable as error:
            detail = str(error)
        self._stages["decode"].n += 1
        return errors.REJECTED.refusal(detail=detail)

    def _note_unknown_type(self, type_: int) -> None:
        self._unordered.n += 1
        if type_ not in self._unknown_types:
            self._unknown_types.add(type_)
            self._log.warning("unknown transaction type passes without ordering", type=type_)

    async def outcome(self, entry: Entry) -> Outcome:
        """What became of it, in the shape of the entry's own method: a hash, or a receipt."""
        outcome = await asyncio.shield(entry.submission.outcome)
        if entry.request.method.wants_receipt and isinstance(outcome, Accepted):
            return await self._receipts.wait(entry.submission.transaction.hash, entry.request.timeout_s)
        return outcome

    def give_up(self) -> None:
        """The drain is over: answer those who still wait for a receipt."""
        self._receipts.give_up()
