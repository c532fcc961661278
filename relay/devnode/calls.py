"""One body from arrival to answer: JSON-RPC, submissions, and what the script does to them.

Job: read calls, carry each out under its plan, say how the answer is to be written.
Rules: a batch runs in order, one call after the other, as geth's does; a rule for `BATCH` hits it as a whole. A call is
counted, decoded, recorded and matched against the script in one synchronous stretch, at its arrival; the nonce is
judged only after the node's delay.
Must not know: sockets.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from relay import jsonrpc
from relay.devnode.control import CONTROLS
from relay.devnode.faults import NOTHING, Answer, Delay, Hang, Incoming, Page, Refuse, Reset, Shape, Turn
from relay.devnode.params import BadParams, Params, unhexed
from relay.devnode.rpc import READS, Refused, not_available
from relay.devnode.views import receipt_view
from relay.devnode.watchers import FILTERS
from relay.transaction import SignedTransaction, Undecodable, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from relay.devnode.arrivals import Arrival
    from relay.devnode.chain import Chain
    from relay.devnode.faults import Plan
    from relay.devnode.node import DevNode
    from relay.devnode.watchers import Watchers

INVALID_PARAMS: Final = -32602
SYNC_DEFAULT_MS: Final = 20_000
SYNC_MAX_MS: Final = 60_000
BATCH: Final = "dev_batch"
"""The method by which a rule hits a batch as a whole, before its calls."""
SYNC_TIMED_OUT: Final = 4
"""EIP-7966."""


class Result(NamedTuple):
    """A call's result: any JSON value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Gone:
    """Nobody waits for an answer any more."""


Outcome = Result | Refused | Reset | Page | Gone


@dataclass(slots=True)
class Connection:
    """Whoever called. ``notify`` sends to a WebSocket without being asked."""

    name: str
    notify: Callable[[bytes], None] | None = None
    gone: bool = False
    _held: set[asyncio.Future[bool]] = field(default_factory=set)

    def hold(self) -> asyncio.Future[bool]:
        """A future that becomes false when the caller is gone."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self.gone:
            future.set_result(False)
        self._held.add(future)
        future.add_done_callback(self._held.discard)
        return future

    def lost(self) -> None:
        """The caller is gone."""
        self.gone = True
        for future in tuple(self._held):
            if not future.done():
                future.set_result(False)


class Reply(NamedTuple):
    """``body`` is empty for notifications. ``manner`` is what happens instead of, or while, writing it."""

    body: bytes
    manner: Reset | Page | Shape | Gone | None = None


class Submission(NamedTuple):
    """How a submission method is read and answered."""

    raw: Callable[[Params], bytes]
    private: bool = False
    sync: bool = False


def _first(params: Params) -> bytes:
    return params.data(0)


SUBMISSIONS: Final[Mapping[str, Submission]] = {
    "eth_sendRawTransaction": Submission(_first),
    "eth_sendRawTransactionSync": Submission(_first, sync=True),
    "eth_sendRawTransactionConditional": Submission(_first),
    "eth_sendPrivateRawTransaction": Submission(_first, private=True),
    "eth_sendPrivateTransaction": Submission(
        lambda params: unhexed(0, params.typed(0, dict[str, Any]).get("tx")), private=True
    ),
}


@dataclass(slots=True)
class Exchange:
    """One call on its way through the node, and the chain it began with."""

    node: DevNode
    call: jsonrpc.Call
    connection: Connection
    chain: Chain
    watchers: Watchers
    params: Params = field(default_factory=lambda: Params(None))
    tx: SignedTransaction | None = None
    wait_ms: int = 0
    """For a receipt."""
    flaw: Refused | None = None
    arrival: Arrival | None = None
    plan: Plan = NOTHING


async def answer(node: DevNode, body: bytes, connection: Connection) -> Reply:
    """Carry out what a body asks for."""
    parsed = jsonrpc.parse(body)
    if not isinstance(parsed, jsonrpc.Batch):
        return await _element(node, parsed, connection)
    plan = node.script.plan(Incoming(BATCH, None, None))
    if (outcome := await _go_through(node, connection, plan.before)) is not None:
        return _for_all(outcome)
    texts: list[bytes] = []
    manner = plan.shape
    for element in parsed.elements:
        reply = await _element(node, element, connection)
        if isinstance(reply.manner, Reset | Page | Gone):
            return reply
        manner = manner or reply.manner
        texts += [reply.body] if reply.body else []
    if (outcome := await _go_through(node, connection, plan.after)) is not None:
        return _for_all(outcome)
    return Reply(jsonrpc.join(texts) if texts else b"", manner)


def _for_all(outcome: Outcome) -> Reply:
    """One answer to a whole batch, under no call's id."""
    match outcome:
        case Reset() | Page() | Gone():
            return Reply(b"", outcome)
        case Refused():
            return Reply(_error(jsonrpc.NULL, outcome))
        case Result(value):
            return Reply(orjson.dumps(value))


async def _element(
    node: DevNode, element: jsonrpc.Call | jsonrpc.Malformed | jsonrpc.NotJson, connection: Connection
) -> Reply:
    if isinstance(element, jsonrpc.NotJson):
        return Reply(_error(jsonrpc.NULL, Refused(f"parse error: {element.detail}", -32700)))
    if isinstance(element, jsonrpc.Malformed):
        return Reply(_error(element.id, Refused(f"invalid request: {element.detail}", -32600)))
    exchange = _arrive(node, element, connection)
    outcome: Outcome = Gone()
    try:
        outcome = await _carried_out(exchange)
    finally:
        _leave(exchange, outcome)
    return _reply(exchange, outcome)


