"""All lanes: busy ones for as long as they are, idle ones in an LRU.

Job: find, make, wake and forget lanes. Rules: a lane with a ticket is never evicted. Must not know: what lanes decide.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from relay import errors
from relay.lanes.lane import Lane
from relay.lanes.rules import Rules
from relay.lanes.steps import Ticket

if TYPE_CHECKING:
    from relay.config import Ordering
    from relay.errors import Refusal

T = TypeVar("T")


class LaneBook(Generic[T]):
    """All lanes: busy ones for as long as they are, idle ones in an LRU."""

    def __init__(self, ordering: Ordering, *, shared: bool = False) -> None:
        self.rules = Rules.of(ordering, shared=shared)
        self._max_senders = ordering.max_senders
        self._busy: dict[bytes, Lane[T]] = {}
        self._idle: OrderedDict[bytes, Lane[T]] = OrderedDict()
        self._tickets = 0

    def __repr__(self) -> str:
        return f"<lanes: {len(self._busy)} busy, {len(self._idle)} idle>"

    @property
    def busy(self) -> int:
        """Lanes with a ticket."""
        return len(self._busy)

    @property
    def idle(self) -> int:
        """Lanes kept for what they know."""
        return len(self._idle)

    def busy_lanes(self) -> list[Lane[T]]:
        """A copy: whoever walks it may change the book."""
        return list(self._busy.values())

    def join(
        self, key: bytes, submission: T, nonce: int, arrived: float, came: float | None = None
    ) -> tuple[Lane[T], Ticket[T]] | Refusal:
        """Take a ticket in the lane of ``key`` (`lane_key`), which is made or woken if need be."""
        lane = self._busy.get(key) or self._wake(key)
        if lane is None:
            return errors.AT_CAPACITY.refusal(senders=len(self._busy))
        self._tickets += 1
        ticket = lane.join(submission, nonce, arrived, self._tickets, came)
        if isinstance(ticket, Ticket):
            return lane, ticket
        return ticket

    def rest(self, lane: Lane[T]) -> None:
        """``lane`` is empty: keep what it knows until others need the room."""
        assert self._busy[lane.key] is lane, "it rests already, and its sender may have another"
        lane.rest()
        del self._busy[lane.key]
        self._idle[lane.key] = lane

    def _wake(self, key: bytes) -> Lane[T] | None:
        lane = self._idle.pop(key, None)
        if lane is None:
            if len(self._busy) + len(self._idle) >= self._max_senders and not self._evict():
                return None
            lane = Lane(key, self.rules)
        self._busy[key] = lane
        return lane

    def _evict(self) -> bool:
        """Forget the lane that was idle longest; busy ones are never touched."""
        if not self._idle:
            return False
        self._idle.popitem(last=False)
        return True


def lane_key(chain_id: int, sender: bytes) -> bytes:
    """A lane's name: the sender's 20 bytes, then the chain id."""
    return sender + chain_id.to_bytes((chain_id.bit_length() + 7) // 8, "big")
