"""A node that answers with scripted bytes over real sockets, and what a test of the pool needs around it.

A script is a list of steps for one request: bytes are written and, where the node was given `Reads`, the next step
waits until the pool has read them, so that each becomes one read; `CLOSE` and `RESET` end the connection, `HANG` keeps
it open without a word until the pool ends it; an event is waited for; a `Flood` is a long body.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
import struct
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pytest
import uvloop

from relay.config import Upstream
from relay.telemetry.metrics import Metrics
from relay.upstream import pool as pool_room
from relay.upstream.connection import Connection
from relay.upstream.pool import Pool

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from relay.upstream.exchange import Failure, Head, Lack

T = TypeVar("T")

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain"


class End(Enum):
    """Steps that are no bytes."""

    CLOSE = "close"
    RESET = "reset"
    HANG = "hang"


CLOSE, RESET, HANG = End.CLOSE, End.RESET, End.HANG


@dataclass(frozen=True)
class Flood:
    """A body of this many bytes."""

    size: int


Step = bytes | End | asyncio.Event | Flood


@dataclass(frozen=True)
class Received:
    """One request as the node saw it. ``connection`` counts from 0."""

    connection: int
    head: bytes
    body: bytes

    @property
    def lines(self) -> list[bytes]:
        """The head's lines."""
        return self.head.split(b"\r\n")[:-2]


class Reads:
    """Tells how many bytes the pool's connections have read so far, and how many of them are gone."""

    def __init__(self) -> None:
        self.bytes = 0
        self.lost = 0
        self._moved = asyncio.Event()

    def moved(self, count: int, lost: int) -> None:
        """A connection read something or is gone."""
        self.bytes += count
        self.lost += lost
        self._moved.set()

    async def until(self, count: int, lost: int) -> None:
        """Wait until ``count`` bytes have been read, or more connections than ``lost`` are gone."""
        while self.bytes < count and self.lost <= lost:
            self._moved.clear()
            await self._moved.wait()


