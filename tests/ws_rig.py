"""The WebSocket way in on real sockets: a node with behaviour behind it, aiohttp clients and raw ones in front."""

from __future__ import annotations

import asyncio
import json
import struct
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import aiohttp
from aiohttp import WSCloseCode, WSMsgType, web

from relay import config
from relay.ingress.websocket import WebSocketServer, session
from relay.router import FORWARD, Answer, Forward
from relay.tasks import TaskOwner
from relay.telemetry.metrics import Metrics
from relay.upstream.pool import Pool
from relay.wish import NO_WISH, Wish

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable

    from relay.ask import Listener
    from relay.errors import Refusal

Socket = aiohttp.ClientWebSocketResponse


async def turns(count: int = 100) -> None:
    """Let the loop run: what can happen by itself has happened then."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(true: Callable[[], bool]) -> None:
    """Let the loop run until ``true()``."""
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - one turn of the loop; what is waited for has no event
            await asyncio.sleep(0)


BEHAVIOURS = ("never", "die", "bye", "stall", "flood", "eth_subscribe")


class Node:
    """A node that speaks HTTP and WebSocket. A method's name says what it does."""

    def __init__(self) -> None:
        self.received: list[tuple[WSMsgType, bytes]] = []
        self.headers: list[Any] = []
        self.sockets: set[web.WebSocketResponse] = set()
        self.go_on = asyncio.Event()
        self.http: Callable[[bytes], web.Response] = lambda body: web.Response(body=echo(body))
        self.handshake: Callable[[], web.Response | None] = lambda: None
        self.autoping = True
        self.abandoned = 0
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=tls)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        self.go_on.set()
        if self._runner is not None:
            for socket in list(self.sockets):
                _cut(socket)
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(request.headers)
        if request.headers.get("Upgrade", "").lower() != "websocket":
            body = await request.read()
            self.received.append((WSMsgType.TEXT, body))
            if b'"hang"' in body:
                await self._hang()
            return self.http(body)
        refused = self.handshake()
        if refused is not None:
            return refused
        socket = web.WebSocketResponse(max_msg_size=0, timeout=0.1, autoping=self.autoping)
        await socket.prepare(request)
        self.sockets.add(socket)
        try:
            async for message in socket:
                if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                    await self._take(socket, message.type, message.data)
        except ConnectionError:
            pass
        finally:
            self.sockets.discard(socket)
        return socket

    async def _hang(self) -> None:
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.abandoned += 1
            raise

    async def _take(self, socket: web.WebSocketResponse, kind: WSMsgType, data: Any) -> None:
        body = data if isinstance(data, bytes) else data.encode()
        self.received.append((kind, body))
        try:
            request = json.loads(body)
        except ValueError:
            await socket.send_str('{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}')
            await socket.close()
            return
        calls = request if isinstance(request, list) else [request]
        methods = {call.get("method") for call in calls}
        behaviour = next((getattr(self, f"_{name}") for name in BEHAVIOURS if name in methods), None)
        if behaviour is not None:
            await behaviour(socket, calls[0])
        elif any("id" in call for call in calls):
            await socket.send_frame(echo(body), kind)

    async def _never(self, *_: Any) -> None:
        """No answer."""

    async def _die(self, socket: web.WebSocketResponse, _: Any) -> None:
        _cut(socket)

    async def _bye(self, socket: web.WebSocketResponse, _: Any) -> None:
        await socket.close(code=WSCloseCode.GOING_AWAY)

    async def _stall(self, *_: Any) -> None:
        """Read nothing more."""
        await self.go_on.wait()

    async def _flood(self, socket: web.WebSocketResponse, request: Any) -> None:
        count, size = request["params"]
        for number in range(count):
            await socket.send_str(json.dumps({"method": "eth_subscription", "params": [number, "x" * size]}))

    async def _eth_subscribe(self, socket: web.WebSocketResponse, request: Any) -> None:
        await socket.send_str(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": "0x1"}))
        for number in range(5):
            await socket.send_str(notification(number))

    def die(self) -> None:
        """Cut all sockets."""
        for socket in self.sockets:
            _cut(socket)

    async def say(self, text: str) -> None:
        """To each client."""
        for socket in self.sockets:
            await socket.send_str(text)


def _cut(socket: web.WebSocketResponse) -> None:
    transport = socket._req.transport if socket._req is not None else None
    if transport is not None:
        transport.abort()


def echo(body: bytes) -> bytes:
    """Each call is answered by its own params."""
    request = json.loads(body)
    answers = [_result(call) for call in request if "id" in call] if isinstance(request, list) else _result(request)
    return json.dumps(answers).encode()


def _result(call: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call["id"], "result": call.get("params")}


def notification(number: int) -> str:
    """What the node sends for a subscription, oddly spaced."""
    return f'{{"jsonrpc":"2.0", "method":"eth_subscription", "params":{{"result":{number}}} }}'


class Script:
    """A router whose submissions are answered when the test says so."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.submissions: list[asyncio.Future[Answer]] = []

    def route(
        self, body: bytes, wish: Wish | Refusal = NO_WISH, *, listener: Listener | None = None
    ) -> Answer | Forward | asyncio.Future[Answer]:
        self.bodies.append(body)
        if b"fault" in body:
            raise RuntimeError("a bug")
        if b"eth_sendRaw" in body:
            self.submissions.append(asyncio.get_running_loop().create_future())
            return self.submissions[-1]
        if b"denied" in body:
            return Answer(200, b'{"id":1,"error":{"code":-32601}}')
        if b"silent" in body:
            return Answer(204, b"")
        return FORWARD

    def repeatable(self, body: bytes) -> bool:
        return False

    def answer(self, number: int, text: bytes) -> None:
        self.submissions[number].set_result(Answer(200, text))


class Mute(asyncio.Protocol):
    """A server that accepts connections and says nothing."""

    def __init__(self, open_: set[asyncio.BaseTransport]) -> None:
        self._open = open_

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._open.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self._transport)


class Gate(asyncio.Protocol):
    """Reads the head of an upgrade and hands the connection over, as the HTTP side does."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self._transport.set_write_buffer_limits(65_536, 16_384)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if b"\r\n\r\n" in self._data:
            self._front.upgraded += 1
            self._front.server.upgrade(self._transport, self._data, self._front.count_closed)


@dataclass
class Front:
    """A relay's WebSocket side, alone."""

    server: WebSocketServer
    routes: Script
    metrics: Metrics
    tasks: TaskOwner
    faults: list[tuple[str, BaseException]]
    now: list[float]
    url: str = ""
    upgraded: int = 0
    closed: int = 0
    clients: aiohttp.ClientSession = field(default_factory=aiohttp.ClientSession)

    def count_closed(self) -> None:
        self.closed += 1

    @property
    def session(self) -> session.Session:
        """The only one."""
        (only,) = self.server._sessions.values()
        return only

    async def connect(self, **options: Any) -> Socket:
        socket: Socket = await self.clients.ws_connect(self.url, **options)
        return socket

    def count(self, kind: str, outcome: str) -> int:
        return self.metrics.requests.cell("websocket", kind, outcome).n

    def ticks(self, number: int) -> None:
        for _ in range(number):
            self.server.tick()


@asynccontextmanager
async def relay(upstream: dict[str, Any], **server: Any) -> AsyncIterator[Front]:
    """The WebSocket side in front of a node, on a listener of its own. The clock stands still."""
    faults: list[tuple[str, BaseException]] = []
    now = [1000.0]
    tasks = TaskOwner("test", lambda name, error: faults.append((name, error)))
    settings = config.check({"server": server, "upstream": {"url": "http://127.0.0.1:9", **upstream}})
    metrics, routes = Metrics(), Script()
    pool = Pool(settings.upstream, metrics, lambda name, error: faults.append((name, error)))
    front = Front(
        WebSocketServer(
            settings,
            routes,
            pool,
            metrics,
            tasks,
            report=lambda name, error: faults.append((name, error)),
            clock=lambda: now[0],
        ),
        routes,
        metrics,
        tasks,
        faults,
        now,
    )
    listener = await asyncio.get_running_loop().create_server(lambda: Gate(front), "127.0.0.1", 0)
    front.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
    try:
        yield front
    finally:
        await front.clients.close()
        listener.close()
        for future in routes.submissions:
            if not future.done():
                future.set_result(Answer(200, b"{}"))
        async with asyncio.timeout(10):
            await front.server.drain(now[0])
            await tasks.close()
        await pool.close()
    assert front.closed == front.upgraded
    assert faults == [] or any("a bug" in str(error) for _, error in faults)


def call(id_: Any, method: str = "eth_call", params: Any = None) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})


