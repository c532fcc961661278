"""The HTTP way in on a real socket, with a scripted upstream behind it and a raw client in front."""

from __future__ import annotations

import asyncio
import asyncio.selector_events
import inspect
import json
import socket
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import pytest
import uvloop

from relay.config import Journal, Server, Settings
from relay.ingress.http import HttpServer
from relay.router import FORWARD, Answer, Forward
from relay.telemetry.metrics import Metrics
from relay.upstream.exchange import Head
from relay.wish import NO_WISH, Wish

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from relay.ask import Listener
    from relay.errors import Refusal
    from relay.upstream.exchange import Failure, Sink

T = TypeVar("T")


def needs_a_loop_that_pauses() -> None:
    """Some versions of the standard loop never pause a writer of lines (CVE-2024-12254): nothing to test there."""
    if isinstance(asyncio.get_running_loop(), uvloop.Loop):
        return
    transport = vars(asyncio.selector_events)["_SelectorSocketTransport"]
    if "_maybe_pause_protocol" not in inspect.getsource(transport.writelines) and transport.__dict__.get("writelines"):
        pytest.skip("this Python's own event loop does not pause a writer of lines (CVE-2024-12254); uvloop does")


LOOPS: Final = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
BODY: Final = b'{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}'
RESULT: Final = b'{"jsonrpc":"2.0","id":1,"result":"0x1"}'
GET: Final = b"GET / HTTP/1.1\r\nHost: relay\r\n\r\n"
UPSTREAM_HEAD: Final = Head(200, b"OK", b"Content-Type: application/json\r\n")


def run(loop: str, work: Callable[[], Coroutine[Any, Any, T]], seconds: float = 20) -> T:
    """Run ``work`` on a fresh loop of this kind, and fail rather than hang."""

    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(bounded())


def on_each_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[str], None]:
    """Make ``test`` a test for uvloop and one for asyncio's own loop."""

    def runner(loop: str) -> None:
        run(loop, test)

    runner.__name__ = test.__name__
    runner.__doc__ = test.__doc__
    runner.__module__ = test.__module__
    marked: Callable[[str], None] = pytest.mark.parametrize("loop", LOOPS)(runner)
    return marked


async def turns(count: int = 3) -> None:
    """Let the loop poll: what stands in a socket of this process is read then."""
    for _ in range(count):
        await asyncio.sleep(0)


def post(*lines: str, body: bytes = BODY, length: bool = True, version: str = "1.1", target: str = "/") -> bytes:
    """A POST with a Host, these header lines and, unless told otherwise, a Content-Length."""
    head = [f"POST {target} HTTP/{version}", "Host: relay", *lines]
    if length:
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Sent:
    """One request at the scripted upstream, and its exchange."""

    def __init__(self, body: bytes, lines: bytes, sink: Sink, repeatable: Callable[[], bool] | None) -> None:
        self.body = body
        self.lines = lines
        self.sink = sink
        self.repeatable = repeatable
        self._held = False
        self.abandoned = False
        self.resumed = asyncio.Event()
        self.given_up = asyncio.Event()

    def pause(self) -> None:
        self._held = True
        self.resumed.clear()

    def resume(self) -> None:
        self._held = False
        self.resumed.set()

    def held(self) -> bool:
        """Has the sink paused it?"""
        return self._held

    def abandon(self) -> None:
        self.abandoned = True
        self.given_up.set()

    def answer(self, body: bytes = RESULT, head: Head = UPSTREAM_HEAD) -> None:
        if not self.abandoned:
            self.sink.answered(head, body)

    def fail(self, failure: Failure) -> None:
        self.sink.failed(failure)


