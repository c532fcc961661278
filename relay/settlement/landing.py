"""What a receipt, or its absence, leads to: a table.

Job: `concluded` reads a look at the chain (`evidence.Sight`) by `ROWS`, the first that fits; ``docs/journal.md`` is
drawn from it.
Rules: a receipt is evidence, its absence is not: a node behind a balancer may lag. Only another block at the same
height, or `ABSENCES` heads past it without a receipt and without the block, take a submission out of its block.
Must not know: nodes, stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from relay.lifecycle import Reason, State
from relay.settlement.evidence import LEAVE, Canon, Move

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.settlement.evidence import Leave, Sight

ABSENCES: Final = 3
"""Heads in a row without receipt and without block, before a block counts as taken back."""

_S = State
_WAITING: Final = frozenset({_S.QUEUED, _S.SEALED, _S.SENT, _S.PENDING})
_MINED: Final = frozenset({_S.MINED})
_COMPLETED: Final = frozenset({_S.COMPLETED})
_DEAD: Final = frozenset({_S.DEAD_LETTER})


class Row(NamedTuple):
    """One row: in these states, if ``holds``, it goes to ``move``; ``when`` and ``why`` are for a person."""

    name: str
    states: frozenset[State]
    when: str
    holds: Callable[[Sight], bool]
    move: Move | Leave
    why: str


def _gone(sight: Sight) -> bool:
    before = sight.before
    return (
        _empty(sight)
        and sight.canon is Canon.ABSENT
        and sight.absences >= ABSENCES
        and before is not None
        and sight.head >= before.block_number
    )


def _empty(sight: Sight) -> bool:
    return sight.said and sight.receipt is None


def _final(sight: Sight) -> bool:
    return sight.deep and sight.canon is Canon.SAME


ROWS: Final[tuple[Row, ...]] = (
    Row(
        "unsaid", frozenset(State), "the node did not answer", lambda sight: not sight.said, LEAVE,
        "silence is no evidence",
    ),
    Row(
        "in a block", _WAITING, "there is a receipt", lambda sight: sight.receipt is not None, Move(_S.MINED),
        "a receipt was seen",
    ),
    Row(
        "in another block", _MINED | _COMPLETED, "the receipt names another block than before",
        lambda sight: sight.moved, Move(_S.MINED, Reason.REORGANISED),
        "a reorganisation put it into another block",
    ),
    Row(
        "deep enough", _MINED | _DEAD, "its block is `confirmations` deep, and stands at its height", _final,
        Move(_S.COMPLETED), "its block is deep enough",
    ),
    Row(
        "taken back", _MINED, "no receipt, and another block stands at the height of its own",
        lambda sight: _empty(sight) and sight.canon is Canon.OTHER, Move(_S.PENDING, Reason.REORGANISED),
        "a reorganisation took its block back",
    ),
    Row(
        "gone", _MINED, f"no receipt and no block at its height, {ABSENCES} heads in a row that are past it", _gone,
        Move(_S.PENDING, Reason.REORGANISED), "a reorganisation took its block back",
    ),
    Row(
        "taken back late", _COMPLETED, "no receipt, and another block stands at the height of its own",
        lambda sight: _empty(sight) and sight.canon is Canon.OTHER, Move(_S.MINED, Reason.REORGANISED),
        "a reorganisation reached its block",
    ),
    Row(
        "nothing new", frozenset(State), "otherwise", lambda _: True, LEAVE,
        "one empty receipt proves nothing; a block that is not deep is waited for",
    ),
)  # fmt: skip


def row_for(sight: Sight) -> Row:
    """The first that fits."""
    return next(row for row in ROWS if sight.record.state in row.states and row.holds(sight))


def concluded(sight: Sight) -> Move | Leave:
    """Where the submission goes. A reverted execution is named where no reorganisation is."""
    move = row_for(sight).move
    if isinstance(move, Move) and move.reason is None and sight.receipt is not None and sight.receipt.status == 0:
        return move._replace(reason=Reason.REVERTED)
    return move
