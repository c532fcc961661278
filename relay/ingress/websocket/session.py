"""One WebSocket client, from the handshake to the close.

Job: take its messages in order, give each its answer, and end so that nobody waits for ever.
Rules: a message is routed, and its tickets are taken, before the next one is read. What is in work and what waits for
the client is bounded: beyond the bounds neither the client nor its node is read. The relay never closes the socket
while a call waits: it answers first (what comes meanwhile is refused), also when the client broke the protocol. A
client that is gone takes nothing with it but its own way to the node; its submissions go on. A message must be
complete, and something of what waits must be taken, within a minute.
Must not know: the node, lanes, who else is connected.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from aiohttp import WSCloseCode, WSMsgType, web

from relay import errors
from relay.ingress.websocket.frames import DATA, PING_TICKS, STALL_TICKS, Frame, FrameQueue, Signal, Still
from relay.ingress.websocket.news import News
from relay.ingress.websocket.pending import Pending, read_ids_of_call
from relay.router import Answer, Asked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relay.errors import Refusal
    from relay.ingress.websocket.ways import Client, Way
    from relay.router import Routes
    from relay.tasks import TaskOwner
    from relay.telemetry.metrics import Counter

MAX_IN_WORK: Final = 1000
"""Messages of one client in work at once."""
MAX_BODIES: Final = 2
"""So many times ``max_body_bytes`` may be in work for one client."""
MAX_WAITING_BYTES: Final = 1024 * 1024
"""Beyond this much waiting for the client, nothing further is read for it."""
CLOSE_S: Final = 2.0
"""How long a client may take to answer our goodbye, or to read why it is thrown out."""

_BREACHES: Final = (
    WSCloseCode.PROTOCOL_ERROR, WSCloseCode.UNSUPPORTED_DATA, WSCloseCode.INVALID_TEXT, WSCloseCode.MESSAGE_TOO_BIG,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class House:
    """What all sessions share."""

    routes: Routes
    way: Callable[[Client], Way]
    tasks: TaskOwner
    report: Callable[[str, BaseException], None]
    requests: Counter
    clock: Callable[[], float]
    max_body_bytes: int
    asks: bool = False
    """The relay has methods of its own."""


class ClientSocket(web.WebSocketResponse[Literal[False]]):
    """aiohttp's socket, which closes by itself on a breach of protocol: with the last word given to the session."""

    def __init__(self, max_body_bytes: int) -> None:
        super().__init__(autoping=False, decode_text=False, max_msg_size=max_body_bytes + 1, timeout=CLOSE_S)
        self.on_breach: Callable[[int], Awaitable[None]] | None = None

    async def close(self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True) -> bool:
        """Close; see the base class."""
        if code in _BREACHES and self.on_breach is not None and not self.closed:
            await self.on_breach(code)
        return await super().close(code=code, message=message, drain=drain)


