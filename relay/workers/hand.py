"""The operator's hand, from the parent to the process that has the lanes.

Rules: what is said while no process has them is lost, and logged: what was decided stands in the journal, and the next
process finds it there.
Must not know: who asks, what is done about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from relay.workers import control

if TYPE_CHECKING:
    from relay.workers.slot import Slot


class SlotHand:
    """`relay.console.hand.Hand` by the control channel of ``slot``, worker 0's place."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._log = structlog.get_logger("relay.workers")

    def resend(self, submission: int) -> None:
        """Take the submission's bytes through its lane's turn again."""
        self._say(control.RESEND, submission)

    def sweep(self) -> None:
        """Sweep now."""
        self._say(control.SWEEP)

    def lanes_changed(self) -> None:
        """A lane was paused, or goes on."""
        self._say(control.LANES_CHANGED)

    def _say(self, *order: Any) -> None:
        owners = [child for child in self._slot.all if child.has_lanes.is_set() and not child.ended.is_set()]
        for child in owners:
            child.tell(*order)
        if not owners:
            self._log.warning("no process has the lanes: it finds out for itself when it has them", order=order[0])
