"""The WebSocket way in: connections that the HTTP side hands over.

Job: answer the upgrade (or refuse it), keep the sessions, tick them once a second, end them in the drain.
Rules: a connection is handed over with all bytes read so far, when nothing of it is unsent; from then on aiohttp owns
it, and ``closed`` is called once when it is gone. aiohttp sees of the request what belongs to the handshake, and every
answer to it has the header lines of our other answers and does not name aiohttp. A refused upgrade is answered in JSON
and closed. Browsers send an Origin: one that `[server] cors_origins` does not name is refused, for a page may open a
WebSocket to anywhere and only the server can object.
Must not know: what the messages mean.
"""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aiohttp import web

from relay import errors, jsonrpc
from relay.ingress.cors import Cors
from relay.ingress.head import HEAD_END
from relay.ingress.websocket.frames import TICK_S, Signal
from relay.ingress.websocket.over_http import HttpCalls, Node
from relay.ingress.websocket.session import ClientSocket, House, Session
from relay.ingress.websocket.upstream import Dialer, UpstreamSocket

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aiohttp import StreamReader
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_parser import RawRequestMessage

    from relay.config import Settings
    from relay.errors import Refusal
    from relay.ingress.websocket.ways import Client, Way
    from relay.router import Routes
    from relay.tasks import TaskOwner
    from relay.telemetry.metrics import Metrics
    from relay.upstream.exchange import Sender

RESTARTS: Final = "this instance shuts down; connect again"
FLUSH_S: Final = 2.0
"""How long a client may take in the drain to read its last answers."""
HANDSHAKE_S: Final = 10.0
MAX_HEAD_BYTES: Final = 65_536
"""Above any limit of the HTTP side, which has judged the head before."""
_HANDSHAKE: Final = re.compile(
    rb"(host|connection|upgrade|origin|sec-websocket-(key|version|protocol|extensions)):", re.IGNORECASE
)


