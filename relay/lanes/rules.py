"""`[ordering]` as lanes use it.

Job: the settings in the lanes' own terms, the sort order, and the count of how gaps ended. Must not know: lanes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from relay.config import Ordering

WAIT_SHARE: Final = 0.8
"""Share of ``max_wait_s`` in which a turn must begin; the rest is kept for the answer, so that a client that gives up
after ``max_wait_s`` has one by then."""

_BY_NONCE: Final = attrgetter("nonce", "number")
_BY_ARRIVAL: Final = attrgetter("number")


@dataclass(slots=True)
class Gaps:
    """How gaps ended, for the metrics."""

    filled: int = 0
    forwarded: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """`[ordering]` as lanes use it. ``shared``: other instances have lanes of the same senders."""

    by_nonce: bool
    window_s: float
    forward_gaps: bool
    max_queue: int
    wait_s: float
    shared: bool = False
    gaps: Gaps = field(default_factory=Gaps, compare=False)

    @property
    def sort_key(self) -> Any:
        """Nonce order with arrival as the tie-break, or arrival alone."""
        return _BY_NONCE if self.by_nonce else _BY_ARRIVAL

    @classmethod
    def of(cls, ordering: Ordering, *, shared: bool = False) -> Rules:
        """The rules that the settings ask for."""
        return cls(
            by_nonce=ordering.order == "nonce",
            window_s=ordering.reorder_window_ms / 1000,
            forward_gaps=ordering.on_gap == "forward",
            max_queue=ordering.max_queue,
            wait_s=ordering.max_wait_s * WAIT_SHARE,
            shared=shared,
        )
