"""What became of submissions whose answers prove nothing (G6): one, or those of a run.

Job: look the hashes up at the upstream, then send the same bytes again, and only at the very end say "unknown".
Rules: the same bytes by the same method, never others, lowest nonce first, one at a time, and only while the lane is
ours (``gate``); with a journal, each send is on disk before it leaves. A refusal of a resend proves nothing about the
first send. The whole takes no longer than the caller's deadline, however many they are: they are looked up at once and
share the waits. The absence of a private submission is not looked for: it proves nothing.
Must not know: lanes, clients.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from relay.proof import fits, judge
from relay.upstream.client import Answered, NotSent
from relay.verdict import Disposition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from relay.proof import NodeFacts
    from relay.recorder import Recorder
    from relay.submission import Submission
    from relay.telemetry.metrics import Metrics
    from relay.upstream.accounts import Accounts
    from relay.upstream.client import Attempt, UpstreamClient

    Tell = Callable[[Submission, "Settled | None"], None]
    Gate = Callable[[], bool]

WAITS_S: Final = (0.2, 0.4, 0.8)
"""Before each round of resends, for as long as the rounds are in vain."""
UNRECORDED: Final = NotSent("the journal could not be written")


@dataclass(frozen=True, slots=True)
class Settled:
    """The node has it. ``result`` is its own text where a resend brought one."""

    result: bytes | None
    found: bool


class Resolver:
    """Finds out, within a deadline."""

    def __init__(  # noqa: PLR0913 - what it asks, each a room of its own
        self,
        *,
        client: UpstreamClient,
        accounts: Accounts,
        facts: NodeFacts,
        metrics: Metrics,
        clock: Callable[[], float],
        recorder: Recorder | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._recorder = recorder
        self._client = client
        self._accounts = accounts
        self._facts = facts
        self._clock = clock
        self._pause = pause
        self._ends = {end: metrics.unknown.cell(end) for end in ("found", "accepted", "unknown")}

    async def resolve(
        self,
        submissions: Sequence[Submission],
        deadline: float,
        tell: Tell,
        gate: Gate | None = None,
    ) -> None:
        """Tell of each, as soon as it is known: the node has it (`Settled`), or nobody can tell (None).

        ``submissions`` stand in nonce order. ``gate`` is asked before each resend.
        """
        missing = await self._look(submissions, deadline, tell)
        vain = 0
        while missing and vain < len(WAITS_S) and self._clock() + WAITS_S[vain] < deadline:
            await self._pause(WAITS_S[vain])
            still = await self._resend(missing, deadline, len(WAITS_S) - vain + 1, tell, gate)
            still = await self._look(still, deadline, tell)
            # A round that got one of them through is no sign that the next one will not: the waits begin anew.
            vain = vain + 1 if len(still) == len(missing) else 0
            missing = still
        for submission in missing:
            self._tell(submission, None, tell)

    async def find(self, submission: Submission, deadline: float) -> bool:
        """Does the node show what may have been sent to it? Counted if it does; else nothing has ended yet."""
        left = deadline - self._clock()
        if not submission.request.method.public or left <= 0:
            return False
        found = await self._accounts.knows(submission.transaction.hash, left) is True
        if found:
            self._ends["found"].n += 1
        return found

    async def _look(self, missing: Sequence[Submission], deadline: float, tell: Tell) -> list[Submission]:
        """Those that the node does not show."""
        public = [submission for submission in missing if submission.request.method.public]
        left = deadline - self._clock()
        if not public or left <= 0:
            return list(missing)
        known = await self._accounts.known([submission.transaction.hash for submission in public], left)
        found = {submission for submission, seen in zip(public, known, strict=True) if seen}
        for submission in found:
            self._tell(submission, Settled(None, found=True), tell)
        return [submission for submission in missing if submission not in found]

    async def _resend(
        self, missing: list[Submission], deadline: float, shares: int, tell: Tell, gate: Gate | None
    ) -> list[Submission]:
        """One round: those that it did not prove to be there. Without an answer the rest would fare no better."""
        open_: list[Submission] = []
        for place, submission in enumerate(missing):
            share = (deadline - self._clock()) / shares
            if share <= 0:
                return open_ + missing[place:]
            attempt = await self._send(submission, share, gate)
            if (result := self._proof(attempt, submission)) is not None:
                self._tell(submission, Settled(result or None, found=False), tell)
            else:
                open_.append(submission)
            if not isinstance(attempt, Answered):
                return open_ + missing[place + 1 :]
        return open_

    async def _send(self, submission: Submission, share: float, gate: Gate | None) -> Attempt:
        request, recorder = submission.request, self._recorder
        if recorder is None or submission.row is None:
            return await self._client.submit(request.method.wire, request.wire_params, share, gate)
        if not await recorder.again(submission):
            return UNRECORDED
        attempt = await self._client.submit(request.method.wire, request.wire_params, share, gate)
        recorder.answered(submission, attempt)
        return attempt

    def _proof(self, attempt: Attempt, submission: Submission) -> bytes | None:
        """The result's text (empty for "already known") if this answer to a resend shows that the node has it."""
        if not isinstance(attempt, Answered):
            return None
        reply = attempt.reply
        if reply.result is not None:
            return reply.result if fits(submission.request, submission.transaction.hash, reply.result) else None
        return b"" if judge(reply.error, self._facts.client).disposition is Disposition.IN_POOL else None

    def _tell(self, submission: Submission, settled: Settled | None, tell: Tell) -> None:
        self._ends["unknown" if settled is None else "found" if settled.found else "accepted"].n += 1
        tell(submission, settled)