async def hear(socket: Socket) -> Any:
    """The next message, as values."""
    async with asyncio.timeout(10):
        message = await socket.receive()
    assert message.type in (WSMsgType.TEXT, WSMsgType.BINARY), message
    return json.loads(message.data)


async def hear_close(socket: Socket) -> int | None:
    """The close code; nothing else may come before it."""
    async with asyncio.timeout(10):
        message = await socket.receive()
    assert message.type in (WSMsgType.CLOSE, WSMsgType.CLOSED), message
    return socket.close_code


def code(answer: Any) -> int:
    found = answer["error"]["code"]
    assert isinstance(found, int)
    return found


HEAD = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


def masked_frame(payload: bytes, opcode: int = 1) -> bytes:
    """A client's frame, with a mask of zeros."""
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    else:
        length = struct.pack(">BH", 0xFE, size) if size < 65_536 else struct.pack(">BQ", 0xFF, size)
    return bytes([0x80 | opcode]) + length + b"\0\0\0\0" + payload


class Raw:
    """A client that does just what the test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, front: Front, behind: bytes = b"", headers: bytes = b"", head: bytes = HEAD) -> Raw:
        host, port = front.url.removeprefix("http://").rstrip("/").split(":")
        raw = cls(*await asyncio.open_connection(host, int(port)))
        raw.writer.write(head + headers + b"\r\n" + behind)
        return raw

    async def head(self) -> bytes:
        async with asyncio.timeout(10):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def frame(self) -> tuple[int, bytes]:
        async with asyncio.timeout(10):
            first, size = await self.reader.readexactly(2)
            if size == 126:
                (size,) = struct.unpack(">H", await self.reader.readexactly(2))
            return first & 15, await self.reader.readexactly(size)

    async def end(self) -> bytes:
        async with asyncio.timeout(10):
            return await self.reader.read()

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


ODD = [
    '{"jsonrpc":"2.0","id":1,"method":"x","params":[]}',
    ' {\n"method" : "x" ,"extra":{"a":[1,  2]}, "id":"\\u0061\\"", "params": [ ] }\t',
    '{"jsonrpc":"2.0","id":null,"method":"net_version"}',
    '{"id":123456789012345678901234567890,"method":"x"}',
    '[ {"id":1,"method":"x"},{"id":1,"method":"y"} , {"method":"notified"}]',
]
