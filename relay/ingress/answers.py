"""Answers of our own, as bytes: what the way in says itself, to a request or to a call whose upstream failed.

Job: refusals, failed calls and the router's answers, each with status, headers and JSON body.
Rules: every error is a JSON-RPC error. One for a whole request stands under ``id: null``; one for a call that could
not be passed on stands under the call's own id, in a batch once for each id, for that is what clients match by. A 503
says ``Retry-After: 1``, a 429 would say nothing: clients take it for seconds, milliseconds or not at all.
Must not know: connections, CORS.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from relay import jsonrpc
from relay.ingress.cors import ALLOWED_METHODS
from relay.upstream.exchange import Head

if TYPE_CHECKING:
    from relay.errors import Refusal
    from relay.router import Answer

BODILESS: Final = frozenset({204, 304})
JOINED: Final = 65_536
"""A body up to this size is copied behind its head: one buffer is cheaper than two then."""
ANSWER: Final = b"HTTP/1.1 %d %b\r\n%bContent-Length: %d\r\n%b%b"
CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"
GO_ON: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_JSON: Final = b"Content-Type: application/json\r\n"
_TEXT: Final = b"Content-Type: text/plain; charset=utf-8\r\n"
_REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}
_BY_STATUS: Final = {
    405: b"Allow: " + ALLOWED_METHODS + b"\r\n",
    415: b"Accept-Encoding: gzip, identity\r\n",
    503: b"Retry-After: 1\r\n",
}
_MANY_COMMAS: Final = 50_000
_GREETING: Final = b"This is a JSON-RPC endpoint and it is up. Send calls with POST.\n"


class Whole(NamedTuple):
    """A whole answer: its head as an upstream would have given it, and its body."""

    head: Head
    body: bytes


class Ready(NamedTuple):
    """A whole answer as text: the head from the status line on, short of Date, CORS and Connection; the body."""

    top: bytes
    body: bytes


def greeting(*, with_body: bool) -> Ready:
    """The answer to GET (and to HEAD, without the body): health checkers and curious people send it."""
    top = top_of(Head(200, b"OK", _TEXT), len(_GREETING))
    return Ready(top, _GREETING if with_body else b"")


def own(status: int, body: bytes, lines: bytes = b"", *, with_body: bool = True) -> Ready:
    """An answer of ours to what is no call: JSON, or nothing."""
    kind = b"" if status in BODILESS else _JSON
    head = Head(status, _REASONS[status], kind + _BY_STATUS.get(status, b"") + lines)
    return Ready(top_of(head, len(body)), body if with_body else b"")


def top_of(head: Head, length: int | None) -> bytes:
    """Status line and header lines, and Content-Length if there is a length to name."""
    named = b"" if length is None or head.status in BODILESS else b"Content-Length: %d\r\n" % length
    return b"HTTP/1.1 %d %b\r\n%b%b" % (head.status, head.reason, head.lines, named)


def in_parts(head: Head, body: bytes, tail: bytes) -> list[bytes]:
    """A whole answer whose body is not worth copying, or that has none."""
    text = top_of(head, len(body)) + tail
    return [text] if head.status in BODILESS else [text, body]


def of_router(answer: Answer) -> Whole:
    """The router's answer. Its body is JSON; with 204 there is none."""
    lines = b"".join(b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in answer.headers)
    kind = b"" if answer.status in BODILESS else _JSON
    lines = kind + _BY_STATUS.get(answer.status, b"") + lines
    return Whole(Head(answer.status, _REASONS.get(answer.status, b""), lines), answer.body)


def of_refusal(refusal: Refusal) -> Whole:
    """The answer to a request that is refused as a whole."""
    return _refused(refusal, jsonrpc.refusal_text(jsonrpc.NULL, refusal))


def ready_refusal(refusal: Refusal) -> Ready:
    """The same as text."""
    head, body = of_refusal(refusal)
    return Ready(top_of(head, len(body)), body)


def of_failed_call(body: bytes, refusal: Refusal) -> Whole:
    """The answer to a call, or batch, that could not be passed on."""
    return _refused(refusal, _under_its_ids(body, refusal))


def _refused(refusal: Refusal, text: bytes) -> Whole:
    status = refusal.case.http
    return Whole(Head(status, _REASONS[status], _JSON + _BY_STATUS.get(status, b"")), text)


def _under_its_ids(body: bytes, refusal: Refusal) -> bytes:
    """The error once for each call that waits for one; under null where no id can be read or none waits."""
    if body.count(b",") > _MANY_COMMAS:
        return jsonrpc.refusal_text(jsonrpc.NULL, refusal)  # what nobody has judged may be a million elements
    parsed = jsonrpc.parse(body)
    if isinstance(parsed, jsonrpc.Batch):
        ids = [id_ for element in parsed.elements if (id_ := _waiting(element)) is not None]
        if ids:
            return jsonrpc.join([jsonrpc.refusal_text(id_, refusal) for id_ in ids])
    elif not isinstance(parsed, jsonrpc.NotJson) and (id_ := _waiting(parsed)) is not None:
        return jsonrpc.refusal_text(id_, refusal)
    return jsonrpc.refusal_text(jsonrpc.NULL, refusal)


def _waiting(element: jsonrpc.Call | jsonrpc.Malformed) -> bytes | None:
    if isinstance(element, jsonrpc.Malformed) and element.id == jsonrpc.NULL:
        return None
    return element.id
