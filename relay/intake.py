"""A submission's way in: `Intake.enter`, and what its client hears in the end: `Intake.outcome`.

    enter    synchronous: read → the same bytes in flight? attach → decode → stateless prechecks → the desk → ticket
    outcome  the answer in the shape of the entry's own method: a hash, or a receipt

With a journal a client may have wishes (`relay.wish`): a key, and to be answered before the verdict.

Rules
- `enter` does not await: a submission's place is decided at the instant its request is complete (G2).
- Equal submissions in flight are one (G7); once finished, nothing is answered from memory.
- Clients wait for a submission's ``outcome``, and may stop waiting: it belongs to its lane (G8).
- A key that could not be guarded is refused. A receipt is waited for, whatever else is wished.
Must not know: lanes, how a submission is carried out, HTTP, WebSocket, batches.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import structlog

from relay import errors, methods, prechecks, transaction
from relay.errors import Refusal
from relay.journal.records import recordable
from relay.lifecycle import Mode
from relay.receipts import Receipts
from relay.submission import UNORDERED, Accepted, Entry, Submission, Unordered
from relay.telling import telling
from relay.wish import NO_WISH, Wish

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.config import Settings
    from relay.methods import Method, Request
    from relay.submission import Told
    from relay.telemetry.metrics import Metrics
    from relay.transaction import SignedTransaction
    from relay.upstream.accounts import Accounts
    from relay.upstream.identity import Identity


class Desk(Protocol):
    """Where tickets are taken."""

    def find(self, key: tuple[str, bytes]) -> Submission | None:
        """The submission of this key that is in flight."""

    def take(self, submission: Submission) -> Refusal | None:
        """Take a ticket, synchronously; the submission's ``outcome`` is set when it is carried out.

        So is its ``admitted``, if it has one, when its record is on disk.
        """

    def attach(self, submission: Submission, key: str) -> Submission:
        """One more client wants what is in flight: the submission whose outcome it waits for.

        Another than ``submission`` where ``key`` has to be bound to it first.
        """

    def promise(self, submission: Submission) -> asyncio.Future[bool] | None:
        """A client is to be told yes before the verdict. True once that will outlive a crash, False if it cannot: then
        it waits for the outcome. None: nothing need be waited for."""


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
        self._keeps = bool(settings.journal.url)
        self._default = Wish(respond_async=settings.journal.answer == "accepted")
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

    def enter(self, method: Method, params: bytes | None, wish: Wish = NO_WISH) -> Entry | Refusal | Unordered:
        """Take the submission's place, or say why it gets none. Wishes are heeded where there is a journal."""
        request = methods.read(method, params)
        if isinstance(request, Refusal):
            return request
        if not self._keeps:
            wish = NO_WISH
        if (same := self._desk.find(request.key)) is not None:
            return self._join(request, same, wish)
        signed = self._decode(request.raw)
        if not isinstance(signed, transaction.SignedTransaction):
            return _unguarded("of types that the relay does not know") if wish.key and signed is UNORDERED else signed
        return self._unguardable(signed, wish) or self._check(signed) or self._submit(request, signed, wish)

    def _join(self, request: Request, same: Submission, wish: Wish) -> Entry | Refusal:
        """The same bytes are in flight."""
        if (refusal := self._unguardable(same.transaction, wish)) is not None:
            return refusal
        self._attached.n += 1
        return self._entry(request, self._desk.attach(same, wish.key), wish)

    def _submit(self, request: Request, signed: SignedTransaction, wish: Wish) -> Entry | Refusal:
        submission = Submission(request, signed, self._clock())
        if self._keeps:
            self._wished(submission, wish)
        return self._desk.take(submission) or self._entry(request, submission, wish)

    def _check(self, signed: SignedTransaction) -> Refusal | None:
        refusal = prechecks.stateless(signed, self._identity.policy)
        if refusal is not None:
            self._stages["stateless"].n += 1
        return refusal

    def _unguardable(self, signed: SignedTransaction, wish: Wish) -> Refusal | None:
        """A key for what no store can hold."""
        if not wish.key or recordable(signed.chain_id or self._identity.chain_id or 0, signed.nonce):
            return None
        return _unguarded("with so large a number")

    def _wished(self, submission: Submission, wish: Wish) -> None:
        patience_s = self._patience_s(submission.request, wish)
        submission.idempotency_key = wish.key
        submission.mode = Mode.ACCEPTED if patience_s == 0 else Mode.VERDICT
        submission.bounded = patience_s is not None
        submission.admitted = asyncio.get_running_loop().create_future()

    def _patience_s(self, request: Request, wish: Wish) -> float | None:
        """How long the client waits for the verdict before a handle will do, None: as long as it takes."""
        if not self._keeps or request.method.wants_receipt:
            return None
        return self._default.patience_s if wish.patience_s is None else wish.patience_s

    def _entry(self, request: Request, submission: Submission, wish: Wish) -> Entry:
        patience_s = self._patience_s(request, wish)
        return Entry(request, submission, telling(submission, patience_s, wish.applied, self._desk.promise))

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

    async def outcome(self, entry: Entry) -> Told:
        """What became of it, in the shape of the entry's own method: a hash, or a receipt."""
        outcome = await asyncio.shield(entry.told)
        if entry.request.method.wants_receipt and isinstance(outcome, Accepted):
            return await self._receipts.wait(entry.submission.transaction.hash, entry.request.timeout_s)
        return outcome

    def give_up(self) -> None:
        """The drain is over: answer those who still wait for a receipt."""
        self._receipts.give_up()


def _unguarded(which: str) -> Refusal:
    return errors.KEY_CONFLICT.refusal(detail=f"transactions {which} are not recorded; send it without a key")
