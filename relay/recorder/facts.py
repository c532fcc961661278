"""What an attempt's end is written down as: pure.

Rules: "not taken" is written only where the answer itself proves it; a spent nonce proves nothing before the hash was
asked for.
Must not know: stores, lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relay.journal.records import Taken
from relay.lifecycle import PROVES_NOT_TAKEN
from relay.proof import fits, judge
from relay.upstream.client import Answered, NotSent
from relay.verdict import Disposition

if TYPE_CHECKING:
    from relay.submission import Submission
    from relay.upstream.client import Attempt
    from relay.verdict import Client

LOOKED_UP: Final = frozenset({Disposition.NONCE_SPENT})
"""Refusals that prove something only once the hash was asked for. To end with one, it was."""


def read(submission: Submission, attempt: Attempt, client: Client | None) -> tuple[Taken, str, str]:
    """Was it taken, the verdict in a word, the words that came."""
    if isinstance(attempt, NotSent):
        return Taken.NO, "not_sent", attempt.detail
    if not isinstance(attempt, Answered):
        return Taken.UNKNOWN, "lost", attempt.detail
    reply = attempt.reply
    if reply.error is None:
        taken = fits(submission.request, submission.transaction.hash, reply.result or b"null")
        return (Taken.YES, "accepted", "") if taken else (Taken.UNKNOWN, "foreign", "another hash than its own")
    disposition = judge(reply.error, client).disposition
    text = (reply.error_text or b"").decode("utf-8", "replace")
    if disposition is Disposition.IN_POOL:
        return Taken.YES, disposition, text
    proven = disposition in PROVES_NOT_TAKEN - LOOKED_UP
    return Taken.NO if proven else Taken.UNKNOWN, disposition, text
