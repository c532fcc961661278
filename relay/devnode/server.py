"""The development node's sockets: HTTP and WebSocket on one port.

Job: bodies in, replies out, and the ways in which a scripted reply goes wrong on the wire.
Rules: a call goes on when its caller hangs up, as at a real node. Any path is the endpoint.
Must not know: what a call means.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from aiohttp import WSCloseCode, WSMsgType, web

from relay.devnode.calls import Connection, Reply, answer
from relay.devnode.faults import Page, Reset, Status, Trickle, Truncate
from relay.tasks import TaskOwner

if TYPE_CHECKING:
    from relay.devnode.node import DevNode

MAX_BODY: Final = 64 << 20
BACKLOG: Final = 4096
JSON: Final = "application/json"
CLEANUP_S: Final = 5.0
NO_LINGER: Final = struct.pack("ii", 1, 0)
"""SO_LINGER on, 0 s: closing such a socket resets the connection."""


class Server:
    """Listens from `start` to `close`; a second `start` takes the same port."""

    def __init__(self, node: DevNode, host: str, port: int) -> None:
        self._node = node
        self._host = host
        self._port = port
        self._tasks = TaskOwner("devnode", _report)
        self._web: web.Server | None = None
        self._runner: web.ServerRunner | None = None

    def __repr__(self) -> str:
        return f"<devnode server {self.url('http') or 'not listening'}>"

    def url(self, scheme: str) -> str:
        """``SCHEME://HOST:PORT``; empty before the port is known."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self._port}" if self._port else ""

    async def start(self) -> None:
        """Listen. Raises OSError if the address is taken."""
        self._web = web.Server(self._serve, request_factory=_request, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(self._web, shutdown_timeout=CLEANUP_S)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port, backlog=BACKLOG).start()
        except OSError:
            await self.close()
            raise
        self._port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Break every connection and drop every call."""
        if self._runner is None or self._web is None:
            return
        for site in tuple(self._runner.sites):
            await site.stop()
        for protocol in self._web.connections:
            if protocol.transport:
                protocol.transport.abort()
        await self._tasks.close()
        await self._runner.cleanup()
        self._runner = self._web = None

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._websocket(request)
        if request.method != "POST":
            return web.Response(status=405, text="send calls with POST")
        body = await request.read()
        connection = Connection(_peer(request))
        call = self._tasks.spawn("call", answer(self._node, body, connection))
        try:
            reply = await asyncio.shield(call)
        except asyncio.CancelledError:
            connection.lost()
            raise
        return await _written(request, reply)

    async def _websocket(self, request: web.BaseRequest) -> web.StreamResponse:
        ws = web.WebSocketResponse(max_msg_size=MAX_BODY)
        await ws.prepare(request)

        def notify(text: bytes) -> None:
            _ = self._tasks.spawn("notify", _say(ws, text))

        connection = Connection(_peer(request), notify)
        try:
            async for message in ws:
                if message.type in {WSMsgType.TEXT, WSMsgType.BINARY}:
                    body = message.data.encode() if isinstance(message.data, str) else message.data
                    _ = self._tasks.spawn("call", self._on_message(request, ws, connection, body))
        finally:
            connection.lost()
            self._node.watchers.forget(notify)
        return ws

    async def _on_message(
        self, request: web.BaseRequest, ws: web.WebSocketResponse, connection: Connection, body: bytes
    ) -> None:
        reply = await answer(self._node, body, connection)
        match reply.manner:
            case Reset():
                _break(request, reset=True)
            case Page():
                await ws.close(code=WSCloseCode.TRY_AGAIN_LATER)
            case Truncate(keep=keep):
                await _say(ws, reply.body[:keep])
            case _ if reply.body:
                await _say(ws, reply.body)
            case _:
                pass


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    """aiohttp's own request, with our limit instead of 1 MiB."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)


async def _written(request: web.BaseRequest, reply: Reply) -> web.StreamResponse:
    match reply.manner:
        case Page(status=status, body=body):
            return web.Response(status=status, text=body, content_type="text/html")
        case Status(status=status):
            return web.Response(status=status, body=reply.body, content_type=JSON)
        case Truncate(keep=keep):
            return await _truncated(request, reply.body, keep)
        case Trickle() as trickle:
            return await _trickled(request, reply.body, trickle)
        case Reset():
            _break(request, reset=True)
        case _:
            pass
    return web.Response(body=reply.body, content_type=JSON)


async def _truncated(request: web.BaseRequest, body: bytes, keep: int) -> web.StreamResponse:
    response = await _begun(request, len(body))
    await response.write(body[:keep])
    _break(request, reset=False)
    return response


async def _trickled(request: web.BaseRequest, body: bytes, trickle: Trickle) -> web.StreamResponse:
    response = await _begun(request, None if trickle.chunked else len(body))
    for start in range(0, len(body), trickle.size):
        await response.write(body[start : start + trickle.size])
        if trickle.ms:
            await asyncio.sleep(trickle.ms / 1000)
    return response


async def _begun(request: web.BaseRequest, length: int | None) -> web.StreamResponse:
    response = web.StreamResponse()
    response.content_type = JSON
    response.content_length = length
    if length is None:
        response.enable_chunked_encoding()
    await response.prepare(request)
    return response


def _break(request: web.BaseRequest, *, reset: bool) -> None:
    """End the connection: at once and with a reset, or after what was written."""
    transport = request.transport
    if transport is None:
        return
    if not reset:
        transport.close()
        return
    if (sock := transport.get_extra_info("socket")) is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    transport.abort()


async def _say(ws: web.WebSocketResponse, text: bytes) -> None:
    with suppress(ConnectionError):
        await ws.send_str(text.decode())


def _peer(request: web.BaseRequest) -> str:
    peer = request.transport.get_extra_info("peername") if request.transport else None
    return sys.intern(f"{peer[0]}:{peer[1]}") if peer else "gone"  # one text for all entries of a connection


def _report(task: str, error: BaseException) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": f"{task} failed", "exception": error})
