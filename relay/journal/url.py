"""Which store a URL means.

Job: ``[journal] url`` → an open journal. Forms: ``sqlite:///relative/path``, ``sqlite:////absolute/path``,
``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``, ``memory:`` (tests). "" is no journal and does not come here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from relay.journal.faults import Unusable
from relay.journal.memory import MemoryJournal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relay.journal.store import Journal

_FORMS = "sqlite:///relative/path, sqlite:////absolute/path or postgresql://user:password@host:port/database"


async def open_journal(url: str, *, receivers: Sequence[str] = ()) -> Journal:
    """Open it and bring its tables up to date; every change is kept to be told to ``receivers``. Raises as a store."""
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        return MemoryJournal(receivers=receivers)
    if scheme == "sqlite":
        from relay.journal.sqlite import SqliteJournal  # noqa: PLC0415 - only who has one pays for it

        return await SqliteJournal.open(sqlite_path(url), receivers=receivers)
    if scheme in ("postgresql", "postgres"):
        from relay.journal.postgres import PostgresJournal  # noqa: PLC0415 - as above

        return await PostgresJournal.open(url, receivers=receivers)
    raise Unusable(f"[journal] url has no form that is known; write {_FORMS}")


def sqlite_path(url: str) -> Path:
    """The file of a SQLite URL."""
    parts = urlsplit(url)
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or parts.query or parts.fragment or not path or path.endswith("/"):
        raise Unusable(f"[journal] url {url} names no file; write sqlite:///relative/path or sqlite:////absolute/path")
    return Path(path)
