"""What the answer to a submission proves, or its absence.

Job: from an attempt to an end, to a question about the hash whose answers are the ends, or to nothing (G6, G7).
Rules: the same for a submission alone and for one of a batch. Of one that may have been sent before, a refusal proves
nothing. A pure look at values: nothing is asked or awaited here.
Must not know: lanes, how questions are asked, who waits for the outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from relay import errors, jsonrpc
from relay.lanes import Effect
from relay.lifecycle import Reason
from relay.submission import Accepted, Declined
from relay.upstream.client import Answered, Lost, NotSent
from relay.verdict import Client, Disposition, classify

if TYPE_CHECKING:
    from relay.methods import Request
    from relay.submission import Outcome, Submission
    from relay.telemetry.metrics import Cell
    from relay.upstream.client import Attempt
    from relay.verdict import Verdict

SEEN_CACHES: Final = frozenset({Client.NETHERMIND})
"""Clients that say "already known" of what they have seen, even after their pool dropped it."""


class NodeFacts(Protocol):
    """What is known of the node."""

    @property
    def client(self) -> Client | None:
        """Which client it runs."""


class Proven(NamedTuple):
    """How it ended. ``verdict`` is for the log, ``how`` for the journal.

    ``dependent``: perhaps refused only for want of a lower nonce (or in words nobody knows), so that behind another of
    its run it proves nothing about this one.
    """

    outcome: Outcome
    verdict: str
    effect: Effect
    how: Disposition | Reason
    dependent: bool = False


class Doubt(NamedTuple):
    """Nothing is proven: it has to be found out (`relay.resolve`)."""

    why: str


class Question(NamedTuple):
    """Does the node know the hash? What follows if it does, if it does not, and if it does not say."""

    known: Proven
    absent: Proven | Doubt
    unsaid: Proven | Doubt

    def follows(self, known: bool | None) -> Proven | Doubt:  # noqa: FBT001 - the answer, as `Accounts.knows` gives it
        """What follows from the answer."""
        return self.unsaid if known is None else self.known if known else self.absent


Proof = Proven | Question | Doubt


class Proofs:
    """Reads attempts by the node's client, and counts the verdicts. ``counts`` has a cell for each disposition."""

    def __init__(self, facts: NodeFacts, counts: dict[str, Cell]) -> None:
        self._facts = facts
        self._counts = counts

    def of(self, submission: Submission, attempt: Attempt) -> Proof:
        """What ``attempt`` proves about ``submission``."""
        match attempt:
            case NotSent(detail) if not submission.maybe_sent:
                refusal = errors.UPSTREAM_UNREACHABLE.refusal(detail=detail)
                return Proven(refusal, "not sent", Effect.REFUSED, Reason.NOT_SENT)
            case NotSent(detail) | Lost(detail):
                return Doubt(detail)
            case Answered(reply):
                if reply.error is None:
                    return self._taken(submission, reply.result or jsonrpc.NULL)
                return self._refused(submission, reply)

    def _taken(self, submission: Submission, result: bytes) -> Proof:
        if not fits(submission.request, submission.transaction.hash, result):
            return Doubt("the answer is not this transaction's hash")
        self._counts["accepted"].n += 1
        known_hash = submission.request.method.by_bytes
        outcome = submission.own_hash if known_hash else Accepted(result)
        return Proven(outcome, "accepted", Effect.ACCEPTED, Disposition.IN_POOL)

    def _refused(self, submission: Submission, reply: jsonrpc.Reply) -> Proof:
        """The node answered an error: what does it mean?"""
        verdict = judge(reply.error, self._facts.client)
        self._counts[verdict.disposition].n += 1
        match verdict.disposition:
            case Disposition.IN_POOL:
                in_pool = Proven(submission.own_hash, "in pool", Effect.ACCEPTED, Disposition.IN_POOL)
                if self._facts.client not in SEEN_CACHES:
                    return in_pool
                return Question(in_pool, absent=Doubt("seen, but not in the pool"), unsaid=in_pool)
            case _ if submission.maybe_sent or verdict.disposition is Disposition.UNCERTAIN:
                return Doubt(verdict.reason)
            case Disposition.NONCE_SPENT | Disposition.UNRECOGNISED if submission.request.method.public:
                why = f"{verdict.reason}, known"
                known = Proven(submission.own_hash, why, Effect.DOUBTFUL, Disposition.IN_POOL)
                return Question(known, absent=_declined(reply, verdict), unsaid=Doubt(verdict.reason))
        return _declined(reply, verdict)


def _declined(reply: jsonrpc.Reply, verdict: Verdict) -> Proven:
    doubtful = verdict.about_nonce or verdict.disposition in (Disposition.SLOT_TAKEN, Disposition.UNRECOGNISED)
    effect = Effect.DOUBTFUL if doubtful else Effect.REFUSED
    dependent = verdict.for_gap or verdict.disposition is Disposition.UNRECOGNISED
    outcome = Declined(reply.error_text or b"{}")
    return Proven(outcome, verdict.reason, effect, verdict.disposition, dependent)


def fits(request: Request, hash_: str, result: bytes) -> bool:
    """Is this the answer to this transaction? A plain one is answered by its hash, others by what the node likes."""
    if not request.method.by_bytes:
        return result != jsonrpc.NULL
    return result.lower() == b'"%b"' % hash_.encode()


def judge(error: object, client: Client | None) -> Verdict:
    """The verdict on an error member, whatever its shape (some nodes send a bare string)."""
    if not isinstance(error, dict):
        return classify(error if isinstance(error, str) else "", client=client)
    message, code = error.get("message"), error.get("code")
    return classify(
        message if isinstance(message, str) else "",
        code if isinstance(code, int) else None,
        error.get("data"),
        client,
    )
