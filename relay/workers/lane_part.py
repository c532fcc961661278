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
from relay.tasks import TaskOwner
from relay.workers import control
from relay.workers.aftermath import Aftermath
from relay.workers.desk import LaneDesk
from relay.workers.inflight import InflightTable
from relay.workers.muster import Muster

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relay.console.hand import Hand
    from relay.lease import Tier
    from relay.sides import House, NodeSide
    from relay.workers.control import Start

TURNS: Final = 4096
"""That can be written down at once, 400 KB in all. Far more than there are connections to the node."""


class LanePart:
    """See the module."""

    def __init__(self, house: House, node: NodeSide, start: Start, background: TaskOwner) -> None:
        assert start.lanes is not None
        assert start.inflight is not None
        self._background = background
        self._turns = TaskOwner("aftermath", house.report)
        self._table = InflightTable(start.inflight, TURNS)
        self._muster = Muster(house.settings.ordering.max_wait_s, house.clock)
        self._aftermath = Aftermath(
            self._table,
            self._muster,
            settings=house.settings,
            accounts=node.accounts,
            metrics=house.metrics,
            owner=self._turns,
            clock=house.clock,
        )
        self._lanes = LaneSide(house, node, self._aftermath)
        self._muster.complete = self._lanes.submitter.turns.wake_all
        self._desk = LaneDesk(
            self._lanes.submitter,
            socket.socket(fileno=start.lanes),
            self._muster,
            house.metrics,
            background,
            report=house.report,
            clock=house.clock,
        )

    def __repr__(self) -> str:
        return f"<LanePart {self._lanes!r} {self._desk!r}>"

    @property
    def tier(self) -> Tier | None:
        """The order between instances."""
        return self._lanes.tier

    @property
    def hand(self) -> Hand:
        """What operators ask of the lanes."""
        return self._lanes.hand

    async def start(self, forwarders: Iterable[int]) -> None:
        """The lanes are ours: begin. ``forwarders`` may have tickets."""
        self._aftermath.start()
        await self._lanes.start(self._background)
        await self._desk.start()
        self._muster.begin(forwarders)

    async def hand_over(self) -> None:
        """Give back what waits, end what runs, let go of the rest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(control.HAND_OVER_S):
                await self._desk.hand_over()
        await self._lanes.release()

    async def deserted(self, seconds: float) -> None:
        """Wait until nobody is left who could hand tickets in, or ``seconds``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._desk.deserted()

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
        self._muster.close()
        await self._lanes.close()
        await self._turns.close()
        self._table.close()