class ScriptedNode:
    """``async with ScriptedNode(script, …) as node``: each request takes the next script; without one, `PLAIN`."""

    def __init__(self, *scripts: Sequence[Step], tls: ssl.SSLContext | None = None, reads: Reads | None = None) -> None:
        self.scripts = deque(scripts)
        self.received: list[Received] = []
        self.connections = 0
        self.open = 0
        self.most_open = 0
        self.played = 0
        self.flooded = 0
        self.reads_bodies = True
        self._tls = tls
        self._reads = reads
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._serving: set[asyncio.Task[None] | None] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop_listening()
        self._stopping.set()
        for task in [task for task in self._serving if task]:
            task.cancel()
        await self.until(lambda: not self._serving)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def stop_listening(self) -> None:
        """New connections are refused; those that stand go on."""
        self._server.close()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds; looked at whenever something happens at the node."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def has_received(self, count: int) -> None:
        """Wait until ``count`` requests have come."""
        await self.until(lambda: len(self.received) >= count)

    async def has_open(self, count: int) -> None:
        """Wait until as many connections are open."""
        await self.until(lambda: self.open == count)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        number, self.connections, self.open = self.connections, self.connections + 1, self.open + 1
        self.most_open = max(self.most_open, self.open)
        self._changed.set()
        try:
            while True:
                await self._answer(number, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self.open -= 1
            self._serving.discard(asyncio.current_task())
            self._changed.set()

    async def _answer(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().rpartition(b"content-length:")[2])
        body = await reader.readexactly(length) if self.reads_bodies else b""
        self.received.append(Received(number, head, body))
        self._changed.set()
        try:
            await self._play(self.scripts.popleft() if self.scripts else [PLAIN], reader, writer)
        finally:
            self.played += 1
            self._changed.set()

    async def _play(self, script: Sequence[Step], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start, lost = (self._reads.bytes, self._reads.lost) if self._reads else (0, 0)
        for step in script:
            await self._take(step, reader, writer)
            if self._reads and isinstance(step, bytes):
                start += len(step)
                await self._reads.until(start, lost)

    async def _take(self, step: Step, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match step:
            case bytes():
                writer.write(step)
                await writer.drain()
            case Flood(size):
                await self._flood(size, writer)
            case asyncio.Event():
                await step.wait()
            case End.HANG:
                await (reader.read() if self.reads_bodies else self._stopping.wait())
                raise ConnectionAbortedError
            case End.CLOSE:
                writer.close()
                await writer.wait_closed()
                raise ConnectionAbortedError
            case End.RESET:
                wire: socket.socket = writer.get_extra_info("socket")
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                raise ConnectionResetError

    async def _flood(self, size: int, writer: asyncio.StreamWriter) -> None:
        piece = bytes(range(256)) * 256
        for start in range(0, size, len(piece)):
            writer.write(piece[: min(len(piece), size - start)])
            await writer.drain()
            self.flooded = start + len(piece)


@dataclass
class Recorder:
    """A sink that keeps what it hears, and checks that it hears it in order."""

    said: list[str] = field(default_factory=list)
    head: Head | None = None
    length: int | None = None
    parts: list[bytes] = field(default_factory=list)
    failure: Failure | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def answered(self, head: Head, body: bytes) -> None:
        """Whole."""
        self._say("answered", after=())
        self.head, self.length, self.parts = head, len(body), [body]
        self.over.set()

    def began(self, head: Head, length: int | None) -> None:
        """Head."""
        self._say("began", after=())
        self.head, self.length = head, length

    def more(self, chunk: bytes) -> None:
        """Body."""
        assert chunk
        self._say("more", after=("began", "more"))
        self.parts.append(chunk)

    def ended(self) -> None:
        """Complete."""
        self._say("ended", after=("began", "more"))
        self.over.set()

    def failed(self, failure: Failure) -> None:
        """Not complete."""
        self._say("failed", after=("began", "more"), first=True)
        self.failure = failure
        self.over.set()

    @property
    def body(self) -> bytes:
        """What came of it."""
        return b"".join(self.parts)

    async def end(self) -> Self:
        """Wait for the end."""
        await self.over.wait()
        return self

    def _say(self, word: str, *, after: tuple[str, ...], first: bool = False) -> None:
        last = self.said[-1] if self.said else None
        assert last in after or (last is None and (first or not after)), f"{word} after {self.said}"
        self.said.append(word)


@dataclass
class Clock:
    """Time stands still until a test moves it."""

    now: float = 1000.0

    def __call__(self) -> float:
        """Monotonic seconds."""
        return self.now


@asynccontextmanager
async def pool_to(url: str, clock: Callable[[], float] | None = None, **settings: Any) -> AsyncIterator[Pool]:
    """A pool that is closed in the end, and reported no fault."""
    faults: list[str] = []
    timing = {"clock": clock} if clock else {}
    pool = Pool(
        Upstream(**{"url": url, **settings}),
        Metrics(),
        lambda name, fault: faults.append(f"{name}: {fault!r}"),
        **timing,
    )
    try:
        yield pool
    finally:
        await pool.close()
    assert faults == []


def send(pool: Pool, *, body: bytes = b"{}", submission: bool = False, timeout_s: float | None = None) -> Recorder:
    """Post something."""
    heard = Recorder()
    pool.send(body, heard, submission=submission, timeout_s=timeout_s)
    return heard


async def under_way(node: ScriptedNode, pool: Pool, count: int, *, submission: bool = False) -> list[Recorder]:
    """Post ``count`` requests that arrive at the node one after another, on a connection each."""
    heard = []
    for number in range(count):
        heard.append(send(pool, submission=submission))
        await node.has_received(number + 1)
    return heard


def noting(written: list[T], what: T) -> Callable[[], bool]:
    """A ``before_write`` that says yes and notes it."""

    def note() -> bool:
        written.append(what)
        return True

    return note


def gated(count: int) -> tuple[list[asyncio.Event], list[list[Step]]]:
    """Gates, and scripts of a node that answers each once its gate opens."""
    gates = [asyncio.Event() for _ in range(count)]
    return gates, [[gate, PLAIN] for gate in gates]


def lack(heard: Recorder) -> Lack | None:
    """What the sink was told."""
    return None if heard.failure is None else heard.failure.lack


async def two_idle(node: ScriptedNode, pool: Pool) -> None:
    """Bring two connections about."""
    gates, scripts = gated(2)
    node.scripts.extend(scripts)
    heard = await under_way(node, pool, 2)
    for gate, sink in zip(gates, heard, strict=True):
        gate.set()
        await sink.end()


def tapped(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Count what the pools of this test read."""
    reads = Reads()

    class Tapped(Connection):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            reads.moved(len(data), 0)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            reads.moved(0, 1)

    monkeypatch.setattr(pool_room, "Connection", Tapped)
    return reads


def both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on asyncio's own loop and on uvloop."""

    def run(loop_factory: Callable[[], asyncio.AbstractEventLoop], **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(asyncio.wait_for(test(**fixtures), 30))

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    signature = inspect.signature(test)
    loop = inspect.Parameter("loop_factory", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    # The ignore: a plain function may carry a signature, its type does not say so.
    run.__signature__ = signature.replace(parameters=[loop, *signature.parameters.values()])  # type: ignore[attr-defined]
    loops = [pytest.param(asyncio.new_event_loop, id="asyncio"), pytest.param(uvloop.new_event_loop, id="uvloop")]
    on_each: Callable[..., None] = pytest.mark.parametrize("loop_factory", loops)(run)
    return on_each
