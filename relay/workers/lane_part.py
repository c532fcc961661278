"""Worker 0's part for all: the lanes of every sender, and the desk where the others hand tickets in.

Rules: nothing begins before `start`: until then another process may have the lanes.
Must not know: clients, the parent.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from relay.sides import LaneSide
from relay.workers.desk import LaneDesk

if TYPE_CHECKING:
    from relay.lease import Tier
    from relay.sides import House, NodeSide
    from relay.tasks import TaskOwner
    from relay.workers.control import Start

HAND_OVER_S: Final = 10.0
"""For turns that run to end, when another process takes over; all senders wait for it. Then the process ends, and its
successor finds out what became of them."""


class LanePart:
    """See the module."""

    def __init__(self, house: House, node: NodeSide, start: Start, background: TaskOwner) -> None:
        assert start.lanes is not None
        self._background = background
        self._lanes = LaneSide(house, node)
        self._desk = LaneDesk(
            self._lanes.submitter,
            socket.socket(fileno=start.lanes),
            house.settings,
            house.metrics,
            background,
            house.report,
            house.clock,
        )

    def __repr__(self) -> str:
        return f"<LanePart {self._lanes!r} {self._desk!r}>"

    @property
    def tier(self) -> Tier | None:
        """The order between instances."""
        return self._lanes.tier

    async def start(self) -> None:
        """The lanes are ours: begin."""
        await self._lanes.start(self._background)
        await self._desk.start()

    async def hand_over(self) -> None:
        """Give back what waits, end what runs, let go of the rest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HAND_OVER_S):
                await self._desk.hand_over()
        await self._lanes.release()

    async def end(self) -> None:
        """Take nothing more, and finish what is in flight."""
        self._lanes.submitter.stop_taking()
        await self._lanes.finished()
        await self._lanes.release()

    def give_up(self) -> None:
        """Answer whoever still waits, now."""
        self._desk.give_up()
        self._lanes.give_up()

    async def close(self) -> None:
        """Stop what still runs."""
        await self._desk.close()
        await self._lanes.close()
