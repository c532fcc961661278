"""When a delivery that failed is tried again.

Job: numbers alone. The tries of one notice are spread over a day, then it is dead.
"""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

FIRST_S: Final = 5.0
LONGEST_S: Final = 3600.0
GIVE_UP_S: Final = 86_400.0
"""A change that is older is not told any more."""


def delay_s(tries: int, chance: float) -> float:
    """After the ``tries``-th try. ``chance`` is from [0, 1): it moves the delay by a quarter either way."""
    return min(LONGEST_S, FIRST_S * 2.0 ** min(tries - 1, 20)) * (0.75 + chance / 2)


def asked_for_s(retry_after: str | None, now_s: float) -> float:
    """``Retry-After`` (RFC 9110, 10.2.3: seconds or a date), never more than a day; 0 without one that can be read."""
    if retry_after is None:
        return 0.0
    return min(max(0.0, _seconds(retry_after.strip(), now_s)), GIVE_UP_S)


def _seconds(text: str, now_s: float) -> float:
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now_s
