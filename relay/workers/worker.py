"""One worker: the sides of a relay that its role gives it, and what its parent may ask of it.

Job: build, start, end. A worker that takes clients hands every submission to the lanes by its link, worker 0 its own,
too: one way for all.
Rules: the parent decides, and its word is the only signal. Without a parent the worker ends by itself, the clients'
side first: the lanes stay until nobody is left who could hand tickets in. In the last moments of a drain those who have
the lanes speak first: a forwarder answers only what they left open.
Must not know: other workers, sockets' addresses.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import TYPE_CHECKING, Final

import structlog

from relay.process import fit_files
from relay.sides import ClientSide, House, NodeSide, shelf_of
from relay.tasks import TaskOwner
from relay.workers import control, sockets
from relay.workers.forwarder import Forwarder
from relay.workers.lane_part import LanePart
from relay.workers.roles import Role, shared_out

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import Any

    from relay.ops import Readiness
    from relay.telemetry.logs import Logs
    from relay.telemetry.metrics import Metrics
    from relay.workers.control import Start

ANSWERING_S: Final = 1.0
"""After a drain: time to write the last answers before sockets are closed."""
LAST_WORD_S: Final = 0.5
"""Of that, how long a forwarder waits for the lanes' own words."""
BROKEN_S: Final = 5.0
"""What a worker with a fault takes to let its clients go."""


