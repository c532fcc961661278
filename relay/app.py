"""Composition root: builds every room from the settings, runs them, and takes them down in order.

Job: wiring, the process (event loop, signals, limits), start and drain.
Rules: nothing is global; each room gets what it needs here. A background task that dies stops the instance. The drain
order is the one of G12: stop accepting → finish what is in flight → refuse what still waits → answer → close.
Must not know: what the rooms do.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog
import uvloop

from relay import process
from relay.config import address, doubts, masked
from relay.console import console
from relay.listening import Addresses, listening, url
from relay.ops import OpsServer, of_process
from relay.sides import ClientSide, House, LaneSide, NodeSide, shelf_of
from relay.tasks import TaskOwner
from relay.telemetry.logs import Logs
from relay.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aiohttp import web

    from relay.config import Settings
    from relay.workers.parent import Parent

ANSWERING_S: Final = 1.0
"""After the drain: time to write the last answers before sockets are closed."""


class Instance:
    """One relay in front of one node."""

    def __init__(
        self, settings: Settings, metrics: Metrics, logs: Logs, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._log = structlog.get_logger("relay")
        self.stopping = asyncio.Event()
        self.broken = False
        self._background = TaskOwner("relay", self._died)
        self._shelf = shelf_of(settings, metrics)
        house = House(settings, metrics, logs.report, clock, self._shelf)
        self._node = NodeSide(house)
        self._lanes = LaneSide(house, self._node)
        self._clients = ClientSide(house, self._node, self._lanes.submitter)
        self._ops = OpsServer(settings.ops, of_process(metrics), console=self._console())
        self._ops.add_check("upstream", self._node.identity.check)
        if self._lanes.tier is not None:
            self._ops.add_check("redis", self._lanes.tier.check)
        if self._shelf is not None:
            self._ops.add_check("journal", self._shelf.check)

    def _console(self) -> web.Application | None:
        token, node = self._settings.ops.token, self._node
        if not token or self._shelf is None:
            return None
        return console(token, self._shelf, self._lanes.hand, lambda: node.identity.chain_id)

    async def start(self) -> Addresses:
        """Open the listeners. The upstream need not be there yet."""
        for doubt in doubts(self._settings):
            self._log.warning("settings", doubt=doubt)
        if self._shelf is not None:
            await self._shelf.start(self._background)
        await self._lanes.start(self._background)
        ops, server = self._settings.ops.listen, self._settings.server.listen
        ops_place = await listening("ops.listen", ops, self._ops.start())
        http_place = await listening("server.listen", server, self._clients.start(address(server, "server.listen")))
        self._node.start(self._background)
        return Addresses(http=url(http_place), ops=url(ops_place))

    async def drain(self) -> None:
        """Finish within ``drain_s``, say what could not be finished, and close (G12)."""
        began, seconds = self._clock(), self._settings.server.drain_s
        self._log.info("draining", seconds=seconds, senders=self._lanes.submitter.book.busy)
        self._ops.draining = True
        self._clients.stop_accepting()
        self._lanes.submitter.stop_taking()
        end = asyncio.get_running_loop().call_later(seconds, self.give_up)
        try:
            async with asyncio.timeout(seconds + ANSWERING_S):
                await asyncio.gather(self._clients.drain(began + seconds + ANSWERING_S), self._lanes.finished())
        except TimeoutError:
            self._log.warning("the drain was cut", clients=self._clients, senders=self._lanes.submitter.book.busy)
        finally:
            end.cancel()
            await self._lanes.release()
            await self.close()
        self._log.info("drained", seconds=round(self._clock() - began, 3))

    def give_up(self) -> None:
        """Answer whoever still waits, now: refused if nothing was sent, else unknown or failed. The drain then ends."""
        self._lanes.give_up()
        self._node.give_up()
        self._clients.give_up()

    async def close(self) -> None:
        """Stop everything that still runs. Idempotent."""
        await self._clients.close()
        await self._lanes.close()
        await self._background.close()
        if self._shelf is not None:
            await self._shelf.close()
        await self._node.close()
        await self._ops.close()

    def _died(self, name: str, error: BaseException) -> None:
        self._log.critical("a background task died, the instance stops", task=name, error=repr(error), exc_info=error)
        self.broken = True
        self.stopping.set()


async def run(settings: Settings, announce: Callable[[Addresses], None], reload: Callable[[], Settings]) -> int:
    """Run until a signal, then drain. Returns the exit code."""
    metrics = Metrics()
    logs = Logs.start(settings.log, metrics, sys.stdout)
    try:
        service = _service(settings, metrics, logs, reload)
        try:
            addresses = await service.start()
        except BaseException:
            await service.close()
            raise
        process.settle_memory()
        announce(addresses)
        await service.stopping.wait()
        await service.drain()
        return 1 if service.broken else 0
    finally:
        logs.close()


def _service(settings: Settings, metrics: Metrics, logs: Logs, reload: Callable[[], Settings]) -> Instance | Parent:
    """One process, or the parent of several, which heeds its signals from here on."""
    loop = asyncio.get_running_loop()
    service: Instance | Parent
    if settings.server.workers == 1:
        service = Instance(process.fit_files(settings), metrics, logs)
    else:
        from relay.workers.parent import Parent  # noqa: PLC0415 - only several processes need it

        service = Parent(settings, metrics, logs, reload)
        loop.add_signal_handler(signal.SIGHUP, service.restart)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, service, loop)
    return service


def serve(settings: Settings, reload: Callable[[], Settings]) -> int:
    """``relay serve``: blocks until a signal. ``reload`` reads the settings again."""
    upstream = masked(settings.upstream.url)

    def announce(at: Addresses) -> None:
        _say(f"relay ready on {at.http} (upstream {upstream}, ops {at.ops})")

    return run_loop(run(settings, announce, reload))


def dev(settings: Settings, chain_listen: str) -> int:
    """``relay dev``: an embedded development chain and the relay in front of it."""
    return run_loop(_dev(settings, chain_listen))


async def _dev(settings: Settings, chain_listen: str) -> int:
    from relay.devnode import DevNode  # noqa: PLC0415 - only this command pays for it
    from relay.devnode.welcome import welcome  # noqa: PLC0415 - as above

    host, port = address(chain_listen, "--chain-listen")
    node = DevNode(host=host, port=port)
    await listening("--chain-listen", chain_listen, node.start())
    try:
        upstream = msgspec.structs.replace(settings.upstream, url=node.url, ws_url=node.ws_url)
        # The chain's own controls are for whoever reaches the chain itself, not for every client of the relay.
        server = msgspec.structs.replace(settings.server, deny_methods=(*settings.server.deny_methods, "dev_*"))
        settings = msgspec.structs.replace(settings, upstream=upstream, server=server)
        return await run(settings, lambda at: _say(welcome(node, at.http, at.ops)), lambda: settings)
    finally:
        await node.close()


def run_loop(main: Coroutine[Any, Any, int]) -> int:
    """Run ``main`` on uvloop."""
    process.prefer_large_blocks()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def _say(text: str) -> None:
    """Tell a person or a supervisor who waits for it.

    One who has closed the pipe, as one who has filled the disk, does not want to hear it: that is no reason for the
    clients to go without a relay. Past ``sys.stdout``, which would keep the text and fail with it at the end.
    """
    with suppress(OSError):
        os.write(sys.stdout.fileno(), f"{text}\n".encode())


def _on_signal(service: Instance | Parent, loop: asyncio.AbstractEventLoop) -> None:
    """The first signal drains; the second one gives up at once what is not finished."""
    if service.stopping.is_set():
        loop.call_soon(service.give_up)
    service.stopping.set()
