"""What the operator's API answered, for a person: tables.

Rules: whatever is shown was written by nodes, clients or other people: it is text and never markup, and without what a
terminal would act on. Numbers are decimal. Must not know: how it was asked.
"""

from __future__ import annotations

import sys
from io import StringIO
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from relay.remote.client import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

WIDE: Final = 200
"""Columns where nobody looks at a terminal."""

_STYLES: Final = {"completed": "green", "failed": "red", "dead_letter": "bold red", "pending": "cyan", "mined": "cyan"}


def drawn(*parts: Table | str) -> str:
    """One after the other, as stdout shows them."""
    terminal = sys.stdout.isatty()
    page = StringIO()
    width = get_terminal_size().columns if terminal else WIDE
    console = Console(file=page, force_terminal=terminal, width=width, highlight=False)
    for part in parts:
        console.print(Text(plain(part)) if isinstance(part, str) else part)
    return "".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines())


def submissions(answer: Mapping[str, Any]) -> list[Table | str]:
    """Rows of a list, and where it goes on."""
    rows = answer["transactions"]
    table = _table("id", "hash", "from", "nonce", "state", "since", "why")
    for row in rows:
        _add(
            table,
            row["id"],
            _short(row["hash"]),
            row["from"],
            _number(row["nonce"]),
            row["state"],
            row["since"],
            _why(row),
        )
    return _page(table, answer["next"], "--before", empty=not rows)


def submission(row: Mapping[str, Any]) -> list[Table | str]:
    """One row after an action."""
    lands = "it may still land" if row["mayStillLand"] else "it cannot land"
    return [f"{row['id']} {row['hash']}: {row['state']} (version {row['version']}), {lands}. {_why(row)}".rstrip()]


def submission_in_full(row: Mapping[str, Any]) -> list[Table | str]:
    """All that is known of one."""
    facts = {
        "id": row["id"],
        "hash": row["hash"],
        "from": row["from"],
        "nonce": _number(row["nonce"]),
        "chain": _number(row["chainId"]),
        "state": row["state"],
        "why": _why(row),
        "may still land": "yes" if row["mayStillLand"] else "no",
        "admitted": row["admitted"],
        "since": row["since"],
        "version": row["version"],
        "sent by": f"{row['method']}, answered {row['mode']}",
        "sends": f"{row['attemptCount']}, {row['openAttempts']} unproven, {row['tries']} of this budget",
        "block": _number(row["blockNumber"]) if "blockNumber" in row else "",
        "replaced by": row["otherHash"] or "",
        "idempotency keys": ", ".join(key["key"] for key in row["idempotencyKeys"]),
    }
    parts: list[Table | str] = [_grid(facts)]
    parts += _section("sends", row["attempts"], "at", "node", "taken", "verdict", "text", "actor", "fence")
    parts += _section("history", row["history"], "at", "state", "why", "detail", "actor", "version", why=_kind)
    parts += _section("receipts", row["receipts"], "seen", "blockNumber", "blockHash", "status", "node")
    return parts


def lanes(answer: Mapping[str, Any]) -> list[Table | str]:
    """Lanes with something live, and the paused ones."""
    rows, paused = answer["lanes"], answer["paused"]
    parts: list[Table | str] = []
    if rows or not paused:
        table = _table("address", "chain", "lowest nonce", "live", "oldest", "paused")
        for row in rows:
            chain, lowest = _number(row["chainId"]), _number(row["lowest"])
            _add(table, row["address"], chain, lowest, row["rows"], row["oldest"], "yes" if row["paused"] else "")
        parts += _page(table, answer["next"], "--after", empty=not rows)
    return parts + _section("paused lanes", paused, "address", "at", "detail", "actor")


def lane(row: Mapping[str, Any]) -> list[Table | str]:
    """One lane after an action."""
    return [f"{row['address']} on chain {_number(row['chainId'])}: {_paused(row)} (version {row['version']})"]


def lane_in_full(row: Mapping[str, Any]) -> list[Table | str]:
    """One lane with what is open in it."""
    table = _table("nonce", "id", "hash", "state", "since", "why", title="open")
    for one in row["open"]:
        _add(table, _number(one["nonce"]), one["id"], _short(one["hash"]), one["state"], one["since"], _why(one))
    parts = [*lane(row), table if row["open"] else "nothing is open", *(["and more"] if row["more"] else [])]
    return parts + _section("settings", row["settings"], "at", "paused", "detail", "actor", "version")


def census(answer: Mapping[str, Any]) -> list[Table | str]:
    """Counts by state and reason."""
    table = _table("state", "why", "submissions", "oldest since")
    for row in answer["open"]:
        _add(table, row["state"], _kind(row), row["rows"], row["oldest"])
    outbox = answer["outbox"]
    told = f"to be told: {outbox['waiting']} wait, {outbox['dead']} are given up"
    return [table if answer["open"] else "nothing is open", told]


def _why(row: Mapping[str, Any]) -> str:
    words = row["subStatus"]["words"] if row["subStatus"] else ""
    return ": ".join(part for part in (words, row.get("detail", "")) if part)


def _kind(row: Mapping[str, Any]) -> str:
    return row["subStatus"]["reason"] if row["subStatus"] else ""


def _paused(row: Mapping[str, Any]) -> str:
    return "paused" if row["paused"] else "not paused"


def _number(quantity: str) -> int:
    return int(quantity, 16)


def _short(hash_: str) -> str:
    return f"{hash_[:10]}…{hash_[-6:]}"


def _table(*columns: str, title: str = "") -> Table:
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _add(table: Table, *cells: object) -> None:
    table.add_row(*(_cell(cell) for cell in cells))


def _cell(cell: object) -> Text:
    text = plain("" if cell is None else str(cell))
    return Text(text, style=_STYLES.get(text, ""))


def _grid(facts: Mapping[str, object]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value != "":
            grid.add_row(Text(name, style="bold"), _cell(value))
    return grid


def _section(
    title: str, rows: Sequence[Mapping[str, Any]], *columns: str, why: Callable[[Mapping[str, Any]], str] | None = None
) -> list[Table | str]:
    """A table under a title; nothing where there is nothing."""
    if not rows:
        return []
    table = _table(*columns, title=f"\n{title}")
    for row in rows:
        _add(table, *(why(row) if column == "why" and why else row[column] for column in columns))
    return [table]


def _page(table: Table, following: str | None, flag: str, *, empty: bool) -> list[Table | str]:
    if empty:
        return ["none"]
    return [table, *([f"more: {flag} {following}"] if following else [])]
