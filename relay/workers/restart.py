"""What a rolling restart changes, and what it cannot.

Job: new settings, with the old values where only a full restart helps.
Must not know: processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from relay.config import Settings

FIXED: Final = (
    ("server", "listen"), ("server", "workers"), ("ops", "listen"), ("ops", "token"), ("journal", "url"),
)  # fmt: skip
"""The parent's own: sockets that are kept over a restart, and the number of those who share them; the operator's API,
which it serves; and the journal, which all processes must share at any time."""


def kept_until_restart(old: Settings, new: Settings) -> tuple[Settings, list[str]]:
    """``new`` with what is `FIXED` as in ``old``; the paths where they differ."""
    told = []
    for section, key in FIXED:
        kept, wanted = getattr(getattr(old, section), key), getattr(getattr(new, section), key)
        if kept != wanted:
            told.append(f"{section}.{key}")
            changed = msgspec.structs.replace(getattr(new, section), **{key: kept})
            new = msgspec.structs.replace(new, **{section: changed})
    return new, told
