"""How a lane is told to a client: what is open in it, which nonces are missing, what blocks it.

Job: the lane's setting, its open rows and the node's counts → one view. `_obstacle` has the order of the reasons.
Rules: a row whose nonce the chain has used waits for nothing, whatever its state says by now. A nonce is missing where
the node needs it for what waits above and no live row has it (a dead letter is sent by nobody). What the node did not
say is null, and nothing is concluded from it.
Must not know: stores, nodes, who asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from relay import views
from relay.lifecycle import LIVE, State, SubStatus
from relay.views import View, data, quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay.journal.records import Lane, Record

MAX_ROWS: Final = 100
"""Open rows that are shown; the counts are of these."""

_WAITING: Final = LIVE - {State.MINED}
_STUCK: Final = frozenset({SubStatus.HELD.value, SubStatus.TIMEOUT.value})


@dataclass(frozen=True, slots=True)
class Counts:
    """What the node says of the account: the next nonce by what is mined, and by what waits in its pool, too."""

    latest: int | None = None
    pending: int | None = None

    @property
    def needed(self) -> int | None:
        """The first nonce of which the node has no transaction."""
        return max((count for count in (self.latest, self.pending) if count is not None), default=None)


def told(lane: Lane, rows: Sequence[Record], counts: Counts) -> View:
    """The view. ``rows``: the open ones in nonce order; one more than `MAX_ROWS` where there are more."""
    more, rows = len(rows) > MAX_ROWS, rows[:MAX_ROWS]
    waiting = [row for row in rows if row.state in _WAITING and row.nonce >= (counts.latest or 0)]
    missing = _missing(waiting, counts.needed)
    return {
        "chainId": quantity(lane.chain_id),
        "address": data(lane.sender),
        "paused": lane.paused,
        "nextNonce": None if counts.latest is None else quantity(counts.latest),
        "lowestOutstanding": quantity(waiting[0].nonce) if waiting else None,
        "missing": [{"first": quantity(first), "last": quantity(last)} for first, last in missing],
        "open": [views.public(row) for row in rows],
        "more": more,
        "blockedBy": _obstacle(lane, rows, waiting, missing),
    }


def _missing(waiting: Sequence[Record], needed: int | None) -> list[tuple[int, int]]:
    """Ranges of nonces that no row has, from the one that the node needs next up to the highest that waits."""
    expected = needed
    ranges = []
    for row in waiting:
        if expected is not None and row.nonce > expected:
            ranges.append((expected, row.nonce - 1))
        expected = row.nonce + 1 if expected is None else max(expected, row.nonce + 1)
    return ranges


def _obstacle(
    lane: Lane, rows: Sequence[Record], waiting: Sequence[Record], missing: Sequence[tuple[int, int]]
) -> View | None:
    """Why the lowest that waits does not get further, if a reason is known."""
    if not waiting:
        return None
    lowest = waiting[0]
    if lane.paused:
        return {"kind": "paused", "nonce": quantity(lowest.nonce), "words": "an operator paused this lane"}
    if missing and missing[0][0] < lowest.nonce:
        return _gap(rows, missing[0][0])
    status = views.sub_status(lowest.reason)
    if status is not None and status["kind"] in _STUCK:
        return {"kind": status["kind"], "nonce": quantity(lowest.nonce), "words": status["words"]}
    return _gap(rows, missing[0][0]) if missing else None


def _gap(rows: Sequence[Record], nonce: int) -> View:
    dead = any(row.nonce == nonce and row.state is State.DEAD_LETTER for row in rows)
    if dead:
        words = "its transaction is a dead letter: an operator retries it, or its sender signs another with it"
        return {"kind": "dead_letter", "nonce": quantity(nonce), "words": words}
    return {
        "kind": "gap",
        "nonce": quantity(nonce),
        "words": "no transaction with this nonce is known; its sender sends it",
    }
