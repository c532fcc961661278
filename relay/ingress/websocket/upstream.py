"""A client's own WebSocket to the node (`[upstream] ws_url`).

Job: open it for the first call, forward frames byte for byte in both directions, and know which calls the node still
owes an answer.
Rules: a node that cannot be reached fails the calls that wait for it, not the client's socket: the next call dials
anew. Once open it is never replaced, for subscriptions and filters live and die with it: when it is lost each pending
call gets an error (with "nothing was sent" only if that is so), then the client's socket is closed. A call without an
answer after ``timeout_s`` gets an error, and its late answer is dropped; one that could not even be written by then
shows that the node takes nothing, and the socket counts as lost. While the client has no room the node is not read.
No header of the client's goes to the node, redirects are not followed, and no text names a user or a path.
Must not know: lanes, submissions, how the client's socket works.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn
from urllib.parse import urlsplit

import aiohttp
from aiohttp import ClientWebSocketResponse, WSCloseCode, WSMsgType

from relay import errors
from relay.config import trusting
from relay.ingress.websocket.frames import DATA, PING_TICKS, Frame, FrameQueue, Signal, Still
from relay.ingress.websocket.pending import PendingCalls
from relay.upstream.client import MAX_COLLECTED
from relay.upstream.endpoint import reason_of
from relay.upstream.exchange import Failure, Lack

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.config import Upstream
    from relay.errors import Refusal
    from relay.ingress.websocket.pending import Pending
    from relay.ingress.websocket.ways import Client
    from relay.tasks import TaskOwner
    from relay.telemetry.metrics import Metrics

Socket = ClientWebSocketResponse[Literal[False]]

CLOSE_S: Final = 2.0
"""How long a node may take to answer our goodbye."""
LOST: Final = "the connection to the node was lost; the call may have been carried out"
_CUT_OFF: Final = Failure(Lack.CUT_OFF, LOST)


class Dialer:
    """Opens WebSockets to the node, and counts what they fail to answer. One for the process."""

    def __init__(self, settings: Upstream, metrics: Metrics) -> None:
        url = urlsplit(settings.ws_url)
        self._url = settings.ws_url
        self._headers = settings.headers
        self._connect_timeout_s = settings.connect_timeout_s
        self.timeout_s = settings.timeout_s
        self._tls = trusting(settings.ca_file) if url.scheme == "wss" else True
        self._http: aiohttp.ClientSession | None = None
        self._errors = {lack: metrics.upstream_errors.cell(lack.value) for lack in Lack}

    def count(self, lack: Lack) -> None:
        """One more call without an answer."""
        self._errors[lack].n += 1

    async def dial(self) -> Socket | Failure:
        """A new socket, or why there is none: nothing was sent."""
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                return await self._session().ws_connect(
                    self._url,
                    decode_text=False,
                    autoping=False,
                    max_msg_size=MAX_COLLECTED + 1,  # aiohttp refuses a message of just this size
                    ssl=self._tls,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
                )
        except (OSError, aiohttp.ClientError) as error:
            return Failure(Lack.UNREACHABLE, f"{self._words(error)}; check [upstream] ws_url")

    async def close(self) -> None:
        """Close what `dial` has opened."""
        if self._http is not None:
            await self._http.close()

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            strict = aiohttp.TraceConfig()
            strict.on_request_redirect.append(_refuse_redirect)
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None),
                trace_configs=[strict],
            )
        return self._http

    def _words(self, error: Exception) -> str:
        match error:
            case TimeoutError():
                return f"no WebSocket within {self._connect_timeout_s:g} s ([upstream] connect_timeout_s)"
            case aiohttp.WSServerHandshakeError(status=status):
                return f"no WebSocket there (HTTP {status})"
            case aiohttp.ClientConnectorCertificateError():
                return "its certificate is refused; an own CA goes into [upstream] ca_file"
            case aiohttp.ClientConnectorError(os_error=reason):
                return f"no connection ({reason_of(reason)})"
            case _:
                return f"no WebSocket ({error})"


class UpstreamSocket:
    """One client's way to the node."""

    def __init__(self, client: Client, dialer: Dialer, tasks: TaskOwner, clock: Callable[[], float]) -> None:
        self._client = client
        self._dialer = dialer
        self._tasks = tasks
        self._clock = clock
        self._calls = PendingCalls()
        self._out = FrameQueue("upstream socket writes", self._write, self._lose, Signal(), tasks)
        self._socket: Socket | None = None
        self._reader: asyncio.Task[None] | None = None
        self._over = False
        self._heard = 0
        self._listening = True
        self._silence = Still()

    def __repr__(self) -> str:
        state = "over" if self._over else "open" if self._socket else "not open"
        return f"<UpstreamSocket {state}: {len(self._calls)} pending>"

    def forward(self, frame: Frame, pending: Pending) -> None:
        """Send the client's message, after all that came before it."""
        self._calls.add(pending)
        self._out.put(frame._replace(pending=pending))

    def tick(self) -> None:
        """Once a second: answer what has waited too long, ping a silent node, leave a dead one."""
        overdue = self._calls.overdue(self._clock() - self._dialer.timeout_s)
        for pending in overdue:
            self._refuse_late(pending)
        if any(not pending.sent for pending in overdue):
            self._lose("it takes no data")
        if self._socket is None or self._over:
            return
        silent = self._silence.tick(self._heard if self._listening else object())
        if silent >= 2 * PING_TICKS:
            self._lose("it is silent")
        elif silent == PING_TICKS:
            self._out.put(Frame(WSMsgType.PING, b""))

    def give_up(self, refusal: Refusal) -> None:
        """Answer all that waits by an error."""
        self._refuse_all(refusal)
        self.close()

    def close(self) -> None:
        """Hang up."""
        if self._over:
            return
        self._over = True
        self._calls.clear()
        self._out.close()
        if self._socket is not None:
            self._tasks.start("upstream socket close", self._hang_up(self._socket))

    async def _write(self, frame: Frame) -> None:
        socket = self._socket or await self._open()
        if socket is None:
            return
        if frame.pending is not None:
            frame.pending.sent = True
        await socket.send_frame(frame.data, frame.kind)
        if frame.pending is not None and not frame.pending.ids:
            self._calls.done(frame.pending)
            self._client.deliver(None, frame.pending)

    async def _open(self) -> Socket | None:
        socket = await self._dialer.dial()
        if isinstance(socket, Failure):
            self._out.clear()
            self._refuse_all(errors.UPSTREAM_UNREACHABLE.refusal(detail=socket.detail))
            return None
        self._socket = socket
        self._reader = self._tasks.spawn("upstream socket reads", self._read(socket))
        return socket

    async def _read(self, socket: Socket) -> None:
        async for kind, data, _ in socket:
            self._heard += 1
            if kind in DATA:
                self._take(Frame(kind, data))
            elif kind is WSMsgType.PING:
                self._out.put(Frame(WSMsgType.PONG, data))
            elif kind is WSMsgType.ERROR:
                if socket.close_code == WSCloseCode.MESSAGE_TOO_BIG:
                    self._lose_too_large()
                break
            self._listening = False
            await self._client.room()
            self._listening = True
        self._lose(f"it closed it, code {socket.close_code}")

    def _take(self, frame: Frame) -> None:
        if self._over:
            return
        pending = self._calls.answered_by(frame.data)
        if pending is None or not pending.late:
            self._client.deliver(frame, pending)

    def _lose(self, detail: str, sent: Failure = _CUT_OFF) -> None:
        if self._over:
            return
        unreachable = errors.UPSTREAM_UNREACHABLE.refusal(detail=f"the connection to the node was lost ({detail})")
        self._refuse_all(unreachable, sent)
        self.close()
        self._client.shut(unreachable, "the connection to the node was lost")

    def _lose_too_large(self) -> None:
        """aiohttp reads nothing behind a message above the bound. Whose answer it was is not known: each call that was
        sent hears of it."""
        detail = f"the node's answer is larger than {MAX_COLLECTED} bytes"
        unusable = f"{detail}, which ended the connection to it; the call may have been carried out"
        self._lose(detail, Failure(Lack.UNUSABLE, unusable))

    def _refuse_all(self, unsent: Refusal, sent: Failure = _CUT_OFF) -> None:
        unusable = errors.UPSTREAM_UNUSABLE.refusal(detail=sent.detail)
        for pending in self._calls.clear():
            self._dialer.count(sent.lack if pending.sent else Lack.UNREACHABLE)
            self._client.refuse(pending, unusable if pending.sent else unsent)

    def _refuse_late(self, pending: Pending) -> None:
        self._dialer.count(Lack.TIMED_OUT)
        if pending.sent:
            self._client.refuse(pending, errors.UPSTREAM_TIMEOUT.refusal(seconds=self._dialer.timeout_s))
        else:
            self._client.refuse(pending, errors.UPSTREAM_UNREACHABLE.refusal(detail="the node takes no data"))

    async def _hang_up(self, socket: Socket) -> None:
        if self._reader is not None:
            self._reader.cancel()
        await socket.close()


async def _refuse_redirect(*_: Any) -> NoReturn:
    """A configured header is a secret of that one address."""
    raise aiohttp.ClientConnectionError("it redirects to another address")
