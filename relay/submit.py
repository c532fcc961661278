"""THE path of a transaction: `take`, then `settle`. Read this file first; `relay.intake` is what lies before it.

    take     synchronous: room for it? → lane → ticket
    settle   at the lane's turn: stateful prechecks → send → verdict → (look up, resend) → release → answer

Rules
- `take` does not await: a submission's place is decided at the instant its request is complete (G2).
- A submission belongs to its lane, not to a connection (G8).
- Whatever may have been sent is answered with failure only when that is proven (G6).
Must not know: HTTP, WebSocket, batches, how requests are read, how turns are taken.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from relay import errors, jsonrpc, prechecks
from relay.errors import Refusal
from relay.lanes import Effect, LaneBook, lane_key
from relay.resolve import Resolver, fits, judge
from relay.submission import Accepted, Declined, Submission
from relay.telemetry.metrics import DISPOSITIONS, REFUSALS, TIERS
from relay.turns import Turns
from relay.upstream.client import Answered, Lost, NotSent
from relay.verdict import Client, Disposition

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.config import Settings
    from relay.lanes import Lane, Reading, Ticket
    from relay.lease import Tier
    from relay.submission import Outcome
    from relay.tasks import TaskOwner
    from relay.telemetry.metrics import Metrics
    from relay.turns import Witness
    from relay.upstream.accounts import Accounts
    from relay.upstream.client import Attempt, UpstreamClient
    from relay.upstream.identity import Identity

ANSWER_SHARE_S: Final = 5.0
"""Of a submission's time, at most this much is kept for finding out what became of it when the node stays silent."""

MAX_INFLIGHT_BYTES: Final = 256 * 1024 * 1024
"""Of all submissions together: keys cost nothing, so no bound for each sender bounds the memory."""

SEEN_CACHES: Final = frozenset({Client.NETHERMIND})
"""Clients that say "already known" of what they have seen, even after their pool dropped it."""


