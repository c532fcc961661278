"""SQL from the files beside its store: one statement, one name.

Job: read ``statements.sql`` (each statement under a line ``-- name: what it is for``) and the migrations in order.
``{record}`` in a statement stands for the columns of a record, ``{event}`` for those of an event.
Must not know: databases.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from relay.journal.records import Event, Record

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEAD: Final = re.compile(r"^-- (\w+): .+$", re.MULTILINE)


def _columns(names: tuple[str, ...], table: str) -> str:
    return ", ".join(f"{table}.{name}" for name in names)


def load(package: str) -> Mapping[str, str]:
    """The statements of a store by their names."""
    text = (files(package) / "statements.sql").read_text("utf-8")
    text = text.replace("{record}", _columns(Record._fields, "submission"))
    _, *parts = _HEAD.split(text.replace("{event}", _columns(Event._fields, "event")))
    return {name: body.strip().rstrip(";") for name, body in zip(parts[::2], parts[1::2], strict=True)}


def migrations(package: str) -> tuple[str, ...]:
    """Each file of ``migrations``, in the order of their names; the first one makes version 1."""
    found = sorted((each for each in (files(package) / "migrations").iterdir()), key=lambda each: each.name)
    return tuple(each.read_text("utf-8") for each in found if each.name.endswith(".sql"))
