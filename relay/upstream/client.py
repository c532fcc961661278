"""JSON-RPC to the node: submissions, reads, and the calls of a split batch.

Job: put a request on the pool, wait for its answer, and say what it proves.
Rules: a submission's request is never repeated here, and never abandoned. Only "not sent" is proof that the node does
not have the bytes; whatever cannot be read as the answer to this very request proves nothing.
Must not know: lanes, verdicts, clients.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import zlib
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from relay import jsonrpc
from relay.upstream.exchange import SHUT_DOWN, Failure, Lack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relay.telemetry.metrics import Metrics
    from relay.upstream.exchange import Exchange, Head, Sender

MAX_COLLECTED: Final = 64 * 1024 * 1024
"""Most bytes of an answer that are kept in memory (submissions, reads, split batches; pass-through streams)."""


_GZIP_OR_ZLIB: Final = 32
"""zlib finds out by the header which of the two it is."""


@dataclass(frozen=True, slots=True)
class NotSent:
    """Not a byte left: the node cannot have it."""

    detail: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Bytes left, and no answer that proves anything came back."""

    detail: str


class Answered(msgspec.Struct, frozen=True):
    """The node answered this request: a result, or an error."""

    reply: jsonrpc.Reply


Attempt = NotSent | Lost | Answered


class BatchAnswer(msgspec.Struct, frozen=True):
    """What came of a batch of submissions: an attempt for each call, in their order.

    ``status``: of HTTP, None without an answer. ``shared``: an error for the whole batch, under no call's id.
    """

    attempts: list[Attempt]
    status: int | None = None
    shared: object = None


class ReadBatch(msgspec.Struct, frozen=True):
    """What came of a batch of reads: a result for each call, in their order; `Unread` where there is none.

    ``refused``: there was an answer, and it holds none to any call of the batch; alone they may be answered.
    """

    results: list[Any]
    refused: bool


class Whole(msgspec.Struct, frozen=True):
    """A complete HTTP answer."""

    status: int
    body: bytes


class Collector:
    """A sink for whoever can await: one future for the whole answer."""

    __slots__ = ("_head", "_parts", "_size", "done", "exchange")

    def __init__(self, done: asyncio.Future[Whole | Failure]) -> None:
        self.done = done
        self.exchange: Exchange | None = None
        self._head: Head | None = None
        self._parts: list[bytes] = []
        self._size = 0

    def answered(self, head: Head, body: bytes) -> None:
        """The whole answer at once."""
        self._finish(Whole(head.status, _plain(head, body)))

    def began(self, head: Head, length: int | None) -> None:
        """The head; the body follows."""
        self._head = head
        if length is not None and length > MAX_COLLECTED:
            self._overflow()

    def more(self, chunk: bytes) -> None:
        """The next bytes."""
        if self.done.done():
            return
        self._size += len(chunk)
        if self._size > MAX_COLLECTED:
            self._overflow()
        else:
            self._parts.append(chunk)

    def ended(self) -> None:
        """The body is complete."""
        assert self._head is not None
        self._finish(Whole(self._head.status, _plain(self._head, b"".join(self._parts))))

    def failed(self, failure: Failure) -> None:
        """There is no answer."""
        self._finish(failure)

    def give_up(self, failure: Failure) -> None:
        """Nobody waits any longer: abandon the exchange, and say ``failure``."""
        self._parts.clear()
        if self.exchange is not None:
            self.exchange.abandon()
        self._finish(failure)

    def _overflow(self) -> None:
        self.give_up(Failure(Lack.UNUSABLE, f"the answer is larger than {MAX_COLLECTED} bytes"))

    def _finish(self, end: Whole | Failure) -> None:
        self.exchange = None  # the exchange knows us: a cycle would wait for the collector
        if not self.done.done():
            self.done.set_result(end)


def _plain(head: Head, body: bytes) -> bytes:
    """``body`` as text. Some gateways compress unasked; what cannot be unpacked stays as it is."""
    if b"content-encoding" not in head.lines.lower():
        return body
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | _GZIP_OR_ZLIB).decompress(body, MAX_COLLECTED)
    except zlib.error:
        return body