class Upstream:
    """Does with each request what ``script`` says, once `send` has returned; by default a whole answer."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.arrived: asyncio.Queue[Sent] = asyncio.Queue()
        self.script: Callable[[Sent], None] | None = Sent.answer

    def hold(self) -> None:
        """From now on the test answers."""
        self.script = None

    def send(  # noqa: PLR0913 - see `exchange.Sender`
        self,
        body: bytes,
        sink: Sink,
        *,
        lines: bytes = b"",
        timeout_s: float | None = None,
        submission: bool = False,
        repeatable: Callable[[], bool] | None = None,
        before_write: Callable[[], bool] | None = None,
    ) -> Sent:
        assert timeout_s is None
        assert not submission
        assert before_write is None
        sent = Sent(body, lines, sink, repeatable)
        self.sent.append(sent)
        self.arrived.put_nowait(sent)
        if self.script is not None:
            asyncio.get_running_loop().call_soon(self.script, sent)
        return sent


class Routes:
    """Decides by ``decide``; everything is passed on by default."""

    def __init__(self) -> None:
        self.decide: Callable[[bytes], Answer | Forward | asyncio.Future[Answer]] = lambda body: FORWARD
        self.reads = True
        self.wishes: list[Wish | Refusal] = []

    def route(
        self, body: bytes, wish: Wish | Refusal = NO_WISH, *, listener: Listener | None = None
    ) -> Answer | Forward | asyncio.Future[Answer]:
        self.wishes.append(wish)
        return self.decide(body)

    def repeatable(self, body: bytes) -> bool:
        return self.reads


@dataclass
class Reply:
    """One answer as a client reads it. Header names are in lower case; ``interim`` counts the 100s before it."""

    status: int
    headers: dict[str, str]
    body: bytes
    interim: int = 0

    @property
    def error(self) -> dict[str, Any]:
        """The JSON-RPC error of a single answer."""
        error: dict[str, Any] = json.loads(self.body)["error"]
        return error


class Wire:
    """A client that writes bytes, not requests."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._buffer = b""

    async def send(self, data: bytes) -> None:
        """Write, at once what fits. A server that has closed already is no error: its answer may be waiting."""
        with suppress(ConnectionError):
            sent = self._wire.send(data)
            if sent < len(data):
                await asyncio.get_running_loop().sock_sendall(self._wire, data[sent:])

    async def reply(self, *, to_head: bool = False) -> Reply:
        """The next answer, 100s skipped."""
        interim = 0
        while True:
            reply = self._read_head(await self._until(b"\r\n\r\n"))
            if reply.status != 100:
                break
            interim += 1
        if not to_head and reply.status not in (204, 304):
            reply.body = await self._read_body(reply.headers)
        reply.interim = interim
        return reply

    async def ended(self) -> bool:
        """Does the server close without another byte? (Waits until it does one or the other.)"""
        return not self._buffer and not await self._receive()

    async def cut(self) -> bool:
        """Does the connection end in the middle?"""
        with suppress(EOFError):
            while True:
                await self._more()
        return True

    def reset(self) -> None:
        """Vanish."""
        self._wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self._wire.close()

    def close(self) -> None:
        """Go."""
        self._wire.close()

    def finish(self) -> None:
        """Half-close."""
        self._wire.shutdown(socket.SHUT_WR)

    @staticmethod
    def _read_head(head: bytes) -> Reply:
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        headers: dict[str, str] = {}
        for line in lines:
            name, value = line.split(": ", 1)
            assert name.lower() not in headers, f"{name} twice"
            headers[name.lower()] = value
        return Reply(int(status), headers, b"")

    async def _read_body(self, headers: dict[str, str]) -> bytes:
        if "content-length" in headers:
            assert "transfer-encoding" not in headers
            return await self._exactly(int(headers["content-length"]))
        if headers.get("transfer-encoding") == "chunked":
            return await self._chunks()
        assert headers["connection"] == "close"
        await self.cut()
        body, self._buffer = self._buffer, b""
        return body

    async def _chunks(self) -> bytes:
        parts = []
        while size := int((await self._until(b"\r\n"))[:-2], 16):
            parts.append(await self._exactly(size))
            assert await self._exactly(2) == b"\r\n"
        assert await self._exactly(2) == b"\r\n"
        return b"".join(parts)

    async def _until(self, end: bytes) -> bytes:
        while end not in self._buffer:
            await self._more()
        head, _, self._buffer = self._buffer.partition(end)
        return head + end

    async def _exactly(self, size: int) -> bytes:
        parts, missing = [self._buffer[:size]], size - len(self._buffer)
        self._buffer = self._buffer[size:]
        while missing > 0:
            data = await self._receive()
            if not data:
                raise EOFError
            parts.append(data[:missing])
            self._buffer = data[missing:]
            missing -= len(data)
        return b"".join(parts)

    async def _more(self) -> None:
        data = await self._receive()
        if not data:
            raise EOFError
        self._buffer += data

    async def _receive(self) -> bytes:
        try:
            return await asyncio.get_running_loop().sock_recv(self._wire, 1 << 18)
        except ConnectionError:
            return b""


@dataclass
class Rig:
    """A running way in and everything around it."""

    server: HttpServer
    upstream: Upstream
    routes: Routes
    clock: Clock
    metrics: Metrics
    place: tuple[str, int]
    faults: list[BaseException] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)

    async def wire(self, *, receive_buffer: int | None = None) -> Wire:
        """A new client connection."""
        wire = socket.socket()
        wire.setblocking(False)
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer is not None:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.wires.append(Wire(wire))
        await asyncio.get_running_loop().sock_connect(wire, self.place)
        return self.wires[-1]

    async def asked(self, request: bytes) -> tuple[Wire, Sent]:
        """A client whose request has reached the upstream."""
        wire = await self.wire()
        await wire.send(request)
        return wire, await self.upstream.arrived.get()

    async def ask(self, request: bytes) -> Reply:
        """The answer to one request on a connection of its own."""
        wire = await self.wire()
        await wire.send(request)
        reply = await wire.reply()
        wire.close()
        return reply

    def pass_seconds(self, seconds: float) -> None:
        """Time passes, and the sweep sees it. (It first has to see the present state.)"""
        self.server.sweep()
        self.clock.now += seconds
        self.server.sweep()

    def count(self, kind: str, outcome: str) -> int:
        """Requests counted."""
        return self.metrics.requests.cell("http", kind, outcome).n


@asynccontextmanager
async def serving(
    upgrade: Callable[[asyncio.Transport, bytes, Callable[[], None]], None] | None = None,
    *,
    journal: str = "",
    **server: Any,
) -> AsyncIterator[Rig]:
    """A way in with these ``[server]`` settings. At the end everything must be closed and nothing reported.

    ``journal``: its URL; nothing is kept there, for the router is not real.
    """
    clock, metrics, routes, upstream = Clock(), Metrics(), Routes(), Upstream()
    faults: list[BaseException] = []
    way_in = HttpServer(
        Settings(server=msgspec.convert(server, Server), journal=Journal(url=journal)),
        routes,
        upstream,
        metrics,
        report=lambda place, error: faults.append(error),
        upgrade=upgrade,
        clock=clock,
    )
    rig = Rig(way_in, upstream, routes, clock, metrics, await way_in.start(("127.0.0.1", 0)), faults)
    try:
        yield rig
    finally:
        for wire in rig.wires:
            wire.close()
        await way_in.drain(clock.now)
        assert way_in.connections == 0
    assert not faults
