"""How far a sender's nonces are accounted for, while a sweep walks them: pure.

Rules: a nonce is accounted for by the chain's or a pool's count, by a pool that knows our submission with it, or by a
resend of this very sweep. A submission of ours that is held, young or in doubt fills nothing: what stands above it
would be sent in vain.
Must not know: nodes, stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relay.journal.records import Record
    from relay.settlement.evidence import Evidence


class Reach:
    """Of one walk. Records come by sender, lowest nonce first."""

    def __init__(self) -> None:
        self._sender = b""
        self._next = 0

    def __repr__(self) -> str:
        return f"<reach: {self._next} of {self._sender.hex()}>"

    def of(self, evidence: Evidence) -> Evidence:
        """With what the walk knows so far, where the counts were said."""
        if evidence.reach is None:
            return evidence
        record = evidence.record
        same = record.sender == self._sender
        self._sender, self._next = record.sender, max(self._next, evidence.reach) if same else evidence.reach
        return evidence._replace(reach=min(self._next, record.nonce))

    def filled(self, record: Record) -> None:
        """A pool has it, or it is sent now."""
        if record.sender == self._sender and record.nonce == self._next:
            self._next += 1