def _arrive(node: DevNode, call: jsonrpc.Call, connection: Connection) -> Exchange:
    """Everything that belongs to the instant of arrival."""
    node.arrivals.calls[call.method] += 1
    exchange = Exchange(node, call, connection, node.chain, node.watchers)
    _read(exchange)
    if exchange.tx:
        exchange.arrival = node.arrivals.enter(call.method, exchange.tx, connection.name)
    subject = exchange.params.value(0)
    text = subject.lower() if isinstance(subject, str) and len(node.script) else None
    exchange.plan = node.script.plan(Incoming(call.method, text, exchange.tx))
    node.stir()
    return exchange


def _read(exchange: Exchange) -> None:
    try:
        exchange.params = Params(exchange.call.params)
        if submission := SUBMISSIONS.get(exchange.call.method):
            if submission.sync:
                exchange.wait_ms = min(exchange.params.number(1, 0) or SYNC_DEFAULT_MS, SYNC_MAX_MS)
            exchange.tx = decode(submission.raw(exchange.params))
    except BadParams as error:
        exchange.flaw = Refused(str(error), INVALID_PARAMS)
    except Undecodable as error:
        exchange.flaw = Refused(str(error))


async def _carried_out(exchange: Exchange) -> Outcome:
    if (outcome := await _go_through(exchange.node, exchange.connection, exchange.plan.before)) is not None:
        return outcome
    outcome = exchange.flaw or await _performed(exchange)
    changed = await _go_through(exchange.node, exchange.connection, exchange.plan.after)
    return outcome if changed is None else changed


async def _go_through(node: DevNode, connection: Connection, turns: tuple[Turn, ...]) -> Outcome | None:
    """The first scripted turn that decides the outcome, all earlier ones having been waited for."""
    for turn in turns:
        match turn:
            case Delay(ms=ms):
                await asyncio.sleep(ms / 1000)
            case Hang():
                if not await node.hold(connection.hold()):
                    return Gone()
            case Refuse(message=message, code=code, data=data):
                return Refused(message, code, data)
            case Answer(result=result):
                return Result(result)
            case Reset() | Page():
                return turn
    return None


async def _performed(exchange: Exchange) -> Outcome:
    if exchange.tx:
        return await _submitted(exchange, exchange.tx)
    try:
        value = _value(exchange)
    except BadParams as error:
        return Refused(str(error), INVALID_PARAMS)
    return value if isinstance(value, Refused) else Result(value)


def _value(exchange: Exchange) -> Any:
    method, params = exchange.call.method, exchange.params
    if read := READS.get(method):
        return read(exchange.chain, params)
    if watch := FILTERS.get(method):
        return watch(exchange.watchers, params)
    if method == "eth_subscribe":
        return exchange.watchers.subscribe(params, exchange.connection.notify)
    if control := CONTROLS.get(method):
        return control(exchange.node, params)
    return not_available(method)


async def _submitted(exchange: Exchange, tx: SignedTransaction) -> Outcome:
    submission = SUBMISSIONS[exchange.call.method]
    await exchange.node.check()
    if refused := exchange.chain.submit(tx, private=submission.private):
        return Refused(refused)
    if exchange.arrival:
        exchange.arrival.taken = True
    if exchange.plan.forget:
        exchange.chain.forget(tx.hash)
    exchange.node.accepted()
    return await _receipt(exchange, tx) if submission.sync else Result(tx.hash)


async def _receipt(exchange: Exchange, tx: SignedTransaction) -> Outcome:
    """EIP-7966: the receipt, or code 4 with the hash when it does not come in time."""
    seconds = exchange.wait_ms / 1000
    try:
        async with asyncio.timeout(seconds):
            mined = await exchange.watchers.mined(tx.hash)
    except TimeoutError:
        text = f"The transaction was added to the transaction pool but wasn't processed in {seconds:g}s"
        return Refused(text, SYNC_TIMED_OUT, tx.hash)
    return Result(receipt_view(exchange.chain, mined))


def _leave(exchange: Exchange, outcome: Outcome) -> None:
    if exchange.tx and exchange.arrival:
        exchange.node.arrivals.leave(exchange.tx, exchange.arrival, _name(outcome))
    exchange.node.stir()


def _name(outcome: Outcome) -> str:
    match outcome:
        case Result():
            return "accepted"
        case Refused(message=message):
            return message
        case Page(status=status):
            return f"page {status}"
        case Reset():
            return "reset"
        case Gone():
            return "gone"


def _reply(exchange: Exchange, outcome: Outcome) -> Reply:
    if isinstance(outcome, Reset | Page | Gone):
        return Reply(b"", outcome)
    plan, id_ = exchange.plan, exchange.call.id
    if id_ is None:
        return Reply(b"", plan.shape)
    if plan.wrong_id:
        id_ = orjson.dumps(plan.wrong_id.id)
    if isinstance(outcome, Refused):
        return Reply(_error(id_, outcome), plan.shape)
    return Reply(jsonrpc.result_text(id_, orjson.dumps(outcome.value)), plan.shape)


def _error(id_: bytes, refused: Refused) -> bytes:
    error = {"code": refused.code, "message": refused.message}
    return jsonrpc.error_text(id_, orjson.dumps(error if refused.data is None else error | {"data": refused.data}))
