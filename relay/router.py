"""Which way a body goes: straight through, or through the lanes.

Job: find out whether a body can hold a submission, look only then, take the tickets of its submissions in order, split
and merge batches.
Rules: `route` is synchronous; tickets of a batch are taken in array order before anything is awaited (a long one where
order is by nonce: in slices, so that a flood does not stop other senders). What need not be looked at goes upstream
byte for byte. Answers stand in request order, every call under its own id, notifications without one; a call with an id
never gets an empty answer.
Must not know: HTTP beyond a status, sockets, what happens to a submission.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from relay import config, errors, jsonrpc, merge, methods
from relay.ask import PREFIX
from relay.errors import Refusal
from relay.jsonrpc import Batch, Call, Malformed, NotJson
from relay.submission import Accepted, Declined, Entry, Handle, Outcome, Unordered
from relay.upstream.client import Whole
from relay.upstream.exchange import Failure, Lack
from relay.wish import NO_WISH, Wish

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from relay.ask import Ask, Listener
    from relay.config import Settings
    from relay.intake import Intake
    from relay.submission import Telling, Told
    from relay.tasks import TaskOwner
    from relay.upstream.client import UpstreamClient


class Answer(msgspec.Struct, frozen=True):
    """A whole answer of ours: HTTP status, JSON body (empty with 204), further headers."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Asked(asyncio.Future[Answer]):
    """The answer to be of a call that the relay answers itself, from the journal."""


class Forward:
    """The body goes to the upstream as it is, and the answer comes back as it is."""

    __slots__ = ()


FORWARD: Final = Forward()
_BACKSLASH: Final = ord("\\")
_NUL: Final = 0
"""Where they stand a name may be there and not be seen: escaped, or in UTF-16."""
NO_CONTENT: Final = Answer(204, b"")
SLICE: Final = 16
"""Elements of a batch that are entered in one stretch: some 1.5 ms of decoding."""


class Asker(NamedTuple):
    """Who asks: what he wishes for his submissions, or why they are refused, and where he can be told of changes."""

    wish: Wish | Refusal
    listener: Listener | None


class Routes(Protocol):
    """What a way in needs of the router."""

    def route(
        self, body: bytes, wish: Wish | Refusal = NO_WISH, *, listener: Listener | None = None
    ) -> Answer | Forward | asyncio.Future[Answer]:
        """Decide, synchronously, and take whatever tickets the body's submissions need, in order.

        ``wish`` is the client's for its submissions, or why each of them is refused. ``listener`` is told of what the
        body subscribes to; None: the client cannot be told anything. A future is the router's own: it always resolves
        to an Answer, and whoever waits for it must not cancel it.
        """

    def repeatable(self, body: bytes) -> bool:
        """May this passed-through body be sent a second time (each of its methods only reads)?"""


_Part = bytes | Entry | Call | asyncio.Task[Outcome] | None
"""What becomes of a batch's element: its answer (to be), a submission, a call for the upstream, or nothing to say."""


