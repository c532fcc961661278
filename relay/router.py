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
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from relay import config, errors, jsonrpc, merge, methods
from relay.errors import Refusal
from relay.jsonrpc import Batch, Call, Malformed, NotJson
from relay.submission import Accepted, Declined, Entry, Unordered
from relay.upstream.client import Whole
from relay.upstream.exchange import Failure, Lack

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from relay.config import Settings
    from relay.intake import Intake
    from relay.submission import Outcome
    from relay.tasks import TaskOwner
    from relay.upstream.client import UpstreamClient


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer of ours: HTTP status, JSON body (empty with 204), further headers."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Forward:
    """The body goes to the upstream as it is, and the answer comes back as it is."""

    __slots__ = ()


FORWARD: Final = Forward()
NO_CONTENT: Final = Answer(204, b"")
SLICE: Final = 16
"""Elements of a batch that are entered in one stretch: some 1.5 ms of decoding."""


class Routes(Protocol):
    """What a way in needs of the router."""

    def route(self, body: bytes) -> Answer | Forward | asyncio.Future[Answer]:
        """Decide, synchronously, and take whatever tickets the body's submissions need, in order.

        A future is the router's own: it always resolves to an Answer, and whoever waits for it must not cancel it.
        """

    def repeatable(self, body: bytes) -> bool:
        """May this passed-through body be sent a second time (each of its methods only reads)?"""


_Part = bytes | Entry | Call | None
"""What becomes of a batch's element: its answer, a submission, a call for the upstream, or nothing to say."""


class Router:
    """The one funnel of all ways in."""

    def __init__(
        self,
        settings: Settings,
        intake: Intake,
        client: UpstreamClient,
        owner: TaskOwner,
        report: Callable[[str, BaseException], None],
    ) -> None:
        self._report = report
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
        self._look_always = b"" in needles
        self._needles = (*needles, b"\\", b"\0")

    def route(self, body: bytes) -> Answer | Forward | asyncio.Future[Answer]:
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
                return self._route_call(call)
            case Batch(elements):
                return self._route_batch(elements)

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
        """Could this body hold a submission, a denied method, or too many calls?"""
        if self._look_always or any(needle in body for needle in self._needles):
            return True
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

    def _route_call(self, call: Call) -> Answer | Forward | asyncio.Future[Answer]:
        part = self._enter(call)
        match part:
            case Call():
                return FORWARD
            case Entry():
                return self._owner.spawn("answer", self._whatever(partial(self._answer_one, call, part), call.id))
            case Refusal():
                return NO_CONTENT if call.id is None else _refused(call.id, part)

    def _enter(self, call: Call) -> Call | Entry | Refusal:
        """A submission takes its ticket here; a call that goes upstream comes back as it is."""
        if self._deny and config.denied(call.method, self._deny):
            return errors.METHOD_DENIED.refusal(method=call.method[:100])
        method = methods.SUBMISSIONS.get(call.method)
        if method is None:
            return call
        entered = self._intake.enter(method, call.params)
        return call if isinstance(entered, Unordered) else entered

    async def _whatever(self, answer: Callable[[], Awaitable[Answer]], id_: bytes | None) -> Answer:
        """What ``answer`` gives, and an answer even where it fails: who waits for it must never wait for ever."""
        try:
            return await answer()
        except Exception as error:  # noqa: BLE001 - a fault of ours must reach the client as one
            self._report("answer", error)
            return _refused(id_ or jsonrpc.NULL, errors.INTERNAL.refusal())

    async def _answer_one(self, call: Call, entry: Entry) -> Answer:
        outcome = await self._intake.outcome(entry)
        if call.id is None:
            return NO_CONTENT
        status = outcome.case.http if isinstance(outcome, Refusal) else 200
        return Answer(status, _text(call.id, outcome))

    # Batches.

    def _route_batch(self, elements: tuple[Call | Malformed, ...]) -> Answer | Forward | asyncio.Future[Answer]:
        if len(elements) > self._max_batch:
            return self._too_long(elements)
        if not any(self._concerns_us(one) for one in elements):
            return FORWARD
        if self._slices and len(elements) > SLICE:
            return self._owner.spawn("answer", self._whatever(partial(self._answer_slices, elements), None))
        parts = [self._part(one) for one in elements]
        return self._owner.spawn("answer", self._whatever(partial(self._answer_batch, elements, parts), None))

    def _concerns_us(self, element: Call | Malformed) -> bool:
        """An element that is not the node's to judge."""
        if isinstance(element, Malformed):
            return element.ambiguous
        return element.method in methods.SUBMISSIONS or bool(self._deny and config.denied(element.method, self._deny))

    def _part(self, element: Call | Malformed) -> _Part:
        if isinstance(element, Malformed):
            return jsonrpc.refusal_text(element.id, errors.INVALID_REQUEST.refusal(detail=element.detail))
        entered = self._enter(element)
        if isinstance(entered, Refusal):
            return None if element.id is None else jsonrpc.refusal_text(element.id, entered)
        return entered

    async def _answer_slices(self, elements: tuple[Call | Malformed, ...]) -> Answer:
        """A long batch enters slice by slice, others' requests in between: decoding it all would stop everybody.

        Its own order does not suffer: its tickets are taken in array order, and lanes go by nonce.
        """
        parts: list[_Part] = []
        for start in range(0, len(elements), SLICE):
            async with self._slicing:
                parts += [self._part(one) for one in elements[start : start + SLICE]]
                await asyncio.sleep(0)
        return await self._answer_batch(elements, parts)

    async def _answer_batch(self, elements: tuple[Call | Malformed, ...], parts: list[_Part]) -> Answer:
        """Submissions run on their own; the calls for the upstream travel together, beside them."""
        calls = [part for part in parts if isinstance(part, Call)]
        passed = self._owner.spawn("batch", self._pass(calls)) if calls else None
        answers: list[bytes] = []
        for element, part in zip(elements, parts, strict=True):
            if isinstance(part, bytes):
                answers.append(part)
            elif isinstance(part, Entry):
                outcome = await self._intake.outcome(part)
                if isinstance(element, Call) and element.id is not None:
                    answers.append(_text(element.id, outcome))
            elif part is not None and passed is not None and part.id is not None:
                answers.append((await passed)[id(part)])
        if passed is not None:
            await passed
        return Answer(200, jsonrpc.join(answers)) if answers else NO_CONTENT

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


def _text(id_: bytes, outcome: Outcome) -> bytes:
    match outcome:
        case Accepted(result):
            return jsonrpc.result_text(id_, result)
        case Declined(error):
            return jsonrpc.error_text(id_, error)
        case Refusal():
            return jsonrpc.refusal_text(id_, outcome)


def _literal_start(pattern: str) -> bytes:
    """The part of a shell pattern before its first wildcard: a body without it cannot match."""
    for index, character in enumerate(pattern):
        if character in "*?[":
            return pattern[:index].encode()
    return pattern.encode()