class Session:
    """One client."""

    def __init__(self, house: House, socket: ClientSocket, transport: asyncio.Transport) -> None:
        self._house = house
        self._socket = socket
        self._transport = transport
        self._moved = Signal()
        self._out = FrameQueue("websocket writes", self._write, self._broken, self._moved, house.tasks)
        self._way = house.way(self)
        self._news = News(self.deliver, self.room, self.abort, house.tasks) if house.asks else None
        self._work: set[Pending] = set()
        self._bytes = 0
        self._closing: Refusal | None = None
        self._closer: asyncio.Task[None] | None = None
        self._gone = False
        self._heard = 0
        self._listening = True
        self._silence = Still()
        self._stall = Still()
        socket.on_breach = self._breached

    def __repr__(self) -> str:
        state = "gone" if self._gone else "closing" if self._closer else "open"
        return f"<Session {state}: {len(self._work)} in work, {self._out.size} bytes wait>"

    async def serve(self) -> None:
        """Until the socket is closed, by either side."""
        try:
            await self._read()
            if self._closer is not None:
                await asyncio.wait({self._closer})
        finally:
            self.leave()

    def tick(self) -> None:
        """Once a second: ping a silent client, leave a dead one."""
        self._way.tick()
        unsent = self._transport.get_write_buffer_size()
        stalled = self._stall.tick((unsent, self._out.written) if unsent else object())
        silent = self._silence.tick(self._heard if self._listening else object())
        if stalled >= STALL_TICKS or silent >= 2 * PING_TICKS:
            self.abort()
        elif silent == PING_TICKS:
            self._out.put(Frame(WSMsgType.PING, b""))

    def shut(self, refusal: Refusal | None, reason: str) -> None:
        """Close once all is answered; what comes until then is answered by ``refusal``, None: as ever.

        ``reason``: 123 bytes.
        """
        self._closing = self._closing or refusal
        if self._news is not None:
            self._news.close()
        if self._closer is None and not self._gone:
            self._closer = self._house.tasks.spawn("websocket close", self._close(reason))

    def give_up(self, refusal: Refusal) -> None:
        """Answer what waits for the node by an error; only submissions go on."""
        self._way.give_up(refusal)

    async def settled(self) -> None:
        """Wait until nothing waits for an answer and every answer is written."""
        await self._moved.until(lambda: self._gone or (not self._work and self._out.empty))

    async def answered(self) -> None:
        """Wait until nothing waits for an answer."""
        await self._moved.until(lambda: self._gone or not self._work)

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()

    def leave(self) -> None:
        """The connection is gone, or as good as gone."""
        if self._gone:
            return
        self._gone = True
        self._way.close()
        if self._news is not None:
            self._news.close()
        # Not `close`: aiohttp packs a large frame in a task of its own, whose failure nobody would hear of if the one
        # that waits for it were cancelled. Without a connection the writing ends by itself.
        self._out.clear()
        for pending in self._work:
            self._count(pending.kind, "gone")
        self._work.clear()
        self._moved.fire()

    def deliver(self, frame: Frame | None, pending: Pending | None = None) -> None:
        """A message for the client; ``pending``: what it answers."""
        if frame is not None and not self._gone:
            self._out.put(frame)
        if pending is not None:
            self._end(pending, "answered")

    def refuse(self, pending: Pending, refusal: Refusal) -> None:
        """``pending`` is answered by an error of ours."""
        self.deliver(_text(pending.refused(refusal)))
        self._end(pending, "failed")

    async def room(self) -> None:
        """Wait until the client takes more."""
        await self._moved.until(self._takes_more)

    async def _read(self) -> None:
        async for kind, data, _ in self._socket:
            self._heard += 1
            if kind in DATA:
                if (breach := self._breach(kind, data)) is not None:
                    await self._socket.close(code=breach)
                    return
                self._take(Frame(kind, data))
            elif kind is WSMsgType.PING:
                self._out.put(Frame(WSMsgType.PONG, data))
            elif kind is WSMsgType.ERROR:
                return
            self._listening = False
            await self._moved.until(self._may_read)
            self._listening = True

    def _breach(self, kind: WSMsgType, data: bytes) -> WSCloseCode | None:
        """What aiohttp lets through: one byte too many if it was compressed, and text that it does not decode."""
        if len(data) > self._house.max_body_bytes:
            return WSCloseCode.MESSAGE_TOO_BIG
        return None if kind is not WSMsgType.TEXT or _is_utf8(data) else WSCloseCode.INVALID_TEXT

    def _take(self, frame: Frame) -> None:
        house = self._house
        ids, batch = read_ids_of_call(frame.data)
        pending = Pending("refused", len(frame.data), house.clock(), ids, batch)
        self._work.add(pending)
        self._bytes += pending.size
        if self._closing is not None:
            self.deliver(_text(pending.refused(self._closing)), pending)
            return
        try:
            self._route(frame, pending)
        except Exception as error:  # noqa: BLE001 - reported, and the client gets an answer
            self._fault(pending, error)

    def _route(self, frame: Frame, pending: Pending) -> None:
        if self._news is not None:
            pending.hearing = self._news.hearing(frame.data)
        decision = self._house.routes.route(frame.data, listener=pending.hearing)
        if isinstance(decision, Answer):
            self.deliver(_text(decision.body), pending)
        elif isinstance(decision, asyncio.Future):
            pending.kind = "ask" if isinstance(decision, Asked) else "submission"
            decision.add_done_callback(partial(self._resolved, pending))
        else:
            pending.kind = "pass"
            self._way.forward(frame, pending)

    def _end(self, pending: Pending, outcome: str) -> None:
        if pending in self._work:
            self._work.remove(pending)
            self._bytes -= pending.size
            self._count(pending.kind, outcome)
            self._moved.fire()
            if pending.hearing is not None:
                pending.hearing.open()

    def _resolved(self, pending: Pending, future: asyncio.Future[Answer]) -> None:
        if self._gone:
            return  # the ticket belongs to the lane
        try:
            self.deliver(_text(future.result().body), pending)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - reported, and the client gets an answer
            self._fault(pending, error)

    def _fault(self, pending: Pending, error: BaseException) -> None:
        self._house.report("ingress.websocket", error)
        self.refuse(pending, errors.INTERNAL.refusal())

    def _count(self, kind: str, outcome: str) -> None:
        self._house.requests.cell("websocket", kind, outcome).n += 1

    def _takes_more(self) -> bool:
        return self._gone or self._out.size <= MAX_WAITING_BYTES

    def _may_read(self) -> bool:
        if self._gone:
            return True
        house = self._house
        return (
            len(self._work) < MAX_IN_WORK
            and self._bytes <= MAX_BODIES * house.max_body_bytes
            and self._out.size <= MAX_WAITING_BYTES
        )

    async def _write(self, frame: Frame) -> None:
        await self._socket.send_frame(frame.data, frame.kind)

    def _broken(self, _: str) -> None:
        self.leave()

    async def _close(self, reason: str) -> None:
        await self.settled()
        await self._socket.close(code=WSCloseCode.SERVICE_RESTART, message=reason.encode())

    async def _breached(self, code: int) -> None:
        """The client gets what it waits for, then time to read why it is thrown out: closing on top of unread bytes
        makes the kernel take both back."""
        await self.settled()
        with suppress(ConnectionError, TimeoutError):
            await self._socket.send_frame(code.to_bytes(2, "big"), WSMsgType.CLOSE)
            async with asyncio.timeout(CLOSE_S):
                await self._moved.until(lambda: self._gone)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _text(text: bytes) -> Frame | None:
    return Frame(WSMsgType.TEXT, text) if text else None
