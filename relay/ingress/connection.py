"""One client connection: HTTP/1.1 and 1.0, one request in work at a time, answers in order.

Job: bytes → request → route → answer → bytes. A request that comes in one read, with a head seen before, and is
answered whole makes no task, no future and no timer: `data_received` → `_call` → `answered`.
Rules: no exception leaves a callback: raised here it would hit whoever called, the upstream's connection even. A
refused request costs its connection (the rest of it may still be on its way), a failed call does not. Reading stops
when the client sends ahead, the upstream is held when the client does not read. Nothing is written once the state
says that the connection is over: uvloop raises then.
Must not know: JSON-RPC, lanes, how the upstream is reached.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, cast

from relay.errors import DRAINING, HTTP_TIMEOUT, INTERNAL
from relay.ingress import answers, limits
from relay.ingress.answers import ANSWER, BODILESS, CHUNKED, GO_ON, JOINED, Ready
from relay.ingress.faults import contained
from relay.ingress.head import HEAD_END, Plan, Refused
from relay.ingress.incoming import Complete, Continue, Incoming
from relay.ingress.limits import IDLE, WORKING, State, Watch
from relay.router import FORWARD, Answer, Asked, Forward, failure_refusal
from relay.upstream.exchange import SHUT_DOWN

if TYPE_CHECKING:
    from relay.ingress.looking import Question
    from relay.ingress.shared import Shared
    from relay.upstream.exchange import Exchange, Failure, Head


class Connection(asyncio.Protocol):
    """See the module. It is the sink of its passed-through calls."""

    __slots__ = (
        "_advancing", "_body", "_choked", "_chunked", "_closes", "_exchange", "_holding", "_incoming", "_outcomes",
        "_plan", "_recall", "_shared", "_state", "_transport", "_watch",
    )  # fmt: skip

    _transport: asyncio.Transport
    _plan: Plan
    """Of the request in work; so are the body, the exchange and the outcomes."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._recall = shared.heads.recall
        self._incoming = Incoming(shared.heads, shared.max_body_bytes)
        self._state = IDLE
        self._watch = Watch()
        self._body = b""
        self._outcomes = shared.refused
        self._exchange: Exchange | None = None
        self._chunked = False
        self._closes = False
        self._choked = False
        self._holding = False
        self._advancing = False

    def __repr__(self) -> str:
        return f"<client connection: {self._state.value}>"

    # What the transport says.

    @contained
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A new client."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(limits.HIGH_WATER, limits.LOW_WATER)
        beyond = self._shared.enter(self)
        if beyond > self._shared.max_turned_away:
            self.abort()
        elif beyond > 0:
            self._refuse(self._shared.too_many)

    def data_received(self, data: bytes) -> None:
        """The next bytes; usually one whole request."""
        try:
            if self._state is IDLE:
                head, end, body = data.partition(HEAD_END)
                plan = self._recall(head)
                if plan is None and end:
                    plan = self._shared.heads.call(head)
                if plan is not None and end and plan.length == len(body):
                    self._call(plan, body)
                    return
            self._receive(data)
        except Exception as error:  # noqa: BLE001 - reported by `broken`
            self.broken(error)

    def eof_received(self) -> bool:
        """The client sends no more: close. (Half-open, uvloop would never tell that it is gone altogether.)"""
        return False

    @contained
    def connection_lost(self, exc: Exception | None) -> None:
        """Gone. What is in work for it ends, except what belongs to a lane."""
        self._shared.leave(self)
        self._give_up_work(State.GONE)
        self._incoming.take_all()

    @contained
    def pause_writing(self) -> None:
        """The client does not read."""
        self._choked = True
        if self._exchange is not None:
            self._exchange.pause()

    @contained
    def resume_writing(self) -> None:
        """It reads again."""
        self._choked = False
        if self._exchange is not None:
            self._exchange.resume()
        if self._state is State.FLUSHING:
            self._closes = self._shared.draining
            self._rest()

    def broken(self, error: Exception) -> None:
        """A fault of ours in the middle of whatever: nothing more can be said on this connection."""
        self._shared.report("ingress.http", error)
        self.abort()

    # From bytes to a request in work.

    def _receive(self, data: bytes) -> None:
        if self._state in limits.READING:
            self._advance(data)
        elif self._state in limits.BUSY:
            self._incoming.hold(data)
            self._hold_reading()

    def _advance(self, data: bytes = b"") -> None:
        """Take requests up, one after the other, as long as each is here and answered at once."""
        if self._advancing:
            return
        self._advancing = True
        while self._state in limits.READING and self._take(self._incoming.take(data)):
            data = b""
        self._advancing = False
        self._hold_reading()

    def _take(self, next_: Complete | Refused | Continue | None) -> bool:
        match next_:
            case Complete(plan, body, head):
                if plan.upgrades and self._shared.upgrade is not None and not self._shared.draining:
                    self._hand_over(head)
                elif plan.ready is not None and not self._shared.draining:
                    self._answer_no_call(plan, plan.ready)
                else:
                    self._call(plan, body)
            case Refused():
                self._refuse(next_)
            case Continue():
                self._transport.write(GO_ON)
            case None:
                self._wait()
                return False
        return True

    def _answer_no_call(self, plan: Plan, ready: Ready | Question) -> None:
        self._plan = plan
        if isinstance(ready, Ready):
            self._give_ready(ready)
        elif self._shared.look is not None:
            self._state = WORKING
            self._outcomes = self._shared.asked
            self._shared.look(ready, self._found)

    @contained
    def _found(self, ready: Ready) -> None:
        if self._state is WORKING:
            self._outcomes.answered.n += 1
            self._give_ready(ready)

    def _wait(self) -> None:
        """The deadline runs from the first byte of a head and the first moment of a body."""
        state = State.BODY if self._incoming.plan else State.HEAD if self._incoming.waiting else State.IDLE
        if state is not self._state:
            self._enter(state)

    def _hold_reading(self) -> None:
        """Stop reading a client that sends ahead; read on when what it sent is taken up."""
        too_much = self._state in limits.BUSY and len(self._incoming.waiting) > limits.MAX_AHEAD
        if too_much and not self._holding:
            self._transport.pause_reading()
        elif self._holding and not too_much and not self._transport.is_closing():
            self._transport.resume_reading()
        self._holding = too_much

    def _call(self, plan: Plan, body: bytes) -> None:
        shared = self._shared
        if shared.draining:
            self._refuse(Refused(DRAINING.refusal(), plan.last_tail))
            return
        self._plan = plan
        self._body = body
        self._state = WORKING
        self._outcomes = shared.passed
        try:
            way = shared.routes.route(body, plan.wish)
            if way is FORWARD:
                self._exchange = shared.sender.send(body, self, lines=plan.lines, repeatable=self._repeatable)
            else:
                self._answer_ourselves(way)
        except Exception as error:  # noqa: BLE001 - reported, and the client gets an answer
            self._fail(error)

    def _answer_ourselves(self, way: Answer | Forward | asyncio.Future[Answer]) -> None:
        if isinstance(way, Answer):
            self._outcomes = self._shared.refused
            self.answered(*answers.of_router(way))
        elif not isinstance(way, Forward):
            self._outcomes = self._shared.asked if isinstance(way, Asked) else self._shared.submitted
            way.add_done_callback(self._settled)

    @contained
    def _settled(self, answer: asyncio.Future[Answer]) -> None:
        """The router is done. If the client is gone by now, nobody hears it: the ticket belongs to its lane."""
        try:
            self.answered(*answers.of_router(answer.result()))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - reported, and the client gets an answer
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """A fault of ours while the request is in work."""
        self._shared.report("ingress.http", error)
        if self._state is WORKING:
            self._outcomes.failed.n += 1
            self._give(*answers.of_failed_call(self._body, INTERNAL.refusal()))

    def _repeatable(self) -> bool:
        return self._shared.repeatable(self._body)

    # From an answer to bytes: the sink of a passed-through call, and what it shares with our own answers.

    def answered(self, head: Head, body: bytes) -> None:
        """The whole answer to the request in work."""
        try:
            if self._state is WORKING:
                self._outcomes.answered.n += 1
                self._give(head, body)
        except Exception as error:  # noqa: BLE001 - reported by `broken`
            self.broken(error)

    @contained
    def began(self, head: Head, length: int | None) -> None:
        """The head of an answer that streams. HTTP/1.0 has no chunks: without a length it ends with the connection."""
        if self._state is not WORKING:
            return
        plan = self._plan
        self._chunked = length is None and not plan.old
        self._closes = plan.closes or self._shared.closing or (length is None and plan.old)
        self._enter(State.ANSWERING)
        top = answers.top_of(head, length) + (CHUNKED if self._chunked else b"")
        self._transport.write(top + (plan.last_tail if self._closes else plan.tail))

    @contained
    def more(self, chunk: bytes) -> None:
        """The next bytes of its body."""
        if self._state is not State.ANSWERING or not chunk:
            return
        if self._chunked:
            self._transport.writelines([b"%x\r\n" % len(chunk), chunk, b"\r\n"])
        else:
            self._transport.write(chunk)

    @contained
    def ended(self) -> None:
        """Its body is complete."""
        if self._state is not State.ANSWERING:
            return
        self._outcomes.answered.n += 1
        if self._chunked:
            self._transport.write(b"0\r\n\r\n")
        self._closes = self._closes or self._shared.draining
        self._rest()

    @contained
    def failed(self, failure: Failure) -> None:
        """No (complete) answer. A client that has the head already can only be shown a cut."""
        if self._state not in limits.IN_WORK:
            return
        self._outcomes.failed.n += 1
        if self._state is State.ANSWERING:
            self._exchange = None
            self._enter(State.CLOSING)
            self._transport.abort()
        else:
            refusal = failure_refusal(failure, self._shared.upstream_timeout_s)
            self._give(*answers.of_failed_call(self._body, refusal))

    def _give(self, head: Head, body: bytes) -> None:
        plan = self._plan
        self._closes = plan.closes or self._shared.closing
        tail = plan.last_tail if self._closes else plan.tail
        if len(body) <= JOINED and head.status not in BODILESS:
            self._transport.write(ANSWER % (head.status, head.reason, head.lines, len(body), tail, body))
        else:
            self._transport.writelines(answers.in_parts(head, body, tail))
        self._rest()

    def _give_ready(self, ready: Ready) -> None:
        self._closes = self._plan.closes or self._shared.closing
        self._say(ready, self._plan.last_tail if self._closes else self._plan.tail)
        self._rest()

    def _say(self, ready: Ready, tail: bytes) -> None:
        self._transport.write(ready.top + self._shared.date + tail + ready.body)

    def _rest(self) -> None:
        """The answer is given: close, wait until it is read, or take up the next request."""
        self._exchange = None
        self._body = b""
        if self._closes:
            self._linger() if self._incoming.waiting else self._close()
        elif self._choked:
            self._enter(State.FLUSHING)
        else:
            self._state = IDLE
            self._watch.since = None
            if self._incoming.waiting:
                self._advance()

    # Ends.

    def _hand_over(self, head: bytes) -> None:
        """Give the transport, with every byte read, to the WebSocket side, once nothing of ours is unsent.

        A high-water mark of 0 pauses us at once if a byte is, and `resume_writing` brings us back here.
        """
        self._incoming.put_back(head)
        self._transport.set_write_buffer_limits(high=0)
        if self._choked:
            self._enter(State.FLUSHING)
            return
        self._transport.set_write_buffer_limits(limits.HIGH_WATER, limits.LOW_WATER)
        self._enter(State.HANDED_OVER)
        self._hold_reading()
        assert self._shared.upgrade is not None
        self._shared.upgrade(self._transport, self._incoming.take_all(), self._shared.hand_over(self))

    def _refuse(self, refused: Refused) -> None:
        """Answer a request that is not taken. The rest of it may still come, so the connection ends here."""
        self._shared.refused.answered.n += 1
        self._say(answers.ready_refusal(refused.refusal), refused.last_tail)
        self._linger()

    def _linger(self) -> None:
        """Half-close and discard what comes: closing over unread bytes resets, and the client loses the answer."""
        self._enter(State.LINGERING)
        self._incoming.take_all()
        self._hold_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def drain(self) -> None:
        """Close if idle. Otherwise what is in work is the last, and a request that is not complete yet is refused."""
        if self._state is IDLE:
            self._close()

    def give_up(self) -> None:
        """The instance ends: a passed-through call is answered by an error, or cut if its answer has begun."""
        if self._exchange is not None:
            self._exchange.abandon()
            self.failed(SHUT_DOWN)

    def abort(self) -> None:
        """Cut the connection, whatever it does."""
        self._give_up_work(State.CLOSING)
        self._transport.abort()

    def _close(self) -> None:
        self._enter(State.CLOSING)
        self._transport.close()

    def _give_up_work(self, state: State) -> None:
        """The client will never see the answer."""
        if self._state in limits.IN_WORK:
            self._outcomes.gone.n += 1
        self._enter(state)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.abandon()

    def _enter(self, state: State) -> None:
        self._state = state
        self._watch.since = None

    # Deadlines.

    @contained
    def sweep(self, now: float) -> None:
        """End what takes too long."""
        if self._watch.stuck(now, self._transport):
            self.abort()
        elif self._watch.late(now, self._shared.limits.get(self._state, math.inf)):
            plan = self._incoming.plan
            if plan is not None:
                self._refuse(Refused(HTTP_TIMEOUT.refusal(seconds=limits.BODY_S), plan.last_tail))
            elif self._shared.closing and self._state is IDLE:
                self._linger()
            else:
                self._close()
