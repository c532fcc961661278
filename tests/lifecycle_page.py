"""The drawn parts of docs/lifecycle.md. ``python -m tests.lifecycle_page`` puts them into the page."""

from __future__ import annotations

from pathlib import Path

from relay.lifecycle import CONSEQUENCES, TERMINAL, TRANSITIONS, WORDS, Guard, State
from relay.verdict import Disposition

PAGE = Path(__file__).parents[1] / "docs" / "lifecycle.md"

GUARDS = {
    Guard.NONE: "",
    Guard.UNSENT: "never sent",
    Guard.CERTAIN: "no attempt open",
    Guard.ATTESTED: "no attempt open, or attested",
}


def diagram() -> str:
    """For mermaid. What leaves a terminal state is dotted by its label."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> queued"]
    for row in TRANSITIONS:
        label = f" : {GUARDS[row.guard]}" if row.guard is not Guard.NONE else ""
        lines.append(f"    {row.origin} --> {row.target}{label}")
    lines += [f"    {state} --> [*]" for state in State if state in TERMINAL]
    return "\n".join([*lines, "```"])


def transitions() -> str:
    """One row for each way."""
    return _table(
        ("from", "to", "because", "only if"),
        [(f"`{row.origin}`", f"`{row.target}`", row.why, GUARDS[row.guard]) for row in TRANSITIONS],
    )


def reasons() -> str:
    """One row for each reason."""
    return _table(
        ("reason", "sub-status", "in state", "in words"),
        [
            (
                f"`{reason}`", f"`{row.sub_status}`",
                ", ".join(f"`{state}`" for state in State if state in row.states), row.words,
            )
            for reason, row in WORDS.items()
        ],
    )  # fmt: skip


def consequences() -> str:
    """One row for each disposition."""
    return _table(
        ("disposition", "answered after the verdict", "answered as accepted"),
        [
            (f"`{disposition}`", *(_step(step.target, step.reason) for step in CONSEQUENCES[disposition]))
            for disposition in Disposition
        ],
    )


def _step(target: str, reason: str | None) -> str:
    return f"`{target}`" + (f" (`{reason}`)" if reason else "")


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [" | ".join(cells) for cells in (head, *rows)]
    return "\n".join([f"| {lines[0]} |", "|" + "---|" * len(head), *(f"| {line} |" for line in lines[1:])])


DRAWN = {"diagram": diagram, "transitions": transitions, "reasons": reasons, "consequences": consequences}


def drawn(text: str) -> str:
    """``text`` with its drawn parts made anew."""
    for name, draw in DRAWN.items():
        head, mark, rest = text.partition(f"<!-- drawn: {name} -->\n")
        assert mark, f"docs/lifecycle.md has no part {name}"
        text = head + mark + draw() + rest[rest.index("\n<!-- end -->") :]
    return text


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text("utf-8")), "utf-8")
