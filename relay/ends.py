"""How submissions end: whoever waits is told, once, and one line is logged.

Job: the table of what is in flight; from an end to the outcome of a submission, by way of the journal where there is
one; the canonical log line.
Rules: the lane waits for none of it (G3). What has ended ends once.
Must not know: turns, nodes, how an end was found out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from relay.telemetry.metrics import TIERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.recorder import Recorder
    from relay.recorder.steps import How
    from relay.submission import Outcome, Submission
    from relay.telemetry.metrics import Metrics


class Ends:
    """Of the submissions of one process."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float], recorder: Recorder | None) -> None:
        self._recorder = recorder
        self._clock = clock
        self._inflight: dict[tuple[str, bytes], Submission] = {}
        self.bytes = 0
        """Kept for what is in flight."""
        self._waits = {tier: metrics.lane_wait.cell(tier) for tier in TIERS}
        self._holds = {tier: metrics.lane_hold.cell(tier) for tier in TIERS}
        self._log = structlog.get_logger("relay.submit").bind()

    def __repr__(self) -> str:
        return f"<ends: {len(self._inflight)} in flight>"

    def find(self, key: tuple[str, bytes]) -> Submission | None:
        """The submission of this key that has not been answered."""
        return self._inflight.get(key)

    def all(self) -> list[Submission]:
        """Everything that has not been answered."""
        return list(self._inflight.values())

    def expect(self, submission: Submission) -> None:
        """It is in flight from here on."""
        self._inflight[submission.key] = submission
        self.bytes += submission.size

    def forget(self, submission: Submission) -> None:
        """It is not, any more."""
        if self._inflight.pop(submission.key, None) is not None:
            self.bytes -= submission.size

    def finish(self, submission: Submission, outcome: Outcome, verdict: str, how: How) -> None:
        """It has ended: answer every copy, with a journal once that is on disk. ``how`` is for the record."""
        if submission.ended:
            return
        submission.ended = True
        submission.verdict = verdict
        ended_at = self._clock()
        if self._recorder is not None and submission.row is not None:
            self._recorder.end(submission, outcome, how, lambda _, told: self._answer(submission, told, ended_at))
        else:
            self._answer(submission, outcome, ended_at)

    def _answer(self, submission: Submission, outcome: Outcome, ended_at: float) -> None:
        """The callbacks and the log line run after the lane has moved."""
        submission.outcome.set_result(outcome)
        self.forget(submission)
        asyncio.get_running_loop().call_soon(self._record, submission, ended_at)

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
