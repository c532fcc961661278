"""What every journal's store can do.

Job: the operations with their shapes, units and errors. `relay.testing` has the suite that holds a store to them.
Rules
- Nothing is answered before it is on disk. Whoever stops waiting (cancellation) does not undo what he asked for.
- What belongs together is one transaction: a change of state, its event, and the event's place in the outbox.
- Times are the store's: no caller hands in a "now".
- A decision is refused, as a value, when its version or its fence is old, when `relay.lifecycle` has no such way, or
  when a guard does not hold. A fence of 0 (no Redis, or lost) is compared with nothing: then the version alone decides.
- Every operation raises `Unavailable` or `Unusable` (`relay.journal.faults`), within a bounded time, and nothing else.
Must not know: lanes' turns, nodes, clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from relay.journal.records import START
from relay.lifecycle import LIVE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from relay.journal.records import (
        Admission,
        Attempt,
        Census,
        Change,
        Claim,
        Cursor,
        Decision,
        Delivery,
        Event,
        Fact,
        Intake,
        Key,
        Lane,
        Notice,
        Outstanding,
        Payload,
        ReceiptSeen,
        Record,
        Refused,
        Seal,
        Sealed,
    )
    from relay.lifecycle import State


class Journal(Protocol):
    """Many submissions in one call are one transaction, or as few as the store likes; answers are in their order."""

    # A submission's way.

    async def admit(self, intakes: Sequence[Intake]) -> list[Admission]:
        """Put submissions on disk, QUEUED at version 1, or find those that are there already.

        One row for each (chain, hash). A key is bound to its row for (key, sender, chain), also where the row was there
        before; a key that is bound to other bytes makes no row, unless that one released it.
        """

    async def seal(self, seals: Sequence[Seal]) -> list[Sealed | Refused]:
        """Put the intent to send on disk, right before the bytes leave."""

    async def decide(self, decisions: Sequence[Decision]) -> list[Record | Refused]:
        """Move submissions. The facts of each are kept first, in any case; guards see them."""

    async def attempt(self, submission: int, node: str, *, fence: int = 0, actor: str = "") -> int | None:
        """Another send of the same bytes within one turn: a fact, open until answered. None: no such submission."""

    async def note(self, facts: Sequence[Fact]) -> None:
        """Keep facts. The first answer of an attempt stands; a receipt is one for each block."""

    # Looking.

    async def by_id(self, submission: int) -> Record | None:
        """One record."""

    async def by_hash(self, chain_id: int | None, hash_: bytes) -> Record | None:
        """The record of a transaction; None: on whatever chain, the latest where it is on several."""

    async def by_key(self, chain_id: int, sender: bytes, key: str) -> Admission | None:
        """What an idempotency key is bound to, as `admit` would find it for the same bytes."""

    async def payload(self, submission: int) -> Payload | None:
        """The bytes, and how they are sent."""

    async def unfinished(
        self, after: Cursor = START, *, limit: int = 500, states: Collection[State] = LIVE
    ) -> list[Record]:
        """A page of what is open, by (chain, sender, nonce, arrival). ``states`` is a part of `lifecycle.OPEN`."""

    async def outstanding(self, after: Cursor = START, *, limit: int = 500) -> list[Outstanding]:
        """A page of the lanes in which something is live, by (chain, sender)."""

    async def lowest(self, chain_id: int, sender: bytes) -> int | None:
        """The lowest live nonce of a lane."""

    async def lane(self, chain_id: int, sender: bytes, *, limit: int = 100) -> tuple[Lane, list[Record]]:
        """What an operator set, and its open rows in nonce order, at most ``limit``."""

    async def listing(self, state: State, *, before: tuple[int, int] | None = None, limit: int = 100) -> list[Record]:
        """The rows of one state, latest change first. ``before``: (since_ms, id) of the last row of the page before."""

    async def attempts(self, submission: int) -> list[Attempt]:
        """All of them, oldest first."""

    async def receipts(self, submission: int) -> list[ReceiptSeen]:
        """Every one seen, oldest first: more than one after a reorganisation."""

    async def history(self, submission: int) -> list[Event]:
        """What happened, oldest first."""

    async def keys(self, submission: int) -> list[Key]:
        """The idempotency keys that are bound to it, oldest first."""

    async def census(self) -> Census:
        """Counts for the metrics."""

    # Following: events have ids that rise, but may come to light out of their order (`relay.ask.following`).

    async def latest_changes(self, limit: int) -> list[Change]:
        """The newest events, by id, with the records as they are now."""

    async def changes_since(self, after: int, *, limit: int = 500) -> list[Change]:
        """A page of the events with greater ids, by id, with the records as they are now."""

    async def changes_of(self, events: Collection[int]) -> list[Change]:
        """Those of these events that are there, by id, with the records as they are now."""

    # Lanes.

    async def set_paused(
        self, chain_id: int, sender: bytes, *, paused: bool, version: int, detail: str, actor: str
    ) -> Lane | None:
        """Pause a lane or let it go on, seen at ``version``. None: somebody else changed it meanwhile."""

    async def paused(self) -> list[Lane]:
        """Every lane that is paused, by (chain, sender)."""

    async def lane_history(self, chain_id: int, sender: bytes) -> list[Lane]:
        """Each setting that it ever had, oldest first."""

    # Telling: rows come in by themselves, one for each of the receivers that the journal was opened with.

    async def take_notices(self, receiver: str, limit: int, *, hold_ms: int) -> list[Notice]:
        """What is due for a receiver, what has been due for longest first; nobody else gets it for ``hold_ms``."""

    async def mark_notice(
        self, event: int, receiver: str, delivery: Delivery, *, due_in_ms: int = 0, error: str = ""
    ) -> None:
        """How it went. WAITING: again, in ``due_in_ms``. What is delivered stays so, what is dead can only turn out to
        have been delivered: who held it for too long and is late changes nothing else."""

    async def bury_notices(self, *, older_than_ms: int, error: str, limit: int = 1000) -> int:
        """Whatever still waits of events older than that is dead, whoever its receiver is; at most ``limit`` at a time.

        Returns how many.
        """

    # Housekeeping.

    async def claim(self, name: str, owner: str, *, for_ms: int) -> Claim:
        """Become or stay the owner of ``name`` until ``for_ms`` from now, unless another is."""

    async def release(self, name: str, owner: str) -> None:
        """Let others have it at once."""

    async def note_count(self, endpoint: str, chain_id: int, sender: bytes, count: int) -> int:
        """Keep a count that an endpoint told; returns the highest that it ever told."""

    async def prune(self, *, older_than_ms: int, limit: int = 1000) -> int:
        """Delete what ended longer ago, at most ``limit`` submissions with all that belongs to them; returns how many.

        Never what may still land, nor a lane's highest nonce, nor what still waits to be told.
        """

    async def check(self) -> None:
        """Can it be written? Raises what is wrong."""

    async def close(self) -> None:
        """Finish what was asked, then let go. Idempotent."""
