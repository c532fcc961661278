"""`[journal]`, checked as a whole.

Job: which URLs there are. What a store finds out when it is opened (a missing directory, a wrong password) is said by
the store.
Must not know: the stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from relay.config.values import ConfigFault, masked

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from relay.config.options import Journal

_FORMS: Final = {
    "sqlite": "sqlite:///relative/path or sqlite:////absolute/path",
    "postgresql": "postgresql://USER:PASSWORD@HOST:PORT/DATABASE",
}


def check_journal(journal: Journal) -> None:
    """Can a journal be meant by these? Raises ConfigFault."""
    if 0 < 24 * journal.retention_d < journal.dedupe_h:
        raise ConfigFault(
            f"journal.retention_d: {journal.retention_d} days are fewer than journal.dedupe_h "
            f"({journal.dedupe_h} hours): an idempotency key would be forgotten while it still counts; raise it or "
            "lower dedupe_h"
        )
    url = journal.url
    if not url:
        return
    try:
        parts = urlsplit(url)
        named = parts.scheme in _FORMS and url.isprintable() and not parts.fragment and _names_a_place(parts)
        form = _FORMS.get(parts.scheme)
    except ValueError:
        named, form = False, None
    if not named:
        raise ConfigFault(f"journal.url: {masked(url)} is not a URL of the form {form or ' or '.join(_FORMS.values())}")


def _names_a_place(parts: SplitResult) -> bool:
    if parts.scheme == "sqlite":
        path = parts.path.removeprefix("/")
        return not parts.netloc and not parts.query and bool(path) and not path.endswith("/")
    # With an unescaped / ? or # in the password the @ comes after what looks like the host; 0 is no port.
    return parts.port != 0 and "@" not in parts.path + parts.query and len(parts.path) > 1
