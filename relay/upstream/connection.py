"""One connection to the node: a request goes out, its answer comes in.

Job: HTTP/1.1 on the wire, the client's part of it, one exchange at a time.
Rules: what the next bytes mean is the state, so `_read` is the state. Pool and request are told that an exchange is
over before its sink hears the end, so that nothing a sink does finds half a state. Only a connection that is clean
(answer complete and nothing behind it, request wholly written) is used again.
Must not know: how many connections there are, who waits, what a body holds.

Source: RFC 9112. Where uvloop and asyncio differ, the code holds for both: nothing is written once the transport is
closing (uvloop raises, asyncio drops silently).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, cast

from relay.upstream import head
from relay.upstream.chunks import ChunkedBody
from relay.upstream.exchange import Failure, Lack

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.upstream.endpoint import Endpoint
    from relay.upstream.request import Request

JOINED_BYTES: Final = 65_536
"""Up to here head and body go out as one piece; copying more costs more than a second piece."""


REFUSALS: Final = 400
"""Statuses from here on (RFC 9110, 15.5 and 15.6) may be said before the request was read."""


class Home(Protocol):
    """What a connection needs of the pool."""

    endpoint: Endpoint

    def now(self) -> float:
        """Monotonic seconds."""

    def made(self, connection: Connection) -> None:
        """The connection stands."""

    def freed(self, connection: Connection) -> None:
        """It may carry another request."""

    def lost(self, connection: Connection, again: Request | None) -> None:
        """It is gone; ``again`` died with it and may be sent once more."""


class Connection(asyncio.Protocol):
    """See the module. Made by the pool, used again after each `Home.freed`."""

    __slots__ = (
        "_body", "_buffer", "_expires", "_heard", "_home", "_missing", "_plan", "_read", "_request", "_transport",
        "fresh",
    )  # fmt: skip

    def __init__(self, home: Home) -> None:
        self._home = home
        self._transport: asyncio.Transport
        self._request: Request | None = None
        self._read: Callable[[Connection, bytes], None] = Connection._read_nothing
        self._buffer = b""
        self._heard = False
        self.fresh = False
        """Its present request is the first, and did not find it idle."""
        self._plan: head.Plan
        self._missing = 0
        self._body: ChunkedBody
        self._expires = home.now() + head.IDLE_S

    # what the pool asks and says

    def is_usable(self) -> bool:
        """Idle, and as far as anyone knows alive."""
        return self._read is Connection._read_nothing and not self._transport.is_closing()

    def post(self, request: Request) -> None:
        """Write ``request``; only if the connection `is_usable`."""
        self._request = request
        request.on = self
        request.sent = True
        self._read = Connection._read_head
        self._heard = False
        start, body = self._home.endpoint.heads[request.lines], request.body
        if len(body) <= JOINED_BYTES:
            self._transport.write(b"%b%d\r\n\r\n%b" % (start, len(body), body))
        else:
            self._transport.writelines((b"%b%d\r\n\r\n" % (start, len(body)), body))
        if request.paused:
            self.pause()

    def sweep(self, now: float) -> None:
        """Look at the clock: is the answer late, has it been idle for too long?"""
        request = self._request
        if request is None:
            if now >= self._expires and self._read is Connection._read_nothing:
                self._close()
        elif now >= request.deadline and not request.paused:
            self.drop(Failure(Lack.TIMED_OUT, f"{self._progress()} within {request.timeout_s:g} s"))

    # what a request says

    def pause(self) -> None:
        """Stop reading; what the node sends stays in the kernel, and the node is held up in its turn."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        self._transport.resume_reading()

    def drop(self, failure: Failure | None) -> None:
        """End the connection at once and its request with ``failure``; None: without a word to the sink."""
        request, self._request = self._request, None
        self._read = Connection._read_no_more
        self._transport.abort()
        if request is None:
            return
        if failure is None:
            request.finish()
        else:
            request.fail(failure)

    # what the event loop says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected, TLS included."""
        self._transport = cast("asyncio.Transport", transport)
        self._home.made(self)

    def data_received(self, data: bytes) -> None:
        """The next bytes."""
        self._read(self, data)

    def eof_received(self) -> None:
        """The node sends no more, and the event loop will close. Only a body without a length ends well this way."""
        if self._read is Connection._read_until_close:
            self._release(0).ended()
        if self._request is None:
            self._read = Connection._read_no_more

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone. If it had been idle before and brought not one byte, the node may never have seen the request."""
        request, self._request = self._request, None
        progress = self._progress()
        stale = not self.fresh and not self._heard
        self._read = Connection._read_no_more
        again = request if request is not None and stale and request.may_be_repeated() else None
        self._home.lost(self, again)
        if request is not None and request is not again:
            ending = f"connection lost ({exc})" if exc is not None else "connection closed by the node"
            request.fail(Failure(Lack.CUT_OFF, f"{ending}, {progress}"))

    # states

    def _read_nothing(self, data: bytes) -> None:
        """Idle: nobody asked for these bytes."""
        self.drop(None)

    def _read_no_more(self, data: bytes) -> None:
        """Closing."""

    def _read_head(self, data: bytes) -> None:
        self._heard = True
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        text, end, rest = data.partition(head.END)
        while end:
            plan = head.plans[text]
            if isinstance(plan, str):
                self._unusable(plan)
                return
            if plan.head.status >= 200:  # noqa: PLR2004 - no interim answer
                self._plan = plan
                if len(rest) == plan.length:
                    self._release(0).answered(plan.head, rest)
                else:
                    self._begin(plan, rest)
                return
            text, end, rest = rest.partition(head.END)
        if (flaw := head.flaw(text)) is not None:
            self._unusable(flaw)
        else:
            self._buffer = text

    def _read_rest(self, data: bytes) -> None:
        """A body with a length, of which `_missing` bytes have not come."""
        assert self._request is not None
        self._missing -= len(data)
        if self._missing > 0:
            self._request.progress()
            self._request.more(data)
            return
        request = self._release(-self._missing)
        request.more(data if self._missing == 0 else data[: self._missing])
        request.ended()

    def _read_chunks(self, data: bytes) -> None:
        assert self._request is not None
        part = self._body.feed(data)
        if self._body.flaw is not None:
            self._unusable(f"its body is malformed: {self._body.flaw}")
        elif self._body.complete:
            request = self._release(self._body.followed)
            if part:
                request.more(part)
            request.ended()
        else:
            self._request.progress()
            if part:
                self._request.more(part)

    def _read_until_close(self, data: bytes) -> None:
        assert self._request is not None
        self._request.progress()
        self._request.more(data)

    # transitions

    def _begin(self, plan: head.Plan, data: bytes) -> None:
        """The head is there; ``data`` is what came with it of the body, not exactly all of it."""
        if plan.chunked:
            self._begin_chunks(data)
        elif plan.length is None:
            self._stream(Connection._read_until_close, data)
        elif len(data) > plan.length:
            self._release(len(data) - plan.length).answered(plan.head, data[: plan.length])
        else:
            self._missing = plan.length - len(data)
            self._stream(Connection._read_rest, data)

    def _begin_chunks(self, data: bytes) -> None:
        self._body = ChunkedBody()
        part = self._body.feed(data)
        if self._body.flaw is not None:
            self._unusable(f"its body is malformed: {self._body.flaw}")
        elif self._body.complete:
            self._release(self._body.followed).answered(self._plan.head, part)
        else:
            self._stream(Connection._read_chunks, part)

    def _stream(self, read: Callable[[Connection, bytes], None], part: bytes) -> None:
        """The rest will come. The sink may pause or abandon the request in each of its methods."""
        request = self._request
        assert request is not None
        self._read = read
        request.progress()
        request.began(self._plan.head, self._plan.length)
        if part:
            request.more(part)

    def _release(self, surplus: int) -> Request:
        """The exchange is over: take leave of the request, keep the connection if it can be used again.

        ``surplus``: what came behind the answer, whose it is nobody knows.
        """
        request, keep_s = self._request, self._plan.keep_s
        assert request is not None
        self._request = None
        if request.paused:
            self.resume()
        request.finish()
        if keep_s and not surplus and not self._transport.get_write_buffer_size() and not self._is_unread(request):
            self._expires = self._home.now() + keep_s
            self._read = Connection._read_nothing
            self._home.freed(self)
        else:
            self._close()
        return request

    def _is_unread(self, request: Request) -> bool:
        """May some of the body lie in the kernel still? A node that refuses a large one need not have read it."""
        return self._plan.head.status >= REFUSALS and len(request.body) > JOINED_BYTES

    def _close(self) -> None:
        """No more use for it. A request that is not wholly written has been answered already: it is cut."""
        self._read = Connection._read_no_more
        if self._transport.get_write_buffer_size():
            self._transport.abort()
        else:
            self._transport.close()

    def _unusable(self, flaw: str) -> None:
        self.drop(Failure(Lack.UNUSABLE, flaw))

    def _progress(self) -> str:
        if self._read is Connection._read_head:
            return "no complete head of an answer" if self._heard else "no answer"
        return "the answer is not complete"
