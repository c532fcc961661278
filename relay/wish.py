"""What a client wishes beside the call itself: headers that concern its submissions.

Job: the values, and what they lead to. Must not know: headers, HTTP, submissions.
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
    wait_s: int | None = None

    @property
    def patience_s(self) -> float | None:
        """How long it waits for the verdict before a handle will do; None: as long as it takes. A bound comes first."""
        return 0.0 if self.respond_async and self.wait_s is None else self.wait_s

    @property
    def applied(self) -> str:
        """What an answer by a handle says of it (RFC 7240, 3)."""
        wait = [] if self.wait_s is None else [f"wait={self.wait_s}"]
        return ", ".join(["respond-async"] * self.respond_async + wait)


NO_WISH: Final = Wish()
