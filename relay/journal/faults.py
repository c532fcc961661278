"""What can be wrong with a journal's store.

Job: two faults. Foreign exceptions become one of them in the store that owns the driver, and nowhere else. Their texts
name ``[journal] url`` and say what to do.
"""

from __future__ import annotations

from relay.errors import Fault


class Unavailable(Fault):
    """For now: locked, full, slow, restarting, its queue too long. The same call may succeed later.

    ``maybe``: what was asked may have happened all the same (the connection broke while it was being committed).
    """

    def __init__(self, text: str, *, maybe: bool = False) -> None:
        super().__init__(text)
        self.maybe = maybe


class Unusable(Fault):
    """Until a person acts: read-only, corrupt, not a journal, made by a newer relay, no permission."""
