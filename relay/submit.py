"""THE path of a transaction: `take`, then `settle`. Read this file first; `relay.intake` is what lies before it.

    take     synchronous: room for it? → lane → ticket (→ the journal's next group)
    settle   at the lane's turn: (on disk?) → stateful prechecks → (seal) → send → proof → (look up, resend) → release
             → (on disk) → answer (`settle_run`: the same for a run of consecutive nonces in one batch)

Rules
- `take` does not await: a submission's place is decided at the instant its request is complete (G2).
- A submission belongs to its lane, not to a connection (G8).
- Whatever may have been sent is answered with failure only when that is proven (G6).
- With a journal nothing leaves before it is on disk, and nobody hears how it ended before that is (`relay.recorder`).
Must not know: HTTP, WebSocket, batches, how requests are read, how turns are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relay import errors, prechecks
from relay.attaching import Attaching
from relay.ends import Ends
from relay.errors import Refusal
from relay.journal.records import recordable
from relay.lanes import LaneBook, lane_key
from relay.lifecycle import Mode, Reason
from relay.settle import IN_POOL, UNCERTAIN, Settler
from relay.telemetry.metrics import REFUSALS
from relay.turns import Turns

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from relay.config import Settings
    from relay.lanes import Lane, Reading, Ticket
    from relay.lease import Tier
    from relay.recorder import Recorder
    from relay.submission import Submission
    from relay.tasks import TaskOwner
    from relay.telemetry.metrics import Metrics
    from relay.turns import Witness
    from relay.upstream.accounts import Accounts
    from relay.upstream.client import UpstreamClient
    from relay.upstream.identity import Identity

MAX_INFLIGHT_BYTES: Final = 256 * 1024 * 1024
"""Of all submissions together: keys cost nothing, so no bound for each sender bounds the memory."""


class Submitter:
    """The desk in front of the lanes (`relay.intake.Desk`): takes submissions, has them carried out at their turn."""

    def __init__(  # noqa: PLR0913 - the composition root hands it every room below
        self,
        *,
        settings: Settings,
        client: UpstreamClient,
        accounts: Accounts,
        identity: Identity,
        owner: TaskOwner,
        metrics: Metrics,
        report: Callable[[str, BaseException], None],
        clock: Callable[[], float],
        tier: Tier | None = None,
        witness: Witness[Submission] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._settings = settings
        self._accounts = accounts
        self._identity = identity
        self._owner = owner
        self._report = report
        self._recorder = recorder
        self._clock = clock
        self._ends = Ends(metrics, clock, recorder)
        self._settler = Settler(
            settings=settings,
            client=client,
            accounts=accounts,
            identity=identity,
            ends=self._ends,
            metrics=metrics,
            clock=clock,
            tier=tier,
            recorder=recorder,
        )
        self.settle = self._settler.settle
        self.settle_run = self._settler.settle_run
        self.book: LaneBook[Submission] = LaneBook(settings.ordering, shared=tier is not None)
        runs = self._settler.runs if settings.upstream.submit == "batch" else None
        self.turns: Turns[Submission] = Turns(
            self.book, self, owner, report, clock, tier=tier, runs=runs, witness=witness
        )
        self._attaching = Attaching(recorder, owner, find=self.find, take=self.take) if recorder is not None else None
        self._draining = False
        self._stateful_refusals = metrics.prechecks.cell("stateful")
        self._unrecorded = metrics.unrecorded.cell()
        self._lane_refusals = {name: metrics.lane_refusals.cell(name) for name in REFUSALS}

    def __repr__(self) -> str:
        return f"<Submitter: {self._ends!r}>"

    # Taking: synchronous from the first line to the ticket. No await may come here.

    def find(self, key: tuple[str, bytes]) -> Submission | None:
        """The submission of this key that waits or runs."""
        return self._ends.find(key)

    def take(self, submission: Submission) -> Refusal | None:
        """Take its place in its lane, or say why it gets none."""
        if self._draining:
            return self._not_taken(errors.DRAINING.refusal())
        if self._ends.bytes + submission.size > MAX_INFLIGHT_BYTES:
            return self._not_taken(errors.TOO_MUCH_WAITING.refusal(mib=self._ends.bytes >> 20))
        signed = submission.transaction
        chain_id = signed.chain_id if signed.chain_id is not None else (self._identity.chain_id or 0)
        key, came = lane_key(chain_id, signed.sender_bytes), self._clock()
        joined = self.book.join(key, submission, signed.nonce, submission.arrived, came)
        if isinstance(joined, Refusal):
            return self._not_taken(joined)
        self._ends.expect(submission)
        lane, ticket = joined
        if self._recorder is not None:
            self._write_down(self._recorder, lane, ticket, chain_id)
        self.turns.wake(lane)
        return None

    def _write_down(
        self, recorder: Recorder, lane: Lane[Submission], ticket: Ticket[Submission], chain_id: int
    ) -> None:
        """Beside its way to its turn. One that has ended before, by the journal, needs none."""
        submission = ticket.submission
        if submission.row is not None:
            return  # its record is there: it takes another turn
        if not recordable(chain_id, ticket.nonce):
            self._unrecorded.n += 1
            return
        recorder.enter(submission, chain_id)

        def ready(_: asyncio.Future[None]) -> None:
            early = submission.known_row.early
            if early is not None and ticket.waiting and not submission.ended:
                lane.withdraw(ticket)
                self._ends.finish(submission, early, "recorded before", Reason.TURNED_AWAY)
                self.turns.wake(lane)

        submission.known_row.ready.add_done_callback(ready)

    def attach(self, submission: Submission, key: str) -> Submission:
        """One more client wants it: what that one waits for."""
        submission.copies += 1
        if self._attaching is None or submission.row is None or submission.serves(key):
            return submission
        return self._attaching.attach(submission, key)

    def promise(self, submission: Submission) -> asyncio.Future[bool] | None:
        """As `relay.intake.Desk.promise`."""
        carrier = submission.carrier
        carrier.mode = Mode.ACCEPTED
        return None if self._recorder is None or carrier.row is None else self._recorder.promise(carrier)

    def _not_taken(self, refusal: Refusal) -> Refusal:
        self._lane_refusals[refusal.case.name].n += 1
        return refusal

    # What the lanes ask for beside the turns.

    async def read_counts(self, lane: Lane[Submission], reading: Reading[Submission]) -> int | None:
        """The pending count. Tickets whose nonce is spent leave the lane, and are looked up beside it."""
        address = "0x" + lane.key[:20].hex()
        pending = await self._accounts.pending_count(address)
        if pending is None or not self._settings.prechecks.nonce:
            return pending
        suspects = [ticket for ticket in reading.judged if ticket.waiting and ticket.nonce < pending]
        if not suspects:
            return pending
        latest = await self._accounts.latest_count(address)
        for ticket in suspects:
            if latest is not None and ticket.nonce < latest and ticket.waiting:
                lane.withdraw(ticket)
                self._owner.start("spent", self._spent(ticket.submission, latest))
        return pending

    async def _spent(self, submission: Submission, latest: int) -> None:
        """The nonce is spent: by this very transaction (then that is success), or by another."""
        signed, public = submission.transaction, submission.request.method.public
        known = await self._accounts.knows(signed.hash) if public else None
        if known:
            self._ends.finish(submission, submission.own_hash, "spent by itself", IN_POOL)
            return
        if submission.maybe_sent and known is None:
            self._ends.finish(submission, submission.unknown, "unknown: it may have been sent before", UNCERTAIN)
            return
        self._stateful_refusals.n += 1
        view = prechecks.View(latest_nonce=latest)
        refusal = prechecks.stateful(signed, view, self._identity.policy) or errors.INTERNAL.refusal()
        self._ends.finish(submission, refusal, f"precheck: {refusal.message}", Reason.NONCE_SPENT)

    def turned_away(self, ticket: Ticket[Submission], refusal: Refusal) -> None:
        """The lane let the ticket go without a turn; nothing of it was sent."""
        submission = ticket.submission
        if self._settler.hand is not None:
            self._settler.hand(submission)
            return
        self._lane_refusals[refusal.case.name].n += 1
        how = Reason.BEHIND_GAP if refusal.case is errors.NONCE_GAP else Reason.TURNED_AWAY
        self._ends.finish(submission, submission.refused(refusal), f"turned away: {refusal.message}", how)

    def broken(self, ticket: Ticket[Submission], error: BaseException) -> None:
        """A fault of ours in the middle of a turn: whether the bytes left is not known."""
        self._report("settle", error)
        self._ends.finish(ticket.submission, ticket.submission.unknown, f"fault: {error!r}", UNCERTAIN)

    # Draining (G12).

    def stop_taking(self) -> None:
        """From now on new submissions are refused; copies of those in flight still attach."""
        self._draining = True

    def hand_back(self, back: Callable[[Submission], None]) -> None:
        """Another process goes on: no turn begins any more, and what has not been sent goes ``back``, unanswered."""

        def hand(submission: Submission) -> None:
            self._ends.forget(submission)
            if self._recorder is not None:
                self._recorder.let_go(submission)
            back(submission)

        self._draining = True
        self._settler.hand = hand
        self.turns.turn_all_away(errors.DRAINING.refusal())

    def give_up(self) -> None:
        """The drain is over: refuse what still waits, and say "unknown" for what is at the node."""
        self.turns.turn_all_away(errors.DRAINING.refusal())
        for submission in self._ends.all():
            self._ends.finish(submission, submission.unknown, "unknown: the instance shut down", UNCERTAIN)
        if self._attaching is not None:
            self._attaching.give_up()
