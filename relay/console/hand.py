"""What an operator's decision asks of the process that has the lanes.

Job: the words, for whoever carries them out (`relay.sides`) or passes them on (`relay.workers`).
Rules: nobody waits for them and none is needed for what was decided to hold: it is in the journal, and the sweep finds
it there. They only make it come true at once.
Must not know: who has the lanes.
"""

from __future__ import annotations

from typing import Protocol


class Hand(Protocol):
    """Each returns at once."""

    def resend(self, submission: int) -> None:
        """Take the submission's bytes through its lane's turn again."""

    def sweep(self) -> None:
        """Sweep now."""

    def lanes_changed(self) -> None:
        """A lane was paused, or goes on."""
