"""The drawn parts of docs/journal.md. ``python -m tests.settlement_page`` puts them into the page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from relay.lifecycle import State
from relay.settlement import landing, rules
from relay.settlement.evidence import Move, Resend

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from relay.settlement.evidence import Conclusion

PAGE = Path(__file__).parents[1] / "docs" / "journal.md"


def receipts() -> str:
    """What receipts lead to."""
    return _table([(row.name, row.states, row.when, _then(row.move), row.why) for row in landing.ROWS])


def sweep() -> str:
    """What the sweep does."""
    return _table([(row.name, row.states, row.when, _then(row.then), row.why) for row in rules.SWEEP])


def overdue() -> str:
    """What the watch says."""
    return _table([(row.name, row.states, row.when, _then(row.then), row.why) for row in rules.OVERDUE])


def _then(conclusion: Conclusion) -> str:
    match conclusion:
        case Move(target, reason):
            return f"`{target}`" + (f" (`{reason}`)" if reason else "")
        case Resend():
            return "sent again"
        case _:
            return "–"


def _table(rows: Sequence[tuple[str, Collection[State], str, str, str]]) -> str:
    lines = ["| row | in state | if | then | because |", "|" + "---|" * 5]
    for name, states, when, then, why in rows:
        shown = "any" if len(states) == len(State) else ", ".join(f"`{state}`" for state in State if state in states)
        lines.append(f"| {name} | {shown} | {when} | {then} | {why} |")
    return "\n".join(lines)


DRAWN = {"receipts": receipts, "sweep": sweep, "overdue": overdue}


def drawn(text: str) -> str:
    """``text`` with its drawn parts made anew."""
    for name, draw in DRAWN.items():
        head, mark, rest = text.partition(f"<!-- drawn: {name} -->\n")
        assert mark, f"docs/journal.md has no part {name}"
        text = head + mark + draw() + rest[rest.index("\n<!-- end -->") :]
    return text


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text("utf-8")), "utf-8")