class WebSocketServer:
    """All WebSocket clients of one process. ``asks``: the relay has methods of its own."""

    def __init__(  # noqa: PLR0913 - called once, by the composition root
        self,
        settings: Settings,
        routes: Routes,
        sender: Sender,
        metrics: Metrics,
        tasks: TaskOwner,
        *,
        report: Callable[[str, BaseException], None],
        asks: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._origins = settings.server.cors_origins
        self._cors = Cors(self._origins)
        self._max_body_bytes = settings.server.max_body_bytes
        self._tasks = tasks
        self._clock = clock
        self._dialer = Dialer(settings.upstream, metrics) if settings.upstream.ws_url else None
        way = _ways(settings.upstream.timeout_s, self._dialer, Node(sender, routes), tasks, clock)
        self._house = House(routes, way, tasks, report, metrics.requests, clock, self._max_body_bytes, asks)
        self._server = _Server(self._handle, self._request, self._lost)
        self._closed: dict[web.RequestHandler, Callable[[], None]] = {}
        self._headers: dict[web.RequestHandler, dict[str, str]] = {}
        self._sessions: dict[web.RequestHandler, Session] = {}
        self._moved = Signal()
        self._retiring = False
        self._draining = False
        metrics.connections.read_from(lambda: len(self._closed), "websocket")
        self._sweeper = tasks.spawn("websocket sweep", self._sweep())

    def __repr__(self) -> str:
        return f"<WebSocketServer {'draining' if self._draining else 'open'}: {len(self._closed)} connections>"

    def upgrade(self, transport: asyncio.Transport, data: bytes, closed: Callable[[], None]) -> None:
        """Take over ``transport``; ``data``: all bytes of it that have been read, from the request line on."""
        handler = self._server()
        head, _, behind = data.partition(HEAD_END)
        self._closed[handler] = closed
        self._headers[handler] = self._cors.headers(head + HEAD_END)
        transport.set_protocol(handler)
        handler.connection_made(transport)
        handler.data_received(_handshake(head) + behind)

    def tick(self) -> None:
        """Once a second: time-outs and signs of life."""
        for session in list(self._sessions.values()):
            session.tick()

    def give_up(self) -> None:
        """The drain is over: answer what waits for the node by an error; submissions are the router's to answer."""
        for session in list(self._sessions.values()):
            session.give_up(errors.DRAINING.refusal())

    async def retire(self, until: float) -> None:
        """Another process takes the new clients: answer what comes, and close each client when nothing of its waits.
        Return when all are gone, or at ``until``, of the clock."""
        self._retiring = True
        for session in list(self._sessions.values()):
            session.shut(None, RESTARTS)
        await self._all_gone(until - self._clock())

    async def drain(self, until: float) -> None:
        """Answer all that is in work, calls until ``until`` (of the clock), submissions to their end; then close."""
        self._draining = True
        for session in list(self._sessions.values()):
            session.shut(errors.DRAINING.refusal(), RESTARTS)
        await self._all_gone(until - self._clock())
        for session in list(self._sessions.values()):
            session.give_up(errors.DRAINING.refusal())
        await asyncio.gather(*(session.answered() for session in self._sessions.values()))
        await self._all_gone(FLUSH_S)
        for session in list(self._sessions.values()):
            session.abort()
        await self._moved.until(lambda: not self._sessions)
        await self._server.shutdown(FLUSH_S)
        self._sweeper.cancel()
        if self._dialer is not None:
            await self._dialer.close()
        await self._tasks.settled()  # a frame that is being packed is not to be cancelled, see `Session.leave`

    async def _all_gone(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._moved.until(lambda: not self._sessions)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.tick()

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        request = _Upgrade(message, payload, protocol, writer, task, asyncio.get_running_loop())
        request[_HEADERS] = self._headers.get(protocol, {})
        return request

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        refused = self._refusal(request)
        if refused is not None:
            return refused
        socket = ClientSocket(self._max_body_bytes)
        try:
            await socket.prepare(request)
        except web.HTTPBadRequest as error:
            return _refused(errors.HTTP_INVALID.refusal(detail=error.text), {"Sec-WebSocket-Version": "13"})
        except ConnectionError:
            return socket
        await self._serve(request, socket)
        return socket

    async def _serve(self, request: web.BaseRequest, socket: ClientSocket) -> None:
        transport = request.transport
        if transport is None:
            return
        session = self._sessions[request.protocol] = Session(self._house, socket, transport)
        if self._draining or self._retiring:
            session.shut(errors.DRAINING.refusal() if self._draining else None, RESTARTS)
        await asyncio.wait({self._tasks.spawn("websocket client", session.serve())})

    def _refusal(self, request: web.BaseRequest) -> web.Response | None:
        origin = request.headers.get("Origin")
        if self._draining:
            return _refused(errors.DRAINING.refusal())
        if origin is not None and "*" not in self._origins and origin not in self._origins:
            return _refused(errors.ORIGIN_DENIED.refusal(origin=origin))
        return None

    def _lost(self, handler: web.RequestHandler) -> None:
        closed = self._closed.pop(handler, None)
        self._headers.pop(handler, None)
        session = self._sessions.pop(handler, None)
        if session is not None:
            session.leave()
        self._moved.fire()
        if closed is not None:
            closed()


_HEADERS: Final = web.RequestKey("headers", dict[str, str])


class _Upgrade(web.BaseRequest):
    """aiohttp's request, which has a say in the head of each answer to it."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        response.headers.pop("Server", None)
        response.headers.update(self[_HEADERS])


class _Server(web.Server):
    """aiohttp's server, which also tells when a connection is gone."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Coroutine[None, None, web.StreamResponse]],
        request: Callable[..., web.BaseRequest],
        lost: Callable[[web.RequestHandler], None],
    ) -> None:
        super().__init__(
            handler,
            request_factory=request,
            access_log=None,
            keepalive_timeout=HANDSHAKE_S,
            lingering_time=0,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
        )
        self._on_lost = lost

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """The transport of ``handler`` is gone."""
        super().connection_lost(handler, exc)
        self._on_lost(handler)


def _handshake(head: bytes) -> bytes:
    """What aiohttp has to know of the head. Of the rest it may think otherwise than the HTTP side, which has taken it,
    and would answer and log that in its own way."""
    _, *lines = head.split(b"\r\n")
    return b"\r\n".join([b"GET / HTTP/1.1", *filter(_HANDSHAKE.match, lines)]) + HEAD_END


def _ways(
    timeout_s: float, dialer: Dialer | None, node: Node, tasks: TaskOwner, clock: Callable[[], float]
) -> Callable[[Client], Way]:
    """How a client's calls reach the node: a socket of its own, or HTTP."""
    if dialer is None:
        return lambda client: HttpCalls(client, node, tasks, timeout_s=timeout_s, clock=clock)
    return lambda client: UpstreamSocket(client, dialer, tasks, clock)


def _refused(refusal: Refusal, headers: dict[str, str] | None = None) -> web.Response:
    response = web.Response(
        status=refusal.case.http,
        body=jsonrpc.refusal_text(jsonrpc.NULL, refusal),
        content_type="application/json",
        headers=headers,
    )
    response.force_close()
    return response
