"""One worker process, as its parent sees it.

Job: start it, hear what it says, tell it what to do, know when it has ended.
Rules: nothing waits for a worker without a bound: it may be stopped. It has ended when the system says so, whatever it
said before.
Must not know: why it was started, what becomes of its place.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from relay.config import ConfigFault
from relay.errors import Fault
from relay.workers import control
from relay.workers.frames import Garbled
from relay.workers.link import Link

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.tasks import TaskOwner
    from relay.telemetry.metrics import Snapshot
    from relay.workers.control import Start
    from relay.workers.frames import Frame

    Counted = Callable[["Child", Snapshot], None]

ANSWER_S: Final = 1.0
"""How long a worker may take to say what it has counted: it need ask nobody."""
CHECK_S: Final = 3.5
"""How long it may take to say how it is: it asks the node."""


class Child:
    """A running worker. Made by `spawn`."""

    def __init__(self, number: int, process: asyncio.subprocess.Process, tasks: TaskOwner, counted: Counted) -> None:
        self.number = number
        self.silent = 0
        """How often it was asked since it last said something."""
        self.checks: tuple[tuple[str, bool, str], ...] = ()
        self.chain_id: int | None = None
        """The node's, as far as the worker knows."""
        self.fault: Fault | None = None
        """Why it could not start, if it said so."""
        self.ready = asyncio.Event()
        self.has_lanes = asyncio.Event()
        self.stopped = asyncio.Event()
        self.ended = asyncio.Event()
        self._said = {
            control.READY: self.ready, control.HAS_LANES: self.has_lanes, control.STOPPED: self.stopped,
            control.COUNTED: asyncio.Event(), control.CHECKED: asyncio.Event(),
        }  # fmt: skip
        self._process = process
        self._tasks = tasks
        self._counted = counted
        self.link = Link(self._heard, lambda _: None)
        tasks.start("process", self._watch())

    def __repr__(self) -> str:
        state = "ended" if self.ended.is_set() else "ready" if self.ready.is_set() else "starting"
        return f"<worker {self.number}: {state}, pid {self.pid}>"

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def fate(self) -> str:
        """How it ended, in an operator's words."""
        code = self._process.returncode
        if code is None:
            return "it runs"
        return f"killed by {_signal(-code)}" if code < 0 else f"exit code {code}"

    def tell(self, *frame: Any) -> None:
        """Nobody hears it if the worker has ended."""
        self.link.send(frame)

    def ask(self) -> None:
        """Ask for a sign of life: its metrics."""
        self.silent += 1
        self.tell(control.COUNT)

    async def count(self) -> bool:
        """Have it tell its metrics. False if it does not answer in time."""
        return await self._fresh(control.COUNT, control.COUNTED, ANSWER_S)

    async def check(self) -> bool:
        """Bring ``checks`` up to date. False if the worker does not answer in time."""
        return await self._fresh(control.CHECK, control.CHECKED, CHECK_S)

    async def until(self, *events: asyncio.Event, seconds: float | None = None) -> bool:
        """Wait until one of ``events`` is there, or the worker has ended. False if neither is in ``seconds``."""
        waits = [self._tasks.spawn("wait", event.wait()) for event in (*events, self.ended)]
        try:
            done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return bool(done)

    def kill(self) -> None:
        """End it at once, even if it is stopped."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def _fresh(self, question: str, answer: str, seconds: float) -> bool:
        event = self._said[answer]
        event.clear()
        self.tell(question)
        return await self.until(event, seconds=seconds) and event.is_set()

    def _heard(self, frame: Frame) -> None:
        self.silent = 0
        match frame:
            case (control.COUNTED, snapshot):
                self._counted(self, snapshot)
            case (control.CHAIN, chain_id):
                self.chain_id = chain_id
            case (control.CHECKED, checks):
                self.checks = checks
            case (control.FAILED, str(text), wrong_setting):
                self.fault = ConfigFault(text) if wrong_setting else Fault(text)
            case (word,) if word in self._said:
                pass
            case _:
                raise Garbled(f"worker {self.number} said {frame[:1]!r:.50}")
        if (event := self._said.get(frame[0])) is not None:
            event.set()

    async def _watch(self) -> None:
        await self._process.wait()
        await self.link.closed  # what it said last is heard by then
        self.ended.set()


async def spawn(start: Start, tasks: TaskOwner, counted: Counted) -> Child:
    """Start a worker; ``counted`` gets its metrics whenever it tells them.

    It leads a session of its own: Ctrl-C reaches the parent alone.
    """
    ours, theirs = socket.socketpair()
    inherited = [*start.clients, start.door, theirs.fileno()]
    inherited += [fd for fd in (start.lanes, start.inflight) if fd is not None]
    command = [sys.executable, "-m", "relay.workers", str(start.number), str(theirs.fileno())]
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, pass_fds=inherited, start_new_session=True
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    child = Child(start.number, process, tasks, counted)
    try:
        await asyncio.get_running_loop().create_unix_connection(lambda: child.link, sock=ours)
    except BaseException:
        child.kill()
        ours.close()
        raise
    child.tell(control.START, control.packed(start))
    return child


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