class Worker:
    """See the module. ``tell`` takes a frame for the parent."""

    def __init__(
        self,
        start: Start,
        metrics: Metrics,
        logs: Logs,
        tell: Callable[..., None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        role = Role(start.number, start.count)
        settings = fit_files(shared_out(start.settings, role))
        self._shelf = shelf_of(settings, metrics)
        house = House(settings, metrics, logs.report, clock, self._shelf)
        self.finished = asyncio.Event()
        self.broken = False
        self._start = start
        self._metrics = metrics
        self._tell = tell
        self._clock = clock
        self._drain_s = settings.server.drain_s
        self._log = structlog.get_logger("relay.worker")
        self._background = TaskOwner("worker", self._died)
        self._asks = TaskOwner("asks", logs.report)
        self._ways: dict[str, asyncio.Task[None]] = {}
        self._node = NodeSide(house)
        self._lanes = LanePart(house, self._node, start, self._background) if role.has_lanes else None
        self._forwarder: Forwarder | None = None
        self._clients: ClientSide | None = None
        if start.clients:  # not one that takes the lanes over while the relay drains
            self._forwarder = Forwarder(
                sockets.path_of(start.door), settings, metrics, self._background, clock=clock, name=os.getpid()
            )
            self._clients = ClientSide(house, self._node, self._forwarder)
        self.orders: Mapping[str, Callable[..., None]] = {
            control.GO: lambda forwarders: self._once("go", self._go(forwarders)),
            control.RETIRE: lambda seconds: self._once("retire", self._retire(seconds)),
            control.STOP: lambda seconds: self._once("stop", self._stop(seconds)),
            control.END: lambda: self._once("end", self._end()),
            control.GIVE_UP: self.give_up,
            control.COUNT: self._count,
            control.CHECK: lambda: self._asks.start("check", self._check()),
            **self._hand_orders(),
        }
        """What the parent may say → what it does."""

    async def start(self) -> None:
        """Take clients, if that is this worker's part. The upstream need not be there yet."""
        self._node.start(self._background)
        if self._shelf is not None:
            await self._shelf.start(self._background)
        if self._forwarder is not None and self._clients is not None:
            await self._forwarder.start()
            await self._clients.start(*(socket.socket(fileno=fd) for fd in self._start.clients))

    def orphaned(self) -> None:
        """The parent is gone: end as if it had said so."""
        if not self.finished.is_set():
            self._log.critical("the parent process is gone, the worker ends")
            self._once("orphaned", self._end_alone())

    def give_up(self) -> None:
        """Answer what is not finished, now."""
        if self._lanes is not None:
            self._lanes.give_up()
        self._give_clients_up()

    def _give_clients_up(self) -> None:
        self._node.give_up()
        if self._clients is not None:
            self._clients.give_up()
        if self._forwarder is not None:
            asyncio.get_running_loop().call_later(LAST_WORD_S, self._forwarder.give_up)

    async def close(self) -> None:
        """Stop everything that still runs."""
        if self._clients is not None:
            await self._clients.close()
        if self._forwarder is not None:
            await self._forwarder.close()
        if self._lanes is not None:
            await self._lanes.close()
        await self._asks.close()
        await self._background.close()
        if self._shelf is not None:
            await self._shelf.close()
        await self._node.close()

    def _hand_orders(self) -> dict[str, Callable[..., None]]:
        """What an operator may ask of whoever has the lanes."""
        if self._lanes is None:
            return {}
        hand = self._lanes.hand
        return {control.RESEND: hand.resend, control.SWEEP: hand.sweep, control.LANES_CHANGED: hand.lanes_changed}

    def _count(self) -> None:
        self._tell(control.CHAIN, self._node.identity.chain_id)
        self._tell(control.COUNTED, self._metrics.snapshot())

    async def _go(self, forwarders: tuple[int, ...]) -> None:
        if self._lanes is not None:
            await self._lanes.start(forwarders)
            self._tell(control.HAS_LANES)

    async def _retire(self, seconds: float) -> None:
        """A replacement has the sockets: refuse nothing, let clients go, hand the lanes over."""
        if self._clients is not None:
            await self._clients.retire(self._clock() + seconds)
        if "stop" in self._ways:
            return  # the relay ends meanwhile: nobody takes the lanes over
        await self._drain_clients(ANSWERING_S)
        if self._lanes is not None:
            await self._lanes.hand_over()
        self.finished.set()

    async def _stop(self, seconds: float) -> None:
        """The relay ends: finish the clients; the lanes end when the parent says that all workers are that far."""
        if self._forwarder is not None:
            self._forwarder.stop_taking()
        if self._lanes is not None:
            asyncio.get_running_loop().call_later(seconds, self._lanes.give_up)
        await self._drain_clients(seconds)
        self._tell(control.STOPPED)
        if self._lanes is None:
            self.finished.set()

    async def _drain_clients(self, seconds: float) -> None:
        """What they still wait for after ``seconds`` is given up."""
        if self._clients is None:
            return
        over = asyncio.get_running_loop().call_later(seconds, self._give_clients_up)
        try:
            async with asyncio.timeout(seconds + 2 * ANSWERING_S):
                await self._clients.drain(self._clock() + seconds + ANSWERING_S)
        except TimeoutError:
            self._log.warning("the drain was cut", clients=repr(self._clients))
        finally:
            over.cancel()

    async def _end(self) -> None:
        if self._lanes is not None:
            await self._lanes.end()
        self.finished.set()

    async def _end_alone(self) -> None:
        await self._stop(self._drain_s)
        if self._forwarder is not None:
            await self._forwarder.close()
        if self._lanes is not None:
            await self._lanes.deserted(self._drain_s + ANSWERING_S)
            await self._lanes.end()
        self.finished.set()

    async def _check(self) -> None:
        found: dict[str, Readiness] = {"upstream": await self._node.identity.check()}
        if self._forwarder is not None:
            found["lanes"] = self._forwarder.check()
        if self._lanes is not None and self._lanes.tier is not None:
            found["redis"] = await self._lanes.tier.check()
        if self._shelf is not None:
            found["journal"] = await self._shelf.check()
        self._tell(control.CHECKED, tuple((name, one.ready, one.detail) for name, one in found.items()))

    def _once(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """An order that is given again changes nothing."""
        if name in self._ways:
            work.close()
        else:
            self._ways[name] = self._background.spawn(name, work)

    def _died(self, name: str, error: BaseException) -> None:
        self._log.critical("a background task died, the worker ends", task=name, error=repr(error), exc_info=error)
        if self.broken:
            self.finished.set()
            return
        self.broken = True
        self._once("retire", self._retire(BROKEN_S))
