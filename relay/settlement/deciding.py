"""What watch and sweep conclude, on disk.

Job: from a record and a `Move` to the store's decision, with the receipt that it rests on.
Rules: a decision that comes too late is refused by the store and forgotten here: whoever was earlier knew more. The
fence is 0, for nobody needs a lane to look at the chain: the row's version alone decides.
Must not know: nodes, why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from relay.journal.records import Decision, Record
from relay.lifecycle import Reason, State
from relay.settlement.asking import hexed, pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay.journal.records import Receipt
    from relay.journal.store import Journal
    from relay.settlement.evidence import Move
    from relay.telemetry.metrics import Metrics

TOGETHER = 100
"""Decisions in one call."""
_TOLD = frozenset({State.SUPERSEDED, State.DEAD_LETTER})
"""What an operator should read in the log."""


class Deciding:
    """``actor`` is what the histories say."""

    def __init__(self, metrics: Metrics, actor: str) -> None:
        self._actor = actor
        self._moved = {state: metrics.settlements.cell(state) for state in metrics.settlements.labels["state"]}
        self._reorganised = metrics.reorganisations.cell()
        self._log = structlog.get_logger("relay.settlement")

    def __repr__(self) -> str:
        return f"<deciding as {self._actor}>"

    def decision(
        self, record: Record, move: Move, *, receipt: Receipt | None = None, other: bytes | None = None
    ) -> Decision:
        """What is asked of the store."""
        return Decision(
            record.id,
            record.state,
            record.version,
            move.target,
            reason=move.reason,
            detail="" if receipt is None else f"block {receipt.block_number} {hexed(receipt.block_hash)}",
            actor=self._actor,
            other_hash=other,
            facts=() if receipt is None else (receipt,),
        )

    async def decide(self, journal: Journal, decisions: Sequence[Decision]) -> list[Record]:
        """Those that were moved, as they stand now."""
        moved: list[Record] = []
        for page in pages(decisions, TOGETHER):
            answers = await journal.decide(page)
            for decision, answer in zip(page, answers, strict=True):
                if isinstance(answer, Record):
                    moved.append(answer)
                    self._count(decision, answer)
        return moved

    def _count(self, decision: Decision, record: Record) -> None:
        if decision.origin is not decision.target:
            self._moved[decision.target].n += 1
        if decision.reason is Reason.REORGANISED:
            self._reorganised.n += 1
            self._log.warning("a reorganisation moved a transaction", hash=hexed(record.hash), state=record.state)
        elif record.state in _TOLD:
            other = None if record.other_hash is None else hexed(record.other_hash)
            self._log.warning(f"transaction {record.state}", hash=hexed(record.hash), nonce=record.nonce, other=other)