class UpstreamClient:
    """Calls the node. One for the process."""

    def __init__(
        self, sender: Sender, metrics: Metrics, timeout_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sender = sender
        self._timeout_s = timeout_s
        self._clock = clock
        self._numbers = itertools.count(1)
        self._waiting: set[Collector] = set()
        """What may be given up: reads and split batches, no submissions."""
        self._times = {
            True: metrics.upstream_time.cell("submission"),
            False: metrics.upstream_time.cell("read"),
        }

    async def post(
        self,
        body: bytes,
        timeout_s: float | None = None,
        *,
        submission: bool = False,
        gate: Callable[[], bool] | None = None,
    ) -> Whole | Failure:
        """Send ``body`` and wait for the whole answer, at most ``timeout_s`` (None: the configured bound)."""
        return await self._exchange(body, timeout_s, keep=submission, reserved=submission, gate=gate)

    async def _exchange(
        self,
        body: bytes,
        timeout_s: float | None,
        *,
        keep: bool = False,
        reserved: bool = True,
        repeatable: Callable[[], bool] | None = None,
        gate: Callable[[], bool] | None = None,
    ) -> Whole | Failure:
        """``keep``: not to be abandoned. ``reserved``: may use the connections kept for the lanes."""
        collector = Collector(asyncio.get_running_loop().create_future())
        began = self._clock()
        bound = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        exchange = self._sender.send(
            body, collector, timeout_s=bound, submission=reserved, repeatable=repeatable, before_write=gate
        )
        if not collector.done.done():
            collector.exchange = exchange
        if not keep:
            self._waiting.add(collector)
        try:
            end = await collector.done
        except asyncio.CancelledError:
            if not keep:
                exchange.abandon()
            raise
        finally:
            self._waiting.discard(collector)
        self._times[keep].observe(self._clock() - began)
        return end

    def give_up(self) -> None:
        """The instance ends: whoever waits for anything but a submission hears that no answer came."""
        for collector in tuple(self._waiting):
            collector.give_up(SHUT_DOWN)

    async def submit(
        self, method: str, params: bytes, timeout_s: float, gate: Callable[[], bool] | None = None
    ) -> Attempt:
        """One attempt to hand a submission to the node. ``params`` is a JSON text.

        ``gate`` is asked at the moment of the write; if it says no, the attempt is `NotSent`.
        """
        number = b"%d" % next(self._numbers)
        end = await self.post(jsonrpc.call_text(number, method, params), timeout_s, submission=True, gate=gate)
        return _as_attempt(end, number)

    async def submit_batch(
        self, method: str, params: Sequence[bytes], timeout_s: float, gate: Callable[[], bool] | None = None
    ) -> BatchAnswer:
        """As `submit`, several at once: one batch, in the order of ``params``, that a node runs in its order."""
        numbers = [b"%d" % next(self._numbers) for _ in params]
        calls = [jsonrpc.call_text(number, method, each) for number, each in zip(numbers, params, strict=True)]
        end = await self.post(jsonrpc.join(calls), timeout_s, submission=True, gate=gate)
        return _as_batch_answer(end, numbers)

    async def call(self, method: str, params: list[Any], timeout_s: float | None = None) -> Attempt:
        """One call of our own that only reads, for a lane's sake: it may be sent twice, and does not starve."""
        number = b"%d" % next(self._numbers)
        body = jsonrpc.call_text(number, method, orjson.dumps(params))
        return _as_attempt(await self._exchange(body, timeout_s, repeatable=_always), number)

    async def read(self, method: str, params: list[Any], timeout_s: float | None = None) -> Any:
        """The result of a call that only reads, as Python values; `Unread` (a value) if there is none."""
        return _as_value(await self.call(method, params, timeout_s))

    async def read_batch(self, method: str, params: Sequence[list[Any]], timeout_s: float) -> ReadBatch:
        """As `read`, several at once in one batch, and not at the cost of the lanes."""
        numbers = [b"%d" % next(self._numbers) for _ in params]
        calls = [
            jsonrpc.call_text(number, method, orjson.dumps(each)) for number, each in zip(numbers, params, strict=True)
        ]
        end = await self._exchange(jsonrpc.join(calls), timeout_s, reserved=False, repeatable=_always)
        answer = _as_batch_answer(end, numbers)
        answered = any(isinstance(each, Answered) for each in answer.attempts)
        refused = not answered and (answer.shared is not None or _refuses(answer.status))
        return ReadBatch([_as_value(attempt) for attempt in answer.attempts], refused)


@dataclass(frozen=True, slots=True)
class Unread:
    """A read that brought nothing, and why."""

    detail: str


def _always() -> bool:
    return True


def _refuses(status: int | None) -> bool:
    """Is it the request that the node does not like, and not the moment?"""
    return (
        status is not None
        and HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
        and status != HTTPStatus.TOO_MANY_REQUESTS
    )


def _as_value(attempt: Attempt) -> Any:
    match attempt:
        case Answered(jsonrpc.Reply(result=bytes(text))):
            try:
                return jsonrpc.read_json(text)
            except ValueError as error:
                return Unread(f"the result is no JSON we can read: {error}")
        case Answered(reply):
            return Unread(f"the upstream answered an error: {reply.error_text!r:.200}")
        case NotSent(detail) | Lost(detail):
            return Unread(detail)


def _as_attempt(end: Whole | Failure, number: bytes) -> Attempt:
    match end:
        case Failure():
            return _as_lack(end)
        case Whole(status, body):
            reply = jsonrpc.parse_reply(body)
            if reply is None:
                return Lost(f"HTTP {status} without a JSON-RPC answer")
            if reply.id != number and not (reply.error is not None and reply.id in (None, jsonrpc.NULL)):
                return Lost(f"HTTP {status} with the answer to another call")
            return Answered(reply)


def _as_lack(end: Failure) -> NotSent | Lost:
    return NotSent(end.detail) if end.lack is Lack.UNREACHABLE else Lost(end.detail)


def _as_batch_answer(end: Whole | Failure, numbers: list[bytes]) -> BatchAnswer:
    """By id, whatever the order. A call that is answered twice is not answered: which of the two is true?"""
    if isinstance(end, Failure):
        return BatchAnswer([_as_lack(end)] * len(numbers))
    elements = jsonrpc.split(end.body)
    found: dict[bytes | None, Attempt] = {}
    shared: object = None
    for text in [end.body] if elements is None else elements:
        if (reply := jsonrpc.parse_reply(text)) is None:
            continue
        if reply.id in found:
            found[reply.id] = Lost(f"HTTP {end.status} with two answers to one call")
        else:
            found[reply.id] = Answered(reply)
        if reply.id in (None, jsonrpc.NULL):
            shared = reply.error
    missing = Lost(f"HTTP {end.status} without an answer to this call of the batch")
    return BatchAnswer([found.get(number, missing) for number in numbers], end.status, shared)
