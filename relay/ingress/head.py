"""A request's head becomes a plan, and the plan is remembered by the head's bytes.

Job: judge a head and decide everything that can be decided before the body: how the body ends, which lines go
upstream, how the answer's head ends, or why the request is refused. Clients send the same head again and again, so
looking its bytes up in a dict replaces all of that.
Rules: a plan depends on the head's bytes and the settings, on nothing else: no address, no time, no earlier request.
httptools in its strict mode judges the form; what it takes and HTTP forbids is in `_CHECKS`. A head with credentials
is never remembered, nor one that comes for the first time.
Must not know: connections, bodies, the upstream.

Source: RFC 9112 (message syntax), RFC 9110 sections 7.6 (hop-by-hop fields) and 10.1.1 (Expect)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from relay.errors import (
    BODY_TOO_LARGE,
    HTTP_ENCODING,
    HTTP_EXPECTATION,
    HTTP_HEAD_TOO_LARGE,
    HTTP_INVALID,
    HTTP_METHOD,
    HTTP_TRANSFER,
    HTTP_VERSION,
    Refusal,
)
from relay.ingress import wishes
from relay.ingress.answers import Ready, greeting, top_of
from relay.ingress.cors import Cors, preflight
from relay.ingress.limits import MAX_HEAD_BYTES, MAX_HEAD_LINES
from relay.ingress.looking import Question, question
from relay.upstream.exchange import Head
from relay.upstream.memo import Doorkeeper
from relay.wish import NO_WISH, Wish

if TYPE_CHECKING:
    from relay import config
    from relay.ingress.cors import Tails

HEAD_END: Final = b"\r\n\r\n"
_REMEMBERED_HEADS: Final = 1024
_REMEMBERED_NAMES: Final = 512

_NOTED: Final = frozenset({
    b"host", b"connection", b"transfer-encoding", b"content-length", b"content-encoding", b"expect", b"upgrade",
})  # fmt: skip
"""They concern this hop, and stay here."""
_CREDENTIALS: Final = frozenset({
    b"authorization", b"cookie", b"proxy-authorization", b"x-api-key", b"api-key", b"apikey", b"x-auth-token",
    b"x-access-token", b"x-amz-security-token",
})  # fmt: skip
"""What a client shows to us or to a gateway before us is not for the node; the node's own are in [upstream] headers."""
_KEPT_BACK: Final = _CREDENTIALS | {b"keep-alive", b"te", b"trailer", b"content-type", b"origin", b"referer"}
_KEPT_BACK_PREFIXES: Final = (b"proxy-", b"sec-")
_ALWAYS_HERE: Final = frozenset({b"close", b"keep-alive", b"upgrade"})
"""What Connection may name and `_KEPT_BACK` or `_NOTED` hold anyway."""
_GZIP: Final = frozenset({b"gzip", b"x-gzip"})
_PLAIN: Final = frozenset({b"", b"identity"})


class Plan(msgspec.Struct, frozen=True, gc=False):
    """What to do with one request.

    ``length``: bytes of its body, None for chunks. ``lines``: the header lines that go upstream, each ended by CRLF.
    ``tail``: the end of the answer's head (CORS, Connection, the empty line); ``last_tail``: the same where the
    connection closes behind the answer. ``old``: HTTP/1.0, which knows no chunks. ``ready``: our own answer to a
    request that is no call, or what it asks of the journal. ``wish``: what the client wishes for its submissions, or
    why they are refused.
    """

    length: int | None
    lines: bytes
    tail: bytes
    last_tail: bytes
    closes: bool
    old: bool
    gzip: bool = False
    expects: bool = False
    upgrades: bool = False
    ready: Ready | Question | None = None
    wish: Wish | Refusal = NO_WISH


class Refused(msgspec.Struct, frozen=True, gc=False):
    """A head that is not taken, why, and the end of the answer's head. Its connection is given up."""

    refusal: Refusal
    last_tail: bytes


class Request(msgspec.Struct, frozen=True, gc=False):
    """A well-formed head, taken apart. ``fields``: the values of the headers that say how to go on, by lower-case
    name; ``length``: Content-Length, 0 without one; ``kept``: the lines that may go upstream; ``secret``: there are
    credentials."""

    method: bytes
    old: bool
    fields: dict[bytes, list[bytes]]
    length: int
    kept: list[bytes]
    secret: bool

    def values(self, name: bytes) -> list[bytes]:
        """The elements of a comma-separated header, in lower case."""
        if name not in self.fields:
            return []
        return [part.strip(b" \t") for part in b",".join(self.fields[name]).lower().split(b",")]