class Router:
    """The one funnel of all ways in."""

    def __init__(
        self,
        settings: Settings,
        intake: Intake,
        client: UpstreamClient,
        owner: TaskOwner,
        report: Callable[[str, BaseException], None],
        *,
        ask: Ask | None = None,
    ) -> None:
        self._report = report
        self._ask = ask
        self._intake = intake
        self._client = client
        self._owner = owner
        self._timeout_s = settings.upstream.timeout_s
        self._max_batch = settings.server.max_batch
        self._deny = settings.server.deny_methods
        self._slices = settings.ordering.order == "nonce"
        self._slicing = asyncio.Lock()
        """One slice in a turn of the loop, however many batches there are."""
        needles = {methods.NEEDLE, *(_literal_start(pattern) for pattern in self._deny)}
        if ask is not None:
            needles.add(PREFIX.encode())
        self._needles = tuple(needles)

    def route(
        self, body: bytes, wish: Wish | Refusal = NO_WISH, *, listener: Listener | None = None
    ) -> Answer | Forward | asyncio.Future[Answer]:
        """See `Routes.route`."""
        if not self._must_look(body):
            return FORWARD
        match jsonrpc.parse(body):
            case NotJson(detail):
                if b"\\" in body and self._is_harmless(jsonrpc.without_lone_surrogates(body)):
                    return FORWARD
                return _refused(jsonrpc.NULL, errors.PARSE_ERROR.refusal(detail=detail))
            case Malformed() as malformed:
                return _refused(malformed.id, errors.INVALID_REQUEST.refusal(detail=malformed.detail))
            case Call() as call:
                return self._route_call(call, Asker(wish, listener))
            case Batch(elements):
                return self._route_batch(elements, Asker(wish, listener))

    def repeatable(self, body: bytes) -> bool:
        """See `Routes.repeatable`."""
        match jsonrpc.parse(body):
            case Call(method=method):
                return methods.only_reads(method)
            case Batch(elements):
                return all(isinstance(one, Call) and methods.only_reads(one.method) for one in elements)
            case _:
                return False

    def _must_look(self, body: bytes) -> bool:
        """Could this body hold a submission, a denied method, or too many calls?

        Asked of every request: bytes are looked for as numbers and needles by `find`, a quarter of what ``any`` and
        ``in`` take with texts.
        """
        if _BACKSLASH in body or _NUL in body:
            return True
        for needle in self._needles:
            if body.find(needle) >= 0:
                return True
        if len(body) <= self._max_batch:
            return False
        return body.lstrip(b" \t\r\n")[:1] == b"[" and body.count(b"{") > self._max_batch

    def _is_harmless(self, body: bytes) -> bool:
        """Is there no element in it that concerns us?"""
        match jsonrpc.parse(body):
            case Call() as call:
                return not self._concerns_us(call)
            case Batch(elements):
                return len(elements) <= self._max_batch and not any(self._concerns_us(one) for one in elements)
            case _:
                return False

    # One call.

    def _route_call(self, call: Call, asker: Asker) -> Answer | Forward | asyncio.Future[Answer]:
        part = self._enter(call, asker)
        match part:
            case Call():
                return FORWARD
            case asyncio.Task():
                return self._answer_asked(call, part)
            case Entry():
                return self._answer(call, part)
            case Refusal():
                return NO_CONTENT if call.id is None else _refused(call.id, part)

    def _enter(self, call: Call, asker: Asker) -> Call | Entry | Refusal | asyncio.Task[Outcome]:
        """A submission takes its ticket here; a call that goes upstream comes back as it is."""
        if self._deny and config.denied(call.method, self._deny):
            return errors.METHOD_DENIED.refusal(method=call.method[:100])
        if self._ask is not None and call.method.startswith(PREFIX):
            return self._owner.spawn("ask", self._asked(self._ask, call, asker.listener))
        method = methods.SUBMISSIONS.get(call.method)
        if method is None:
            return call
        if isinstance(asker.wish, Refusal):
            return asker.wish
        entered = self._intake.enter(method, call.params, asker.wish)
        return call if isinstance(entered, Unordered) else entered

    def _answer(self, call: Call, entry: Entry) -> asyncio.Future[Answer]:
        """The answer to be. No task waits for what needs no more than to be put into words."""
        if entry.request.method.wants_receipt:
            return self._owner.spawn("answer", self._whatever(partial(self._answer_one, call, entry), call.id))
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        entry.told.add_done_callback(partial(self._settled, call, answer))
        return answer

    def _settled(self, call: Call, answer: asyncio.Future[Answer], told: Telling) -> None:
        if answer.done():
            return  # whoever waited has cancelled it
        try:
            answer.set_result(_answer_to(call, told.result()))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - as in `_whatever`
            answer.set_result(self._fault(error, call.id))

    async def _whatever(self, answer: Callable[[], Awaitable[Answer]], id_: bytes | None) -> Answer:
        """What ``answer`` gives, and an answer even where it fails: who waits for it must never wait for ever."""
        try:
            return await answer()
        except Exception as error:  # noqa: BLE001 - a fault of ours must reach the client as one
            return self._fault(error, id_)

    def _fault(self, error: BaseException, id_: bytes | None) -> Answer:
        self._report("answer", error)
        return _refused(id_ or jsonrpc.NULL, errors.INTERNAL.refusal())

    async def _answer_one(self, call: Call, entry: Entry) -> Answer:
        return _answer_to(call, await self._intake.outcome(entry))

    async def _asked(self, ask: Ask, call: Call, listener: Listener | None) -> Outcome:
        try:
            return await ask.answer(call.method, call.params, listener)
        except Exception as error:  # noqa: BLE001 - as in `_whatever`
            self._report("ask", error)
            return errors.INTERNAL.refusal()

    def _answer_asked(self, call: Call, outcome: asyncio.Task[Outcome]) -> Asked:
        answer = Asked()
        outcome.add_done_callback(partial(self._settled, call, answer))
        return answer

    # Batches.

    def _route_batch(
        self, elements: tuple[Call | Malformed, ...], asker: Asker
    ) -> Answer | Forward | asyncio.Future[Answer]:
        if len(elements) > self._max_batch:
            return self._too_long(elements)
        if not any(self._concerns_us(one) for one in elements):
            return FORWARD
        asker = asker._replace(wish=_for_one(asker.wish, elements))
        if self._slices and len(elements) > SLICE:
            return self._owner.spawn("answer", self._whatever(partial(self._answer_slices, elements, asker), None))
        parts = [self._part(one, asker) for one in elements]
        return self._owner.spawn("answer", self._whatever(partial(self._answer_batch, elements, parts), None))

    def _concerns_us(self, element: Call | Malformed) -> bool:
        """An element that is not the node's to judge."""
        if isinstance(element, Malformed):
            return element.ambiguous
        if element.method in methods.SUBMISSIONS or (self._deny and config.denied(element.method, self._deny)):
            return True
        return self._ask is not None and element.method.startswith(PREFIX)

    def _part(self, element: Call | Malformed, asker: Asker) -> _Part:
        if isinstance(element, Malformed):
            return jsonrpc.refusal_text(element.id, errors.INVALID_REQUEST.refusal(detail=element.detail))
        entered = self._enter(element, asker)
        if isinstance(entered, Refusal):
            return None if element.id is None else jsonrpc.refusal_text(element.id, entered)
        return entered

    async def _answer_slices(self, elements: tuple[Call | Malformed, ...], asker: Asker) -> Answer:
        """A long batch enters slice by slice, others' requests in between: decoding it all would stop everybody.

        Its own order does not suffer: its tickets are taken in array order, and lanes go by nonce.
        """
        parts: list[_Part] = []
        for start in range(0, len(elements), SLICE):
            async with self._slicing:
                parts += [self._part(one, asker) for one in elements[start : start + SLICE]]
                await asyncio.sleep(0)
        return await self._answer_batch(elements, parts)

    async def _answer_batch(self, elements: tuple[Call | Malformed, ...], parts: list[_Part]) -> Answer:
        """Submissions run on their own; the calls for the upstream travel together, beside them."""
        calls = [part for part in parts if isinstance(part, Call)]
        passed = self._owner.spawn("batch", self._pass(calls)) if calls else None
        answers: list[bytes] = []
        applied = ""
        for element, part in zip(elements, parts, strict=True):
            if isinstance(part, bytes):
                answers.append(part)
            elif isinstance(part, asyncio.Task):
                asked = await part
                if isinstance(element, Call) and element.id is not None:
                    answers.append(_text(element.id, asked))
            elif isinstance(part, Entry):
                told = await self._intake.outcome(part)
                applied = applied or (told.applied if isinstance(told, Handle) else "")
                if isinstance(element, Call) and element.id is not None:
                    answers.append(_text(element.id, told))
            elif part is not None and passed is not None and part.id is not None:
                answers.append((await passed)[id(part)])
        if passed is not None:
            await passed
        return Answer(200, jsonrpc.join(answers), _applied(applied)) if answers else NO_CONTENT

    async def _pass(self, calls: list[Call]) -> dict[int, bytes]:
        """Send the calls as one batch (a lone one as itself); each call's answer by the call's identity."""
        texts = [call.raw for call in calls]
        end = await self._client.post(texts[0] if len(texts) == 1 else jsonrpc.join(texts))
        if isinstance(end, Whole):
            return merge.match(calls, end.body)
        refusal = failure_refusal(end, self._timeout_s)
        return {id(call): jsonrpc.refusal_text(call.id or jsonrpc.NULL, refusal) for call in calls}

    def _too_long(self, elements: Iterable[Call | Malformed]) -> Answer:
        listed = list(elements)
        refusal = errors.BATCH_TOO_LONG.refusal(length=len(listed), limit=self._max_batch)
        ids = [one.id for one in listed if one.id is not None]
        return Answer(200, jsonrpc.join([jsonrpc.refusal_text(id_, refusal) for id_ in ids])) if ids else NO_CONTENT


