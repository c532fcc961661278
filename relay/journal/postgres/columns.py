"""Values as the columns that the server's functions take: one array for each field, so that a group is one statement.

Must not know: connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from relay.journal.records import Answer, Decision, Intake, Receipt, storable
from relay.journal.ruling import seal_way, way

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from relay.journal.records import Fact, Seal
    from relay.lifecycle import Guard

_INTAKE: Final = len(Intake._fields)
_ANSWER: Final = len(Answer._fields)
_RECEIPT: Final = len(Receipt._fields)


def _columns(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    """Rows → columns, ``width`` of them even where there is no row."""
    turned = [list(column) for column in zip(*rows, strict=True)]
    return turned or [[] for _ in range(width)]


def intake_columns(intakes: Sequence[Intake]) -> list[list[Any]]:
    """For ``relay.admit``."""
    return _columns(intakes, _INTAKE)


def seal_columns(seals: Sequence[Seal]) -> list[list[Any]]:
    """For ``relay.seal``."""
    return _columns(map(_seal, seals), 9)


def _seal(each: Seal) -> tuple[Any, ...]:
    return (
        each.submission, each.origin, each.version, each.fence, each.reason, storable(each.detail),
        each.actor, each.node, seal_way(each) is not None,
    )  # fmt: skip


def fact_columns(facts: Iterable[Fact]) -> list[list[Any]]:
    """For ``relay.note``: the columns of the answers, then those of the receipts."""
    answers, receipts = [], []
    for fact in facts:
        if isinstance(fact, Answer):
            answers.append(fact._replace(text=storable(fact.text)))
        else:
            receipts.append(fact)
    return [*_columns(answers, _ANSWER), *_columns(receipts, _RECEIPT)]


def decision_columns(decisions: Sequence[Decision]) -> list[list[Any]]:
    """For ``relay.decide``: the decisions, then all their facts."""
    facts = [fact for decision in decisions for fact in decision.facts]
    return [*_columns(map(_decision, decisions), 13), *fact_columns(facts)]


def _decision(each: Decision) -> tuple[Any, ...]:
    row = way(each)
    return (
        each.submission, each.origin, each.version, each.target, each.fence, each.reason,
        storable(each.detail), each.actor, each.other_hash, each.mode, _guard(row.guard if row else None),
        each.attested, row is not None and row.renews,
    )  # fmt: skip


def _guard(guard: Guard | None) -> str:
    """The server lets a guard that it does not know pass nothing."""
    return "forbidden" if guard is None else guard
