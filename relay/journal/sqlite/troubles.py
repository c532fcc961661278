"""What the library's errors mean.

Job: an error of `sqlite3` → a fault that names ``[journal] url`` and says what to do. Nothing else reads its errors.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

from relay.journal.faults import Unavailable, Unusable

if TYPE_CHECKING:
    from relay.errors import Fault

_PASSING: Final = {
    sqlite3.SQLITE_BUSY: "is locked by another process, which did not let go within {lock_s:g} s",
    sqlite3.SQLITE_LOCKED: "is locked by another process, which did not let go within {lock_s:g} s",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full, or max_page_count is reached; make room",
    sqlite3.SQLITE_IOERR: "cannot be read or written: {detail}; look at the disk",
    sqlite3.SQLITE_NOMEM: "got no memory",
    sqlite3.SQLITE_PROTOCOL: "is locked by too many processes at once",
}
"""What may be over by itself, or by somebody else's doing."""

_LASTING: Final = {
    sqlite3.SQLITE_READONLY: "is read-only; give the relay's user the right to write it and its directory",
    sqlite3.SQLITE_PERM: "may not be opened; give the relay's user the right to write it and its directory",
    sqlite3.SQLITE_AUTH: "may not be opened; give the relay's user the right to write it and its directory",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; its directory must exist and be writable to the relay's user",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore it from a backup, with its -wal file",
    sqlite3.SQLITE_NOTADB: "is no SQLite database; name another file",
}

DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""Whatever is read or written from then on cannot be trusted."""

STOPS_ALL: Final = frozenset(_PASSING) | frozenset(_LASTING)
"""Errors about the file and not about one statement: whoever is next would meet the same."""


def primary(error: sqlite3.Error) -> int:
    """The error's primary code; 0 where the library found the mistake itself."""
    code = getattr(error, "sqlite_errorcode", None)
    return 0 if code is None else int(code) & 0xFF


def fault(error: sqlite3.Error, url: str, lock_s: float) -> Fault:
    """The fault that ``error`` is. After a failed write of the disk, what was asked may have happened all the same."""
    code = primary(error)
    start = f"the journal {url} ([journal] url) "
    if code in _PASSING:
        text = _PASSING[code].format(lock_s=lock_s, detail=error)
        return Unavailable(start + text, maybe=code == sqlite3.SQLITE_IOERR)
    return Unusable(start + _LASTING.get(code, f"failed: {error}"))