def failure_refusal(failure: Failure, timeout_s: float) -> Refusal:
    """What a passed-through call is answered when the upstream gave no (complete) answer."""
    match failure.lack:
        case Lack.UNREACHABLE:
            return errors.UPSTREAM_UNREACHABLE.refusal(detail=failure.detail)
        case Lack.TIMED_OUT:
            return errors.UPSTREAM_TIMEOUT.refusal(seconds=timeout_s)
        case Lack.CUT_OFF | Lack.UNUSABLE:
            return errors.UPSTREAM_UNUSABLE.refusal(detail=failure.detail)


def _refused(id_: bytes, refusal: Refusal) -> Answer:
    return Answer(refusal.case.http, jsonrpc.refusal_text(id_, refusal))


def _for_one(wish: Wish | Refusal, elements: Iterable[Call | Malformed]) -> Wish | Refusal:
    """A key is one submission's: where there are more, each is refused."""
    if not isinstance(wish, Wish) or not wish.key:
        return wish
    submissions = sum(isinstance(one, Call) and one.method in methods.SUBMISSIONS for one in elements)
    if submissions <= 1:
        return wish
    detail = f"one key is for one submission, and this request holds {submissions}"
    return errors.KEY_CONFLICT.refusal(detail=detail)


def _answer_to(call: Call, told: Told) -> Answer:
    if call.id is None:
        return NO_CONTENT
    status = told.case.http if isinstance(told, Refusal) else 200
    return Answer(status, _text(call.id, told), _headers(told) if isinstance(told, Handle) else ())


def _headers(handle: Handle) -> tuple[tuple[str, str], ...]:
    """Where to ask, and what made the answer come before the verdict: no other answer has these headers."""
    return ("Location", f"/transactions/{handle.hash}"), *_applied(handle.applied)


def _applied(preferences: str) -> tuple[tuple[str, str], ...]:
    return (("Preference-Applied", preferences),) if preferences else ()


def _text(id_: bytes, told: Told) -> bytes:
    match told:
        case Accepted(result):
            return jsonrpc.result_text(id_, result)
        case Handle(hash_):
            return jsonrpc.result_text(id_, b'"%b"' % hash_.encode())
        case Declined(error):
            return jsonrpc.error_text(id_, error)
        case Refusal():
            return jsonrpc.refusal_text(id_, told)


def _literal_start(pattern: str) -> bytes:
    """The part of a shell pattern before its first wildcard: a body without it cannot match."""
    for index, character in enumerate(pattern):
        if character in "*?[":
            return pattern[:index].encode()
    return pattern.encode()
