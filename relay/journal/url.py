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
    from relay.journal.store import Journal

_FORMS = "sqlite:///relative/path, sqlite:////absolute/path or postgresql://user:password@host:port/database"


async def open_journal(url: str, *, outbox: bool = False) -> Journal:
    """Open it and bring its tables up to date. ``outbox``: every change is kept to be told. Raises as a store does."""
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        return MemoryJournal(outbox=outbox)
    if scheme == "sqlite":
        from relay.journal.sqlite import SqliteJournal  # noqa: PLC0415 - only who has one pays for it

        return await SqliteJournal.open(sqlite_path(url), outbox=outbox)
    if scheme in ("postgresql", "postgres"):
        from relay.journal.postgres import PostgresJournal  # noqa: PLC0415 - as above

        return await PostgresJournal.open(url, outbox=outbox)
    raise Unusable(f"[journal] url has no form that is known; write {_FORMS}")


def sqlite_path(url: str) -> Path:
    """The file of a SQLite URL."""
    parts = urlsplit(url)
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or parts.query or parts.fragment or not path or path.endswith("/"):
        raise Unusable(f"[journal] url {url} names no file; write sqlite:///relative/path or sqlite:////absolute/path")
    return Path(path)
