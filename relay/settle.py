"""A submission's turn: from the ticket's turn to what the node's answer proves.

    (on disk?) → stateful prechecks → (seal) → send → proof → (look up, resend) → an effect for the lane, an end for it

Rules: the lane is told the moment the upstream has answered, or never will (G3). Whatever may have been sent is
answered with failure only when that is proven (G6). With a journal nothing leaves before it is on disk
(`relay.recorder`).
Must not know: how tickets are taken, how turns are given, HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relay import prechecks
from relay.lanes import Effect
from relay.lifecycle import Reason
from relay.proof import Doubt, Proofs, Proven, Question
from relay.recorder import Hint
from relay.resolve import Resolver
from relay.runs import Runs
from relay.submission import Accepted
from relay.telemetry.metrics import DISPOSITIONS
from relay.upstream.client import NotSent
from relay.verdict import Disposition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relay.config import Settings
    from relay.ends import Ends
    from relay.errors import Refusal
    from relay.lanes import Lane, Ticket
    from relay.lease import Permit, Tier
    from relay.proof import Proof
    from relay.recorder import Recorder
    from relay.resolve import Settled
    from relay.submission import Outcome, Submission
    from relay.telemetry.metrics import Metrics
    from relay.upstream.accounts import Accounts
    from relay.upstream.client import Attempt, UpstreamClient
    from relay.upstream.identity import Identity

ANSWER_SHARE_S: Final = 5.0
"""Of a submission's time, at most this much is kept for finding out what became of it when the node stays silent."""

IN_POOL: Final = Disposition.IN_POOL
UNCERTAIN: Final = Disposition.UNCERTAIN