class Submitter:
    """The desk in front of the lanes (`relay.intake.Desk`): takes submissions, carries them out at their turn."""

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
    ) -> None:
        self._settings = settings
        self._client = client
        self._accounts = accounts
        self._identity = identity
        self._owner = owner
        self._report = report
        self._clock = clock
        self._tier = tier
        self._resolver = Resolver(client=client, accounts=accounts, facts=identity, metrics=metrics, clock=clock)
        self.book: LaneBook[Submission] = LaneBook(settings.ordering, shared=tier is not None)
        self.turns: Turns[Submission] = Turns(self.book, self, owner, report, clock, tier=tier, witness=witness)
        self._inflight: dict[tuple[str, bytes], Submission] = {}
        self._inflight_bytes = 0
        self._draining = False
        self._back: Callable[[Submission], None] | None = None
        self._log = structlog.get_logger("relay.submit")
        self._count(metrics)

    def _count(self, metrics: Metrics) -> None:
        self._waits = {tier: metrics.lane_wait.cell(tier) for tier in TIERS}
        self._holds = {tier: metrics.lane_hold.cell(tier) for tier in TIERS}
        self._verdicts = {name: metrics.verdicts.cell(name) for name in DISPOSITIONS}
        self._stateful_refusals = metrics.prechecks.cell("stateful")
        self._lane_refusals = {name: metrics.lane_refusals.cell(name) for name in REFUSALS}

    # Taking: synchronous from the first line to the ticket. No await may come here.

    def find(self, key: tuple[str, bytes]) -> Submission | None:
        """The submission of this key that waits or runs."""
        return self._inflight.get(key)

    def take(self, submission: Submission) -> Refusal | None:
        """Take its place in its lane, or say why it gets none."""
        if self._draining:
            return self._not_taken(errors.DRAINING.refusal())
        if self._inflight_bytes + submission.size > MAX_INFLIGHT_BYTES:
            return self._not_taken(errors.TOO_MUCH_WAITING.refusal(mib=self._inflight_bytes >> 20))
        signed = submission.transaction
        chain_id = signed.chain_id if signed.chain_id is not None else (self._identity.chain_id or 0)
        joined = self.book.join(lane_key(chain_id, signed.sender_bytes), submission, signed.nonce, submission.arrived)
        if isinstance(joined, Refusal):
            return self._not_taken(joined)
        self._inflight[submission.key] = submission
        self._inflight_bytes += submission.size
        lane, _ = joined
        self.turns.wake(lane)
        return None

    def _not_taken(self, refusal: Refusal) -> Refusal:
        self._lane_refusals[refusal.case.name].n += 1
        return refusal

    # Settling: at the lane's turn, owned by the lane's task.

    async def settle(self, lane: Lane[Submission], ticket: Ticket[Submission]) -> Effect:
        """Carry one submission out. Returns the moment the upstream has answered, or never will."""
        submission = ticket.submission
        submission.held_since = self._clock()
        submission.permit = self._tier.permit(lane) if self._tier is not None else None
        deadline = submission.arrived + self._settings.ordering.max_wait_s
        if submission.maybe_sent:
            if await self._resolver.find(submission.request, submission.transaction.hash, deadline):
                self._finish(submission, submission.own_hash, "found: it had been sent before")
                return Effect.ACCEPTED
        elif (refusal := await self._stateful(submission)) is not None:
            self._finish(submission, refusal, f"precheck: {refusal.message}")
            return Effect.REFUSED
        left = deadline - self._clock()
        attempt = await self._client.submit(
            submission.request.method.wire,
            submission.request.wire_params,
            min(self._settings.upstream.timeout_s, left - min(ANSWER_SHARE_S, left / 2)),
            submission.permit,
        )
        if isinstance(attempt, NotSent) and submission.permit is not None and submission.permit.denied:
            return self._withheld(submission)
        return await self._conclude(submission, attempt, deadline)

    def _withheld(self, submission: Submission) -> Effect:
        if self._back is None:
            return Effect.WITHHELD
        self._give_back(submission)
        return Effect.REFUSED

    async def _stateful(self, submission: Submission) -> Refusal | None:
        """The balance, if asked for: a recent one may let it pass, only a fresh one may refuse it."""
        if not self._settings.prechecks.balance:
            return None
        signed, policy = submission.transaction, self._identity.policy
        recent = prechecks.View(balance=await self._accounts.recent_balance(signed.sender))
        if prechecks.stateful(signed, recent, policy) is None:
            return None
        fresh = prechecks.View(balance=await self._accounts.balance(signed.sender))
        refusal = prechecks.stateful(signed, fresh, policy)
        if refusal is not None:
            self._stateful_refusals.n += 1
        return refusal

    async def _conclude(self, submission: Submission, attempt: Attempt, deadline: float) -> Effect:
        """From an attempt to an outcome."""
        match attempt:
            case NotSent(detail) if not submission.maybe_sent:
                self._finish(submission, errors.UPSTREAM_UNREACHABLE.refusal(detail=detail), "not sent")
                return Effect.REFUSED
            case NotSent(detail) | Lost(detail):
                return await self._find_out(submission, detail, deadline)
            case Answered(reply):
                if reply.error is None:
                    return await self._taken(submission, reply.result or jsonrpc.NULL, deadline)
                return await self._refused(submission, reply, deadline)

    async def _taken(self, submission: Submission, result: bytes, deadline: float) -> Effect:
        if not fits(submission.request, submission.transaction.hash, result):
            return await self._find_out(submission, "the answer is not this transaction's hash", deadline)
        self._verdicts["accepted"].n += 1
        known_hash = submission.request.method.by_bytes
        self._finish(submission, submission.own_hash if known_hash else Accepted(result), "accepted")
        return Effect.ACCEPTED

    async def _refused(self, submission: Submission, reply: jsonrpc.Reply, deadline: float) -> Effect:
        """The node answered an error: what does it mean?"""
        verdict = judge(reply.error, self._identity.client)
        self._verdicts[verdict.disposition].n += 1
        if verdict.disposition is Disposition.UNCERTAIN or (
            submission.maybe_sent and verdict.disposition is not Disposition.IN_POOL
        ):
            return await self._find_out(submission, verdict.reason, deadline)
        match verdict.disposition:
            case Disposition.IN_POOL:
                if self._identity.client in SEEN_CACHES and await self._known(submission, deadline) is False:
                    return await self._find_out(submission, "seen, but not in the pool", deadline)
                self._finish(submission, submission.own_hash, "in pool")
                return Effect.ACCEPTED
            case Disposition.NONCE_SPENT | Disposition.UNRECOGNISED if submission.request.method.public:
                known = await self._known(submission, deadline)
                if known is None:
                    return await self._find_out(submission, verdict.reason, deadline)
                if known:
                    self._finish(submission, submission.own_hash, f"{verdict.reason}, known")
                    return Effect.DOUBTFUL
        self._finish(submission, Declined(reply.error_text or b"{}"), verdict.reason)
        doubtful = verdict.about_nonce or verdict.disposition in (Disposition.SLOT_TAKEN, Disposition.UNRECOGNISED)
        return Effect.DOUBTFUL if doubtful else Effect.REFUSED

    async def _known(self, submission: Submission, deadline: float) -> bool | None:
        return await self._accounts.knows(submission.transaction.hash, deadline - self._clock())

    async def _find_out(self, submission: Submission, why: str, deadline: float) -> Effect:
        settled = await self._resolver.resolve(
            submission.request, submission.transaction.hash, deadline, submission.permit
        )
        if settled is None:
            self._finish(submission, submission.unknown, f"unknown: {why}")
            return Effect.DOUBTFUL
        outcome = Accepted(settled.result) if settled.result else submission.own_hash
        self._finish(submission, outcome, f"{'found' if settled.found else 'resent'} after: {why}")
        return Effect.ACCEPTED

    def _finish(self, submission: Submission, outcome: Outcome, verdict: str) -> None:
        """Answer every copy. The lane does not wait for that: the callbacks and the log line run after it has moved."""
        if submission.outcome.done():
            return
        submission.outcome.set_result(outcome)
        submission.verdict = verdict
        self._forget(submission)
        asyncio.get_running_loop().call_soon(self._record, submission, self._clock())

    def _forget(self, submission: Submission) -> None:
        if self._inflight.pop(submission.key, None) is not None:
            self._inflight_bytes -= submission.size

    def _record(self, submission: Submission, now: float) -> None:
        """The one canonical line of a submission."""
        held_since = submission.held_since
        fence = submission.permit.fence if submission.permit is not None else 0
        if held_since is not None:
            tier = "redis" if fence else "local"
            self._waits[tier].observe(held_since - submission.arrived)
            self._holds[tier].observe(now - held_since)
        signed = submission.transaction
        self._log.info(
            "submission",
            hash=signed.hash,
            sender=signed.sender,
            nonce=signed.nonce,
            method=submission.request.method.name,
            wait_ms=round(((held_since or now) - submission.arrived) * 1000, 3),
            hold_ms=round((now - held_since) * 1000, 3) if held_since is not None else None,
            fence=fence or None,
            copies=submission.copies,
            verdict=submission.verdict,
        )

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
            self._finish(submission, submission.own_hash, "spent by itself")
            return
        if submission.maybe_sent and known is None:
            self._finish(submission, submission.unknown, "unknown: it may have been sent before")
            return
        self._stateful_refusals.n += 1
        view = prechecks.View(latest_nonce=latest)
        refusal = prechecks.stateful(signed, view, self._identity.policy) or errors.INTERNAL.refusal()
        self._finish(submission, refusal, f"precheck: {refusal.message}")

    def turned_away(self, ticket: Ticket[Submission], refusal: Refusal) -> None:
        """The lane let the ticket go without a turn; nothing of it was sent."""
        submission = ticket.submission
        if self._back is not None:
            self._give_back(submission)
            return
        self._lane_refusals[refusal.case.name].n += 1
        self._finish(submission, submission.refused(refusal), f"turned away: {refusal.message}")

    def broken(self, ticket: Ticket[Submission], error: BaseException) -> None:
        """A fault of ours in the middle of a turn: whether the bytes left is not known."""
        self._report("settle", error)
        self._finish(ticket.submission, ticket.submission.unknown, f"fault: {error!r}")

    # Draining (G12).

    def stop_taking(self) -> None:
        """From now on new submissions are refused; copies of those in flight still attach."""
        self._draining = True

    def hand_back(self, back: Callable[[Submission], None]) -> None:
        """Another process goes on: no turn begins any more, and what has not been sent goes ``back``, unanswered."""
        self._draining = True
        self._back = back
        self.turns.turn_all_away(errors.DRAINING.refusal())

    def _give_back(self, submission: Submission) -> None:
        assert self._back is not None
        self._forget(submission)
        self._back(submission)

    def give_up(self) -> None:
        """The drain is over: refuse what still waits, and say "unknown" for what is at the node."""
        self.turns.turn_all_away(errors.DRAINING.refusal())
        for submission in list(self._inflight.values()):
            self._finish(submission, submission.unknown, "unknown: the instance shut down")