class HeadMemo:
    """Plans by head. ``asks``: transactions may be asked for. ``wishes``: clients' wishes are read, else they are
    headers like any other."""

    def __init__(self, settings: config.Server, *, asks: bool = False, wishes: bool = False) -> None:
        self._kinds = _ASKING if asks else _KINDS
        self._wishes = wishes
        self._max_body_bytes = settings.max_body_bytes
        self._cors = Cors(settings.cors_origins)
        self._plans: dict[bytes, Plan] = {}
        self._doorkeeper = Doorkeeper()
        self.recall = self._plans.get
        """The plan of a head seen before, given without its empty line; None for another."""

    def call(self, head: bytes) -> Plan | None:
        """The plan of a call with a body of known length that is taken as it comes, given its head without the empty
        line; None for any other head."""
        plan = self._read(head + HEAD_END)
        return plan if isinstance(plan, Plan) and _is_plain_call(plan) else None

    def plan(self, head: bytes) -> Plan | Refused:
        """The plan for a head, which ends with the first empty line."""
        plan = self.recall(head[: -len(HEAD_END)])
        return plan if plan is not None else self._read(head)

    def refuse(self, start: bytes, refusal: Refusal | None = None) -> Refused:
        """A start of a request that will never become a head: for ``refusal``, or for what is wrong with its form."""
        if refusal is None:
            judged = _take_apart(start + HEAD_END)
            refusal = judged if isinstance(judged, Refusal) else HTTP_INVALID.refusal(detail="a line ends without CR")
        return Refused(refusal, self._cors.tails(start).last)

    def _read(self, head: bytes) -> Plan | Refused:
        request = _take_apart(head)
        if isinstance(request, Refusal):
            return self.refuse(head, request)
        for field, check in _CHECKS:
            if field is None or field in request.fields:
                refusal = check(request, self._max_body_bytes)
                if refusal is not None:
                    return self.refuse(head, refusal)
        wish = _wish(request) if self._wishes else NO_WISH
        plan = _plan(request, head, self._cors.tails(head), self._kinds[request.method], wish)
        if not request.secret and _is_plain_call(plan):
            self._remember(head[: -len(HEAD_END)], plan)
        return plan

    def _remember(self, head: bytes, plan: Plan) -> None:
        if self._doorkeeper.lets_in(head):
            if len(self._plans) >= _REMEMBERED_HEADS:
                self._plans.clear()
            self._plans[head] = plan


@lru_cache(_REMEMBERED_NAMES)
def _header(name: bytes) -> tuple[bytes, bool, bool]:
    """What is done with a header: its lower-case name if its value is noted; whether its line goes upstream; whether it
    is a credential."""
    name = name.lower()
    kept_back = name in _KEPT_BACK or name.startswith(_KEPT_BACK_PREFIXES)
    here, wished = name in _NOTED, name in wishes.NAMES
    return name if here or wished else b"", not kept_back and not here, name in _CREDENTIALS


class _Listener:
    """What llhttp hears: only that the head is complete."""

    __slots__ = ("complete",)

    def __init__(self) -> None:
        self.complete = False

    def on_headers_complete(self) -> None:
        self.complete = True


def _take_apart(head: bytes) -> Request | Refusal:
    lines = head[: -len(HEAD_END)].split(b"\r\n")
    if len(head) > MAX_HEAD_BYTES or len(lines) > MAX_HEAD_LINES:
        return too_large()
    if (refusal := _malformed(head)) is not None:
        return refusal
    words = lines[0].split(b" ")
    method, version = words[0], words[-1]
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        return HTTP_VERSION.refusal()
    if len(words) != 3 or not words[1]:  # noqa: PLR2004 - those named below; llhttp skips further blanks
        return HTTP_INVALID.refusal(detail="the first line is not METHOD TARGET VERSION, each after one blank")
    fields: dict[bytes, list[bytes]] = {}
    kept: list[bytes] = []
    secret = False
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        noted, goes_on, is_secret = _header(name)
        if noted:
            fields.setdefault(noted, []).append(value.strip(b" \t"))
        if goes_on:
            kept.append(line)
        if is_secret:
            secret = True
    lengths = fields.get(b"content-length")
    length = int(lengths[0].lstrip(b"0") or b"0") if lengths else 0  # int() takes no more than 4,300 digits
    return Request(method, version == b"HTTP/1.0", fields, length, kept, secret)


def _malformed(head: bytes) -> Refusal | None:
    """What llhttp thinks of it. It names versions that it does not take, and "0.0" before it has seen one."""
    listener = _Listener()
    parser = HttpRequestParser(listener)
    try:
        parser.feed_data(head)
    except HttpParserUpgrade:
        return None
    except HttpParserError as error:
        if parser.get_http_version() not in ("0.0", "1.0", "1.1"):
            return HTTP_VERSION.refusal()
        return HTTP_INVALID.refusal(detail=str(error))
    return None if listener.complete else HTTP_INVALID.refusal(detail="this is no request")


