"""``python -m relay.workers NUMBER DESCRIPTOR``: a worker process. Only its parent starts it.

Job: the channel to the parent, the process (loop, signals, limits, log), one `Worker` from start to end.
Rules: signals to the whole group mean the parent, which tells its workers what to do. A fault while it starts is the
parent's to tell.
Must not know: what a worker does.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

import uvloop

from relay import process
from relay.config import ConfigFault
from relay.errors import Fault
from relay.telemetry.logs import Logs
from relay.telemetry.metrics import Metrics
from relay.workers import control
from relay.workers.frames import Garbled
from relay.workers.link import Link
from relay.workers.worker import Worker

if TYPE_CHECKING:
    from relay.workers.control import Start
    from relay.workers.frames import Frame


class Channel:
    """The worker's end of the control channel."""

    def __init__(self) -> None:
        self.link = Link(self._heard, self._closed)
        self.start: asyncio.Future[Start] = asyncio.get_running_loop().create_future()
        self.worker: Worker | None = None

    def __repr__(self) -> str:
        return f"<Channel {self.link!r}>"

    def tell(self, *frame: Any) -> None:
        """Say something to the parent."""
        self.link.send(frame)

    def _heard(self, frame: Frame) -> None:
        order, *values = frame
        if order == control.START and not self.start.done():
            self.start.set_result(control.unpacked(values[0]))
        elif self.worker is not None and order in self.worker.orders:
            self.worker.orders[order](*values)
        else:
            raise Garbled(f"the parent said {order!r}")

    def _closed(self, _why: str) -> None:
        self.start.cancel()
        if self.worker is not None:
            self.worker.orphaned()


async def work(descriptor: int) -> int:
    """One worker from its first word to its last. Returns the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    channel = Channel()
    pair = socket.socket(fileno=descriptor)
    await asyncio.get_running_loop().create_unix_connection(lambda: channel.link, sock=pair)
    try:
        start = await channel.start
    except asyncio.CancelledError:
        return 1
    metrics = Metrics()
    logs = Logs.start(start.settings.log, metrics, sys.stdout, worker=start.number)
    try:
        return await _serve(channel, start, metrics, logs)
    except (Fault, OSError) as fault:
        channel.tell(control.FAILED, str(fault), isinstance(fault, ConfigFault))
        return 1
    finally:
        channel.link.close()
        await channel.link.closed
        logs.close()


async def _serve(channel: Channel, start: Start, metrics: Metrics, logs: Logs) -> int:
    worker = Worker(start, metrics, logs, channel.tell)
    try:
        await worker.start()
        channel.worker = worker
        channel.tell(control.READY)
        if channel.link.closing:
            worker.orphaned()
        process.settle_memory()
        await worker.finished.wait()
    finally:
        await worker.close()
        channel.tell(control.COUNTED, metrics.snapshot())
    return 1 if worker.broken else 0


if __name__ == "__main__":
    process.prefer_large_blocks()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        raise SystemExit(runner.run(work(int(sys.argv[2]))))
