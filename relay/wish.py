"""What a client wishes beside the call itself: headers that concern its submissions.

Job: the values. Must not know: headers, HTTP, what is done about them.
Sources: draft-ietf-httpapi-idempotency-key-header (``Idempotency-Key``), RFC 7240 (``Prefer``: ``respond-async``,
``wait``).
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Wish(NamedTuple):
    """``key``: the idempotency key, "" without. ``wait_s``: answer by a handle after so many seconds, None: no bound.

    ``respond_async``: answer as soon as the submission is on disk.
    """

    key: str = ""
    respond_async: bool = False
    wait_s: float | None = None


NO_WISH: Final = Wish()