def too_large() -> Refusal:
    """For a head beyond the limits."""
    return HTTP_HEAD_TOO_LARGE.refusal(bytes=MAX_HEAD_BYTES, lines=MAX_HEAD_LINES)


def _check_host(request: Request, _: int) -> Refusal | None:
    hosts = len(request.fields.get(b"host", ()))
    if hosts > 1 or (hosts == 0 and not request.old):
        return HTTP_INVALID.refusal(detail=f"{hosts or 'no'} Host headers")
    return None


def _check_transfer(request: Request, _: int) -> Refusal | None:
    if request.old:
        return HTTP_INVALID.refusal(detail="Transfer-Encoding in HTTP/1.0")
    if request.values(b"transfer-encoding") != [b"chunked"]:
        return HTTP_TRANSFER.refusal(encoding=_shown(request, b"transfer-encoding"))
    return None


def _check_method(request: Request, _: int) -> Refusal | None:
    return None if request.method in _KINDS else HTTP_METHOD.refusal()


def _check_expectation(request: Request, _: int) -> Refusal | None:
    if any(expected != b"100-continue" for expected in request.values(b"expect")):
        return HTTP_EXPECTATION.refusal(expectation=_shown(request, b"expect"))
    return None


def _check_encoding(request: Request, _: int) -> Refusal | None:
    codings = [coding for coding in request.values(b"content-encoding") if coding not in _PLAIN]
    if len(codings) > 1 or not _GZIP.issuperset(codings):
        return HTTP_ENCODING.refusal(encoding=_shown(request, b"content-encoding"))
    return None


def _check_length(request: Request, limit: int) -> Refusal | None:
    return BODY_TOO_LARGE.refusal(limit=limit) if request.length > limit else None


_CHECKS: Final = (
    (None, _check_host),
    (b"transfer-encoding", _check_transfer),
    (None, _check_method),
    (b"expect", _check_expectation),
    (b"content-encoding", _check_encoding),
    (b"content-length", _check_length),
)
"""What llhttp does not check, in this order: the header it is about, if it is about one, and the check. A check's last
argument is ``max_body_bytes``."""


def _shown(request: Request, name: bytes) -> str:
    return b", ".join(request.fields[name]).decode("ascii", "replace")[:80]


def _get(_: bytes) -> Ready:
    return greeting(with_body=True)


def _head(_: bytes) -> Ready:
    return greeting(with_body=False)


def _options(head: bytes) -> Ready:
    return Ready(top_of(Head(204, b"No Content", preflight(head)), None), b"")


_Kind = Callable[[bytes], Ready | Question] | None
_KINDS: Final[dict[bytes, _Kind]] = {
    b"POST": None, b"GET": _get, b"HEAD": _head, b"OPTIONS": _options,
}  # fmt: skip
"""Each method that is taken, and how its answer is made where it is no call."""

_ASKING: Final[dict[bytes, _Kind]] = _KINDS | {
    b"GET": lambda head: question(head) or _get(head), b"HEAD": lambda head: question(head) or _head(head),
}  # fmt: skip
"""The same with a journal."""


def _wish(request: Request) -> Wish | Refusal:
    fields = request.fields
    if wishes.NAMES.isdisjoint(fields):
        return NO_WISH
    return wishes.read(fields.get(wishes.KEY, ()), fields.get(wishes.PREFER, ()))


def _plan(request: Request, head: bytes, tails: Tails, ready: _Kind, wish: Wish | Refusal) -> Plan:
    connection = request.values(b"connection")
    closes = b"close" in connection or (request.old and b"keep-alive" not in connection)
    return Plan(
        length=None if b"transfer-encoding" in request.fields else request.length,
        lines=_end_to_end(request.kept, connection),
        tail=tails.keep_old if request.old else tails.keep,
        last_tail=tails.last,
        closes=closes,
        old=request.old,
        gzip=not _PLAIN.issuperset(request.values(b"content-encoding")),
        expects=b"expect" in request.fields and not request.old,
        upgrades=_asks_for_websocket(request, connection),
        ready=ready(head) if ready else None,
        wish=wish,
    )


def _end_to_end(lines: list[bytes], connection: list[bytes]) -> bytes:
    """``lines`` without those that Connection names, for this hop only."""
    if not _ALWAYS_HERE.issuperset(connection):
        lines = [line for line in lines if line.partition(b":")[0].lower() not in connection]
    return b"\r\n".join([*lines, b""])


def _asks_for_websocket(request: Request, connection: list[bytes]) -> bool:
    if request.method != b"GET" or request.old or request.length or b"transfer-encoding" in request.fields:
        return False
    return b"upgrade" in connection and b"websocket" in request.values(b"upgrade")


def _is_plain_call(plan: Plan) -> bool:
    return plan.ready is None and plan.length is not None and not plan.gzip and not plan.expects
