"""Runs: which submissions of a lane go to the node as one batch, and whether it takes batches at all.

Job: with ``[upstream] submit = "batch"``, choose who rides with the head of a lane, and read what came back.
Rules: a run is one submission to the lane (G1): consecutive nonces in one JSON-RPC batch, in their order, each with an
answer of its own. What has none is unknown, and so is what a node says under a call's id about the batch. A node that
refuses batches is spoken to singly for `SINGLY_S`, and so is one that takes single calls and answers no batch.
Must not know: lanes (they say what follows on what), what becomes of a submission.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from relay.proof import judge
from relay.upstream.client import Answered, Lost, NotSent
from relay.verdict import Disposition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from relay.config import Upstream
    from relay.lanes import Ticket
    from relay.proof import NodeFacts
    from relay.submission import Submission
    from relay.telemetry.metrics import Metrics
    from relay.upstream.client import Attempt, BatchAnswer

MAX_RUN_BYTES: Final = 1024 * 1024
"""Of a batch's body: what a proxy before the node takes without being told (nginx: 1 MiB). Alone, any may be larger."""
CALL_BYTES: Final = 128
"""At most, of a call beside its params."""
SINGLY_S: Final = 600.0
"""How long a node that refused a batch is sent none."""
MOST_UNANSWERED: Final = 3
"""Runs in a row without an answer to any call, whose transactions were then accepted by single calls."""
CONTENT_TOO_LARGE: Final = 413
_REFUSED: Final = Lost("the upstream refused the batch")


class Runs:
    """For one upstream. Single until `SINGLY_S` after the last refusal of a batch, or too many without an answer."""

    def __init__(self, settings: Upstream, facts: NodeFacts, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._most = settings.max_submit_batch
        self._facts = facts
        self._clock = clock
        self._singly_until = float("-inf")
        self._unanswered = 0
        """Runs in a row."""
        self._log = structlog.get_logger("relay.submit")
        self._ends = {end: metrics.runs.cell(end) for end in metrics.runs.labels["end"]}
        self._sent = metrics.run_submissions.cell()

    def riders(self, head: Submission, following: Iterator[Ticket[Submission]]) -> list[Ticket[Submission]]:
        """See `relay.turns.Runs`."""
        riders: list[Ticket[Submission]] = []
        if not head.rides or self._clock() < self._singly_until:
            return riders
        room = MAX_RUN_BYTES - _body_bytes(head)
        while len(riders) < self._most - 1 and (ticket := next(following, None)) is not None:
            room -= _body_bytes(ticket.submission)
            if room < 0 or not ticket.submission.rides:
                break
            riders.append(ticket)
        return riders

    def read(self, answer: BatchAnswer) -> list[Attempt]:
        """The attempts of a run. An answer about the batch is none about the transaction that it names."""
        self._sent.n += len(answer.attempts)
        misplaced = [self._is_about_batch(attempt) for attempt in answer.attempts]
        attempts = [_REFUSED if no else attempt for no, attempt in zip(misplaced, answer.attempts, strict=True)]
        if refused := any(misplaced) or answer.status == CONTENT_TOO_LARGE or self._refuses(answer.shared):
            self._go_singly("the upstream refuses batches", length=len(answer.attempts), status=answer.status)
        self._ends["refused" if refused else _end(attempts)].n += 1
        return attempts

    def concluded(self, attempts: list[Attempt], *, accepted: bool) -> None:
        """What `read` left unclear has an end now. ``accepted``: single calls found out that the node has some of it,
        or made it take some; without that, the node may answer nothing at all, and a batch is as good as a call."""
        if any(isinstance(attempt, Answered) for attempt in attempts):
            self._unanswered = 0
        elif accepted and self._clock() >= self._singly_until:
            self._unanswered += 1
            if self._unanswered >= MOST_UNANSWERED:
                self._go_singly("the upstream takes calls and answers no batch", runs=self._unanswered)

    def _is_about_batch(self, attempt: Attempt) -> bool:
        return isinstance(attempt, Answered) and judge(attempt.reply.error, self._facts.client).about_batch

    def _refuses(self, shared: object) -> bool:
        """Does an error for the whole batch say that there is no use in sending another?"""
        if shared is None:
            return False
        verdict = judge(shared, self._facts.client)
        return verdict.about_batch or verdict.disposition in (Disposition.REFUSED_HERE, Disposition.UNRECOGNISED)

    def _go_singly(self, why: str, **seen: object) -> None:
        self._singly_until = self._clock() + SINGLY_S
        self._unanswered = 0
        self._log.warning(
            f'{why}, submissions go one by one for a while; set upstream.submit to "single" or'
            " lower upstream.max_submit_batch",
            **seen,
            seconds=SINGLY_S,
        )


def _end(attempts: list[Attempt]) -> str:
    if all(isinstance(attempt, Answered) for attempt in attempts):
        return "answered"
    return "not_sent" if all(isinstance(attempt, NotSent) for attempt in attempts) else "unknown"


def _body_bytes(submission: Submission) -> int:
    return len(submission.request.wire_params) + CALL_BYTES
