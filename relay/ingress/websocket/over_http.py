"""A WebSocket client's calls without `[upstream] ws_url`: each goes to the node over HTTP.

Job: send a message as an HTTP body and give the answer back as a message.
Rules: subscriptions need a socket of their own and are refused, alone or inside a batch. On a socket only an id tells
which call an error belongs to: what the node answers under no id (or as a page of text) goes back under each id of the
message. Calls are sent in the client's order while it takes answers, answered in the node's.
Must not know: how the client's socket works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from aiohttp import WSMsgType

from relay import errors, jsonrpc, merge
from relay.ingress.websocket.frames import Frame, FrameQueue, Signal
from relay.ingress.websocket.upstream import LOST
from relay.router import failure_refusal
from relay.upstream.client import Collector, Whole
from relay.upstream.exchange import Failure

if TYPE_CHECKING:
    from relay.errors import Refusal
    from relay.ingress.websocket.pending import Pending
    from relay.ingress.websocket.ways import Client
    from relay.router import Routes
    from relay.tasks import TaskOwner
    from relay.upstream.exchange import Exchange, Sender

SUBSCRIPTIONS: Final = ("eth_subscribe", "eth_unsubscribe")
NEEDLE: Final = b"subscribe"
MAX_AT_ONCE: Final = 32
"""Calls of one client at the node at the same time: so many answers may have to be kept in memory for it."""

Element = jsonrpc.Call | jsonrpc.Malformed
Finish = Callable[[bytes], bytes | None]
"""Makes the client's answer of the node's; None: that is no answer."""


class Node(NamedTuple):
    """The node, and what may be asked of it twice."""

    sender: Sender
    routes: Routes


class HttpCalls:
    """One client's way to the node."""

    def __init__(
        self, client: Client, node: Node, tasks: TaskOwner, *, timeout_s: float, clock: Callable[[], float]
    ) -> None:
        self._client = client
        self._node = node
        self._timeout_s = timeout_s
        self._clock = clock
        self._ended = Signal()
        self._out = FrameQueue("calls over HTTP", self._write, self._broken, Signal(), tasks)
        self._calls: dict[Pending, Exchange | None] = {}
        self._running = 0

    def __repr__(self) -> str:
        return f"<HttpCalls: {len(self._calls)} pending, {self._running} running>"

    def forward(self, frame: Frame, pending: Pending) -> None:
        """Send the client's message, after those that came before it."""
        self._calls[pending] = None
        self._out.put(frame._replace(pending=pending))

    def tick(self) -> None:
        """The pool bounds each call."""

    def give_up(self, refusal: Refusal) -> None:
        """Answer all that waits by an error."""
        calls = dict(self._calls)
        self.close()
        lost = errors.UPSTREAM_UNUSABLE.refusal(detail=LOST)
        for pending, exchange in calls.items():
            self._client.refuse(pending, lost if exchange else refusal)

    def close(self) -> None:
        """Nobody wants the answers any more."""
        self._out.close()
        while self._calls:
            _, exchange = self._calls.popitem()
            if exchange is not None:
                exchange.abandon()

    async def _write(self, frame: Frame) -> None:
        await self._client.room()
        await self._ended.until(lambda: self._running < MAX_AT_ONCE)
        pending = frame.pending
        assert pending is not None
        body = frame.data
        request = jsonrpc.parse(body) if NEEDLE in body or b"\\" in body else None
        match request:
            case jsonrpc.Call() if _subscribes(request):
                self._answer(pending, pending.refused(_denied(request)))
            case jsonrpc.Batch(elements) if any(map(_subscribes, elements)):
                self._send_rest(elements, pending)
            case _:
                self._send(body, pending, lambda answer: _readdressed(answer, pending))

    def _send_rest(self, elements: tuple[Element, ...], pending: Pending) -> None:
        passed = [call.raw for call in _passed(elements)]
        if passed:
            self._send(jsonrpc.join(passed), pending, lambda answer: _merged(elements, answer))
        else:
            self._answer(pending, _merged(elements, b"[]"))

    def _send(self, body: bytes, pending: Pending, finish: Finish) -> None:
        left_s = pending.since + self._timeout_s - self._clock()
        if left_s <= 0:
            self._refuse(pending, errors.UPSTREAM_TIMEOUT.refusal(seconds=self._timeout_s))
            return
        collector = Collector(asyncio.get_running_loop().create_future())
        self._running += 1
        collector.done.add_done_callback(partial(self._finished, pending, finish))
        collector.exchange = self._calls[pending] = self._node.sender.send(
            body, collector, timeout_s=left_s, repeatable=lambda: self._node.routes.repeatable(body)
        )

    def _finished(self, pending: Pending, finish: Finish, done: asyncio.Future[Whole | Failure]) -> None:
        self._running -= 1
        self._ended.fire()
        if pending not in self._calls:
            return
        match done.result():
            case Whole(status, body):
                answer = b"" if not body and not pending.ids else finish(body)
                if answer is not None:
                    self._answer(pending, answer)
                    return
                unusable = errors.UPSTREAM_UNUSABLE.refusal(detail=f"HTTP {status} without a JSON-RPC answer")
                self._refuse(pending, unusable)
            case Failure() as failure:
                self._refuse(pending, failure_refusal(failure, self._timeout_s))

    def _answer(self, pending: Pending, text: bytes) -> None:
        del self._calls[pending]
        self._client.deliver(Frame(WSMsgType.TEXT, text) if text else None, pending)

    def _refuse(self, pending: Pending, refusal: Refusal) -> None:
        del self._calls[pending]
        self._client.refuse(pending, refusal)

    def _broken(self, detail: str) -> None:
        raise AssertionError(detail)  # `send` reports through its sink


def _readdressed(answer: bytes, pending: Pending) -> bytes | None:
    """The node's answer as it came, an error without an id under the ids of the message, None if it is no answer."""
    if answer.lstrip()[:1] == b"[":
        return answer if jsonrpc.split(answer) is not None else None
    reply = jsonrpc.parse_reply(answer)
    if reply is None:
        return None
    if reply.error_text is None or reply.id not in (None, jsonrpc.NULL) or not pending.ids:
        return answer
    texts = [jsonrpc.error_text(id_, reply.error_text) for id_ in pending.ids]
    return jsonrpc.join(texts) if pending.batch else texts[0]


def _merged(elements: tuple[Element, ...], answer: bytes) -> bytes:
    """The node's answer to the rest of a batch with our refusals at their places."""
    answers = merge.match(_passed(elements), answer)
    texts = []
    for element in elements:
        if isinstance(element, jsonrpc.Malformed):
            refusal = errors.INVALID_REQUEST.refusal(detail=element.detail)
            texts.append(jsonrpc.refusal_text(element.id, refusal))
        elif element.id is not None:
            texts.append(answers.get(id(element)) or jsonrpc.refusal_text(element.id, _denied(element)))
    return jsonrpc.join(texts) if texts else b""


def _passed(elements: tuple[Element, ...]) -> list[jsonrpc.Call]:
    return [one for one in elements if isinstance(one, jsonrpc.Call) and not _subscribes(one)]


def _subscribes(element: Element) -> bool:
    return isinstance(element, jsonrpc.Call) and element.method in SUBSCRIPTIONS


def _denied(call: jsonrpc.Call) -> Refusal:
    return errors.METHOD_DENIED.refusal(method=call.method)
