"""THE path of a transaction: `take`, then `settle`. Read this file first; `relay.intake` is what lies before it.

    take     synchronous: room for it? → lane → ticket
    settle   at the lane's turn: stateful prechecks → send → proof → (look up, resend) → release → answer
             (`settle_run`: the same for a run of consecutive nonces in one batch)

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

from relay import errors, prechecks
from relay.errors import Refusal
from relay.lanes import Effect, LaneBook, lane_key
from relay.proof import Doubt, Proofs, Proven, Question
from relay.resolve import Resolver
from relay.runs import Runs
from relay.submission import Accepted, Submission
from relay.telemetry.metrics import DISPOSITIONS, REFUSALS, TIERS
from relay.turns import Turns
from relay.upstream.client import NotSent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relay.config import Settings
    from relay.lanes import Lane, Reading, Ticket
    from relay.lease import Tier
    from relay.resolve import Settled
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
        self._runs = Runs(settings.upstream, identity, metrics, clock)
        runs = self._runs if settings.upstream.submit == "batch" else None
        self.turns: Turns[Submission] = Turns(
            self.book, self, owner, report, clock, tier=tier, runs=runs, witness=witness
        )
        self._inflight: dict[tuple[str, bytes], Submission] = {}
        self._inflight_bytes = 0
        self._draining = False
        self._hand: Callable[[Submission], None] | None = None
        self._log = structlog.get_logger("relay.submit").bind()
        self._count(metrics)

    def _count(self, metrics: Metrics) -> None:
        self._waits = {tier: metrics.lane_wait.cell(tier) for tier in TIERS}
        self._holds = {tier: metrics.lane_hold.cell(tier) for tier in TIERS}
        self._proofs = Proofs(self._identity, {name: metrics.verdicts.cell(name) for name in DISPOSITIONS})
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
        deadline = self._deadline(submission)
        if submission.maybe_sent:
            if await self._resolver.find(submission, deadline):
                self._finish(submission, submission.own_hash, "found: it had been sent before")
                return Effect.ACCEPTED
        elif await self._is_refused(submission):
            return Effect.REFUSED
        attempt = await self._client.submit(
            submission.request.method.wire, submission.request.wire_params, self._share(deadline), submission.permit
        )
        if isinstance(attempt, NotSent) and submission.permit is not None and submission.permit.denied:
            return self._back(submission)
        return await self._conclude(submission, attempt, deadline)

    async def settle_run(self, lane: Lane[Submission], run: Sequence[Ticket[Submission]]) -> list[Effect]:
        """Carry out several in one batch, each to an end of its own; those without one go back to the lane.

        The oldest one's time is the time of all: its client was promised an answer first.
        """
        submissions = [ticket.submission for ticket in run]
        now, permit = self._clock(), self._tier.permit(lane) if self._tier is not None else None
        for submission in submissions:
            submission.held_since, submission.permit = now, permit
        effects: dict[Submission, Effect] = {}
        if sound := await self._sound(submissions, effects):
            deadline = min(map(self._deadline, submissions))
            params = [submission.request.wire_params for submission in sound]
            wire, share = sound[0].request.method.wire, self._share(deadline)
            answer = await self._client.submit_batch(wire, params, share, permit)
            if permit is None or not permit.denied:
                attempts = self._runs.read(answer)
                await self._conclude_run(dict(zip(sound, attempts, strict=True)), deadline, effects)
                self._runs.concluded(attempts, accepted=Effect.ACCEPTED in effects.values())
        return [effects.get(submission) or self._back(submission) for submission in submissions]

    async def _sound(self, run: Sequence[Submission], effects: dict[Submission, Effect]) -> Sequence[Submission]:
        """Those to be sent: up to the first one that a precheck refuses, for what is above it depends on it."""
        for place, submission in enumerate(run):
            if await self._is_refused(submission):
                effects[submission] = Effect.REFUSED
                return run[:place]
        return run

    def _deadline(self, submission: Submission) -> float:
        return submission.arrived + self._settings.ordering.max_wait_s

    def _share(self, deadline: float) -> float:
        """For the first attempt; the rest is for finding out."""
        left = deadline - self._clock()
        return min(self._settings.upstream.timeout_s, left - min(ANSWER_SHARE_S, left / 2))

    def _back(self, submission: Submission) -> Effect:
        """Its turn came to nothing: it waits again, here or at whom the lanes go to.

        Not if it was answered meanwhile, at the end of a drain.
        """
        if submission.outcome.done():
            return Effect.DOUBTFUL
        submission.held_since = submission.permit = None
        if self._hand is None:
            return Effect.WITHHELD
        self._give_back(submission)
        return Effect.REFUSED

    async def _is_refused(self, submission: Submission) -> bool:
        """By a stateful precheck; then its clients are answered."""
        refusal = await self._stateful(submission)
        if refusal is not None:
            self._finish(submission, refusal, f"precheck: {refusal.message}")
        return refusal is not None

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
        proof = self._proofs.of(submission, attempt)
        if isinstance(proof, Proven):
            return self._end(submission, proof)
        effects: dict[Submission, Effect] = {}
        await self._clear_up({submission: proof}, deadline, submission, effects)
        return effects[submission]

    async def _conclude_run(
        self, attempts: dict[Submission, Attempt], deadline: float, effects: dict[Submission, Effect]
    ) -> None:
        """The same for each of a run: what is proven ends at once, for the rest one search is made."""
        head = next(iter(attempts))
        unclear: dict[Submission, Question | Doubt] = {}
        for submission, attempt in attempts.items():
            proof = self._proofs.of(submission, attempt)
            if isinstance(proof, Proven):
                self._end_of(submission, proof, head, effects)
            else:
                unclear[submission] = proof
        if unclear:
            await self._clear_up(unclear, deadline, head, effects)

    async def _clear_up(
        self,
        unclear: dict[Submission, Question | Doubt],
        deadline: float,
        head: Submission,
        effects: dict[Submission, Effect],
    ) -> None:
        """Ask for the hashes in question, and find out what stays in doubt. ``unclear`` is in nonce order."""
        asked = {submission: proof for submission, proof in unclear.items() if isinstance(proof, Question)}
        hashes = [submission.transaction.hash for submission in asked]
        known = await self._accounts.known(hashes, deadline - self._clock())
        proofs = unclear | {one: asked[one].follows(seen) for one, seen in zip(asked, known, strict=True)}
        doubts = {submission: proof for submission, proof in proofs.items() if isinstance(proof, Doubt)}
        for submission, proof in proofs.items():
            if isinstance(proof, Proven):
                self._end_of(submission, proof, head, effects)

        def tell(submission: Submission, settled: Settled | None) -> None:
            effects[submission] = self._end(submission, _found_out(submission, settled, doubts[submission].why))

        await self._resolver.resolve(list(doubts), deadline, tell, head.permit)

    def _end_of(
        self, submission: Submission, proof: Proven, head: Submission, effects: dict[Submission, Effect]
    ) -> None:
        """A follower that may be refused only for what went wrong below it has no end yet: it goes back to the lane."""
        if submission is head or not proof.dependent:
            effects[submission] = self._end(submission, proof)

    def _end(self, submission: Submission, proof: Proven) -> Effect:
        self._finish(submission, proof.outcome, proof.verdict)
        return proof.effect

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
        if self._hand is not None:
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
        self._hand = back
        self.turns.turn_all_away(errors.DRAINING.refusal())

    def _give_back(self, submission: Submission) -> None:
        assert self._hand is not None
        self._forget(submission)
        self._hand(submission)

    def give_up(self) -> None:
        """The drain is over: refuse what still waits, and say "unknown" for what is at the node."""
        self.turns.turn_all_away(errors.DRAINING.refusal())
        for submission in list(self._inflight.values()):
            self._finish(submission, submission.unknown, "unknown: the instance shut down")


def _found_out(submission: Submission, settled: Settled | None, why: str) -> Proven:
    """How a search ended."""
    if settled is None:
        return Proven(submission.unknown, f"unknown: {why}", Effect.DOUBTFUL)
    outcome = Accepted(settled.result) if settled.result else submission.own_hash
    return Proven(outcome, f"{'found' if settled.found else 'resent'} after: {why}", Effect.ACCEPTED)