class Settler:
    """Carries submissions out."""

    def __init__(  # noqa: PLR0913 - the rooms that a turn goes through
        self,
        *,
        settings: Settings,
        client: UpstreamClient,
        accounts: Accounts,
        identity: Identity,
        ends: Ends,
        metrics: Metrics,
        clock: Callable[[], float],
        tier: Tier | None,
        recorder: Recorder | None,
    ) -> None:
        self._settings = settings
        self._client = client
        self._accounts = accounts
        self._identity = identity
        self._ends = ends
        self._clock = clock
        self._tier = tier
        self._recorder = recorder
        self._resolver = Resolver(
            client=client, accounts=accounts, facts=identity, metrics=metrics, clock=clock, recorder=recorder
        )
        self.runs = Runs(settings.upstream, identity, metrics, clock)
        self._proofs = Proofs(identity, {name: metrics.verdicts.cell(name) for name in DISPOSITIONS})
        self._refused = metrics.prechecks.cell("stateful")
        self.hand: Callable[[Submission], None] | None = None
        """Takes what has not been sent, once another process has the lanes."""

    def __repr__(self) -> str:
        return f"<Settler over {self._ends!r}>"

    async def settle(self, lane: Lane[Submission], ticket: Ticket[Submission]) -> Effect:
        """Carry one submission out. Returns the moment the upstream has answered, or never will."""
        submission = ticket.submission
        submission.held_since = self._clock()
        submission.permit = self._tier.permit(lane) if self._tier is not None else None
        deadline = self._deadline(submission)
        if (effect := await self._before_sending(submission, deadline)) is not None:
            return effect
        attempt = await self._client.submit(
            submission.request.method.wire, submission.request.wire_params, self._share(deadline), submission.permit
        )
        if isinstance(attempt, NotSent) and submission.permit is not None and submission.permit.denied:
            return self._back(submission)
        return await self._conclude(submission, attempt, deadline)

    async def _before_sending(self, submission: Submission, deadline: float) -> Effect | None:
        """How its turn ends without a send; None: send it."""
        recorder = self._recorder if submission.row is not None else None
        if recorder is not None and (early := await recorder.entered(submission)) is not None:
            return self._end_early(submission, early)
        if (effect := await self._looked_at(submission, deadline)) is not None or recorder is None:
            return effect
        hint = await self._seal(recorder, submission)
        if hint is Hint.LOOK:
            if (effect := await self._looked_at(submission, deadline)) is not None:
                return effect
            hint = await self._seal(recorder, submission)
        if not isinstance(hint, Hint):
            return self._end_early(submission, hint)
        return None if hint is Hint.GO else self._back(submission)

    async def _looked_at(self, submission: Submission, deadline: float) -> Effect | None:
        """Is it there already, or refused by a precheck?"""
        if submission.maybe_sent:
            if await self._resolver.find(submission, deadline):
                self._ends.finish(submission, submission.own_hash, "found: it had been sent before", IN_POOL)
                return Effect.ACCEPTED
        elif await self._is_refused(submission):
            return Effect.REFUSED
        return None

    async def _seal(self, recorder: Recorder, submission: Submission) -> Hint | Outcome:
        """The intent on disk, under the fence of the lease that is asked for at this moment."""
        if submission.permit is not None and not submission.permit():
            return Hint.BACK
        return (await recorder.seal([submission]))[0]

    def _end_early(self, submission: Submission, outcome: Outcome) -> Effect:
        """The journal, or what it knows, ends it without a send."""
        self._ends.finish(submission, outcome, "by the journal", Reason.TURNED_AWAY)
        return Effect.ACCEPTED if isinstance(outcome, Accepted) else Effect.DOUBTFUL

    async def settle_run(self, lane: Lane[Submission], run: Sequence[Ticket[Submission]]) -> list[Effect]:
        """Carry out several in one batch, each to an end of its own; those without one go back to the lane.

        The oldest one's time is the time of all: its client was promised an answer first.
        """
        submissions = [ticket.submission for ticket in run]
        now, permit = self._clock(), self._tier.permit(lane) if self._tier is not None else None
        for submission in submissions:
            submission.held_since, submission.permit = now, permit
        effects: dict[Submission, Effect] = {}
        if sound := await self._sealed(await self._sound(submissions, effects), permit, effects):
            deadline = min(map(self._deadline, submissions))
            params = [submission.request.wire_params for submission in sound]
            wire, share = sound[0].request.method.wire, self._share(deadline)
            answer = await self._client.submit_batch(wire, params, share, permit)
            if permit is None or not permit.denied:
                attempts = self.runs.read(answer)
                await self._conclude_run(dict(zip(sound, attempts, strict=True)), deadline, effects)
                self.runs.concluded(attempts, accepted=Effect.ACCEPTED in effects.values())
        return [effects.get(submission) or self._back(submission) for submission in submissions]

    async def _sound(self, run: Sequence[Submission], effects: dict[Submission, Effect]) -> Sequence[Submission]:
        """Those to be sent: up to the first one that is not to be, for what is above it depends on it."""
        for place, submission in enumerate(run):
            if self._recorder is not None and submission.row is not None:
                early = await self._recorder.entered(submission)
                if early is not None:
                    effects[submission] = self._end_early(submission, early)
                if early is not None or submission.maybe_sent:
                    return run[:place]
            if await self._is_refused(submission):
                effects[submission] = Effect.REFUSED
                return run[:place]
        return run

    async def _sealed(
        self, run: Sequence[Submission], permit: Permit | None, effects: dict[Submission, Effect]
    ) -> Sequence[Submission]:
        """Those whose intents are on disk, up to the first one that is not; none if the lane is not ours."""
        if self._recorder is None or not run:
            return run
        if permit is not None and not permit():
            return ()
        recorded = [submission for submission in run if submission.row is not None]
        hints = dict(zip(recorded, await self._recorder.seal(recorded), strict=True))
        for place, submission in enumerate(run):
            hint = hints.get(submission, Hint.GO)
            if not isinstance(hint, Hint):
                effects[submission] = self._end_early(submission, hint)
            if hint is not Hint.GO:
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
        if submission.ended:
            return Effect.DOUBTFUL
        if self._recorder is not None and submission.row is not None:
            self._recorder.back(submission)
        submission.held_since = submission.permit = None
        if self.hand is None:
            return Effect.WITHHELD
        self.hand(submission)
        return Effect.REFUSED

    async def _is_refused(self, submission: Submission) -> bool:
        """By a stateful precheck; then its clients are answered."""
        refusal = await self._stateful(submission)
        if refusal is not None:
            self._ends.finish(submission, refusal, f"precheck: {refusal.message}", Reason.PRECHECK)
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
            self._refused.n += 1
        return refusal

    async def _conclude(self, submission: Submission, attempt: Attempt, deadline: float) -> Effect:
        """From an attempt to an outcome."""
        proof = self._proof(submission, attempt)
        if isinstance(proof, Proven):
            return self._end(submission, proof)
        effects: dict[Submission, Effect] = {}
        await self._clear_up({submission: proof}, deadline, submission, effects)
        return effects[submission]

    def _proof(self, submission: Submission, attempt: Attempt) -> Proof:
        if self._recorder is not None and submission.row is not None:
            self._recorder.answered(submission, attempt)
        return self._proofs.of(submission, attempt)

    async def _conclude_run(
        self, attempts: dict[Submission, Attempt], deadline: float, effects: dict[Submission, Effect]
    ) -> None:
        """The same for each of a run: what is proven ends at once, for the rest one search is made."""
        head = next(iter(attempts))
        unclear: dict[Submission, Question | Doubt] = {}
        for submission, attempt in attempts.items():
            proof = self._proof(submission, attempt)
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
        self._ends.finish(submission, proof.outcome, proof.verdict, proof.how)
        return proof.effect


def _found_out(submission: Submission, settled: Settled | None, why: str) -> Proven:
    """How a search ended."""
    if settled is None:
        return Proven(submission.unknown, f"unknown: {why}", Effect.DOUBTFUL, UNCERTAIN)
    outcome = Accepted(settled.result) if settled.result else submission.own_hash
    return Proven(outcome, f"{'found' if settled.found else 'resent'} after: {why}", Effect.ACCEPTED, IN_POOL)
