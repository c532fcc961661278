"""The record of what arrived: the judge of whether a relay kept its word.

Job: number each submission, note its time in and out and what became of it, and count what must not happen:
overlaps and inversions.
Rules: a submission is *under way* from its arrival (request complete) until its answer begins or its caller is
gone. Two different transactions of one sender under way at once overlap; the same bytes again do not. A nonce that
arrives for the first time after a higher one of its sender is an inversion. Counts cover everything since the last
`clear`, the single entries only the newest.
Must not know: what a transaction is worth, faults, transport.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from relay.devnode.transactions import hexed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from relay.transaction import SignedTransaction


@dataclass(slots=True, eq=False)
class Arrival:
    """One submission. Times are the node's monotonic seconds; ``left`` is None while it is under way."""

    number: int
    method: str
    sender: str
    nonce: int
    hash: str
    connection: str
    arrived: float
    left: float | None = None
    taken: bool = False
    """Did the chain take it?"""
    outcome: str = ""
    """``accepted``, the text of a refusal, or the name of what was scripted instead of an answer."""
    overlapped: bool = False
    """Was another transaction of its sender under way when it arrived?"""
    inverted: bool = False
    """Had a higher nonce of its sender arrived before, and this one not?"""

    def as_json(self) -> dict[str, Any]:
        """Every field by its name."""
        return asdict(self)


@dataclass(slots=True)
class _Sender:
    """What is known of one sender."""

    address: str
    highest: int = -1
    nonces: set[int] = field(default_factory=set)
    under_way: dict[int, Arrival] = field(default_factory=dict)


class Arrivals:
    """Iterating yields the entries that are kept, oldest first."""

    def __init__(self, keep: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: deque[Arrival] = deque(maxlen=keep)
        self._senders: dict[bytes, _Sender] = {}
        self.total = 0
        self.overlaps = 0
        self.inversions = 0
        self.under_way = 0
        self.calls: Counter[str] = Counter()
        """Calls of every method."""

    def __repr__(self) -> str:
        return (
            f"<arrivals: {self.total}, {self.under_way} under way, "
            f"{self.overlaps} overlaps, {self.inversions} inversions>"
        )

    def __iter__(self) -> Iterator[Arrival]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def enter(self, method: str, tx: SignedTransaction, connection: str) -> Arrival:
        """A submission has arrived."""
        sender = self._senders.get(tx.sender_bytes)
        if sender is None:
            sender = self._senders[tx.sender_bytes] = _Sender(hexed(tx.sender_bytes))
        arrival = Arrival(self.total, method, sender.address, tx.nonce, tx.hash, connection, self._clock())
        arrival.overlapped = any(other.hash != tx.hash for other in sender.under_way.values())
        arrival.inverted = tx.nonce < sender.highest and tx.nonce not in sender.nonces
        self.total += 1
        self.under_way += 1
        self.overlaps += arrival.overlapped
        self.inversions += arrival.inverted
        sender.highest = max(sender.highest, tx.nonce)
        sender.nonces.add(tx.nonce)
        sender.under_way[arrival.number] = arrival
        self._kept.append(arrival)
        return arrival

    def leave(self, tx: SignedTransaction, arrival: Arrival, outcome: str) -> None:
        """Its answer begins, or nobody waits for one any more."""
        arrival.left = self._clock()
        arrival.outcome = outcome
        sender = self._senders.get(tx.sender_bytes)
        if sender and sender.under_way.get(arrival.number) is arrival:  # not one from before a `clear`
            del sender.under_way[arrival.number]
            self.under_way -= 1

    def clear(self) -> None:
        """Begin anew. What is still under way is no longer watched."""
        self._kept.clear()
        self._senders.clear()
        self.calls.clear()
        self.total = self.overlaps = self.inversions = self.under_way = 0

    def summary(self) -> dict[str, Any]:
        """All counts."""
        return {
            "submissions": self.total,
            "under_way": self.under_way,
            "overlaps": self.overlaps,
            "inversions": self.inversions,
            "calls": dict(self.calls),
        }
