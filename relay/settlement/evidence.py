"""What watch and sweep know of a submission when they decide: values.

Job: what a look brought, apart from what follows from it (`relay.settlement.landing`, `relay.settlement.rules`).
Rules: None means "not said", never "no". Times are milliseconds by the store's clock, amounts wei. Pure.
Must not know: nodes, stores, how it was found out.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from relay.journal.records import Receipt, Record
    from relay.lifecycle import Reason, State


class Canon(StrEnum):
    """What stands at the height of a block that a submission was seen in."""

    SAME = "same"
    OTHER = "other"
    """Another block: that one was taken back."""
    ABSENT = "absent"
    """None, says the node: it lags, or the chain became shorter."""
    UNKNOWN = "unknown"
    """Not asked, or not answered."""


class Sight(NamedTuple):
    """One look at the chain for a submission's receipt.

    ``said``: the node answered. ``before``: the receipt that was seen last. ``canon`` is about ``receipt``'s block, or
    without one about ``before``'s. ``absences``: heads in a row, this one included, at which there was no receipt.
    """

    record: Record
    said: bool
    receipt: Receipt | None
    before: Receipt | None
    canon: Canon
    head: int
    confirmations: int
    absences: int = 0

    @property
    def deep(self) -> bool:
        """Is the receipt's block as deep as asked for? The block itself counts."""
        return self.receipt is not None and self.head - self.receipt.block_number + 1 >= self.confirmations

    @property
    def moved(self) -> bool:
        """Is it in another block than before?"""
        return (
            self.receipt is not None and self.before is not None and self.receipt.block_hash != self.before.block_hash
        )


class Counts(NamedTuple):
    """A sender's counts at one endpoint. ``final``: at the newest block that is as deep as asked for.

    ``behind``: it told a higher latest count before.
    """

    latest: int | None
    pending: int | None
    final: int | None
    behind: bool = False


class Evidence(NamedTuple):
    """What is known of a submission without a receipt. The endpoints are the upstream, then the witnesses.

    ``reach``: the first nonce of its sender that neither the counts, nor a submission of ours that a pool knows or that
    is sent by the same sweep accounts for. ``rival``: whose hash the chain shows at its nonce. ``looks``: sweeps in a
    row, this one included, with these counts. ``fee_cap`` and ``cost`` are the transaction's own.
    """

    record: Record
    age_ms: int
    known: tuple[bool | None, ...]
    counts: tuple[Counts, ...]
    reach: int | None = None
    public: bool = True
    paused: bool = False
    rival: bytes | None = None
    looks: int = 1
    base_fee: int | None = None
    balance: int | None = None
    fee_cap: int | None = None
    cost: int | None = None

    @property
    def somebody_knows(self) -> bool:
        """Does an endpoint have it, waiting or mined?"""
        return True in self.known

    @property
    def latest(self) -> int:
        """The highest count of what is mined."""
        return max((each.latest or 0 for each in self.counts), default=0)

    @property
    def pending(self) -> int:
        """The highest count of what waits, as far as any endpoint says one."""
        return max((each.pending or 0 for each in self.counts), default=0)

    @property
    def nonce_used(self) -> bool:
        """Does any endpoint count its nonce as mined?"""
        return self.latest > self.record.nonce

    @property
    def nonce_final(self) -> bool:
        """Do all endpoints count its nonce as mined, and deep enough?"""
        return bool(self.counts) and all(
            each.final is not None and each.final > self.record.nonce for each in self.counts
        )

    @property
    def under_base_fee(self) -> bool:
        """Is it certain that no block takes it at the present base fee?"""
        return self.fee_cap is not None and self.base_fee is not None and self.fee_cap < self.base_fee

    @property
    def unfunded(self) -> bool:
        """Is it certain that its sender cannot pay for it now?"""
        return self.cost is not None and self.balance is not None and self.balance < self.cost

    @property
    def behind_gap(self) -> bool:
        """Is a lower nonce missing, of which we have nothing?"""
        return self.reach is not None and self.reach < self.record.nonce


class Move(NamedTuple):
    """It goes to ``target``, or stays there for another reason."""

    target: State
    reason: Reason | None = None


class Resend(NamedTuple):
    """The same bytes take the lane's turn again."""


RESEND = Resend()


class Leave(NamedTuple):
    """Nothing is done. ``unresolved``: not because nothing is to be done, but because somebody did not answer."""

    unresolved: bool = False


LEAVE = Leave()
UNRESOLVED = Leave(unresolved=True)

Conclusion = Move | Resend | Leave
