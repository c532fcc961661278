"""What the HTTP way in makes of answers, and what browsers need; `test_ingress_table` has what it makes of requests."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from relay.config import Settings
from relay.errors import CATALOGUE
from relay.ingress.http import HttpServer
from relay.router import Answer
from relay.telemetry.metrics import Metrics
from relay.upstream.exchange import Failure, Head, Lack
from relay.upstream.head import Plan, read
from tests.ingress_rig import (
    GET,
    UPSTREAM_HEAD,
    Sent,
    on_each_loop,
    post,
    serving,
    turns,
)

# What goes upstream and what comes back.


@on_each_loop
async def test_which_headers_go_upstream() -> None:
    """End-to-end headers go as they came; the client's own, hop-by-hop ones and what the pool writes do not."""
    stay = [
        "Connection: keep-alive, X-Hop", "X-Hop: 1", "Keep-Alive: 5", "Proxy-Connection: x", "Proxy-Authorization: x",
        "TE: trailers", "Trailer: x", "Upgrade: x", "Expect: 100-continue", "Content-Type: text/plain", "Cookie: x",
        "Authorization: x", "Origin: x", "Referer: x", "Sec-Fetch-Mode: cors", "sec-ch-ua: x",
        "Content-Encoding: identity", "X-Api-Key: x", "api-key: x", "ApiKey: x", "X-Auth-Token: x", "X-Access-Token: x",
        "X-Amz-Security-Token: x",
    ]  # fmt: skip
    go = ["User-Agent:x", "Accept-Encoding: gzip", "traceparent:  00-1 ", "X-Forwarded-For: 10.0.0.1", "Prefer: wait=5",
          "Idempotency-Key: k", "Accept: */*"]  # fmt: skip
    async with serving() as rig:
        await rig.ask(post(*(line for pair in zip(stay, itertools.cycle(go), strict=False) for line in pair)))
        sent = [line for line in rig.upstream.sent[0].lines.decode().split("\r\n") if line]
        assert list(dict.fromkeys(sent)) == go
        assert rig.upstream.sent[0].lines.endswith(b"\r\n")


@on_each_loop
async def test_an_answer_passes_as_it_came() -> None:
    """Status, reason, headers and body of a passed-through call are the upstream's; CORS is ours."""
    async with serving() as rig:
        head = Head(429, b"Slow Down", b"Content-Type: text/x\r\nRetry-After: 7\r\nDate: then\r\n")
        rig.upstream.script = lambda sent: sent.answer(b"not json \xff", head)
        reply = await rig.ask(post())
        assert (reply.status, reply.body) == (429, b"not json \xff")
        assert reply.headers == {
            "content-type": "text/x",
            "retry-after": "7",
            "date": "then",
            "content-length": "10",
            "access-control-allow-origin": "*",
            "access-control-expose-headers": "Retry-After, ETag, Location, Preference-Applied",
        }


@on_each_loop
async def test_answers_without_a_body() -> None:
    """204 and 304 have neither a body nor a length, and the connection goes on behind them."""
    async with serving() as rig:
        wire = await rig.wire()
        for status in (204, 304):
            rig.upstream.script = lambda sent, status=status: sent.answer(b"", Head(status, b"None", b""))
            await wire.send(post())
            reply = await wire.reply()
            assert reply.status == status
            assert not {"content-length", "transfer-encoding"} & set(reply.headers)


@on_each_loop
async def test_large_answers_in_one_piece() -> None:
    """A body too large to be copied behind its head arrives whole."""
    body = bytes(range(256)) * 4096
    async with serving() as rig:
        rig.upstream.script = lambda sent: sent.answer(body)
        assert (await rig.ask(post())).body == body


def stream(sent: Sent, chunks: list[bytes], length: int | None) -> None:
    """Give an answer piece by piece."""
    sent.sink.began(UPSTREAM_HEAD, length)
    for chunk in chunks:
        sent.sink.more(chunk)
    sent.sink.ended()


@on_each_loop
async def test_streamed_answers() -> None:
    """A length stays a length; without one there are chunks for HTTP/1.1, and the end of the connection for 1.0."""
    async with serving() as rig:
        forms: list[tuple[bytes, int | None, dict[str, str | None]]] = [
            (post(), 10, {"content-length": "10", "transfer-encoding": None, "connection": None}),
            (post(), None, {"content-length": None, "transfer-encoding": "chunked", "connection": None}),
            (post("Connection: close"), None, {"transfer-encoding": "chunked", "connection": "close"}),
            (post("Connection: keep-alive", version="1.0"), 10, {"content-length": "10", "connection": "keep-alive"}),
            (post("Connection: keep-alive", version="1.0"), None, {"transfer-encoding": None, "connection": "close"}),
        ]
        for request, length, expected in forms:
            rig.upstream.script = lambda sent, length=length: stream(sent, [b"1234", b"", b"567890"], length)
            wire = await rig.wire()
            await wire.send(request)
            reply = await wire.reply()
            assert reply.body == b"1234567890"
            assert {name: reply.headers.get(name) for name in expected} == expected
            if reply.headers.get("connection") == "close":
                assert await wire.ended()
            else:
                await wire.send(post())
                assert (await wire.reply()).body == b"1234567890"


@on_each_loop
async def test_a_failure_behind_the_head_is_a_cut() -> None:
    """An answer that breaks off is never made to look complete."""
    async with serving() as rig:
        rig.upstream.hold()
        for length in (100, None):
            wire, sent = await rig.asked(post())
            sent.sink.began(UPSTREAM_HEAD, length)
            sent.sink.more(b"partial")
            sent.fail(Failure(Lack.CUT_OFF, "gone"))
            with pytest.raises(EOFError):
                await wire.reply()
        assert rig.count("pass", "failed") == 2


FAILURES = {
    Lack.UNREACHABLE: ("upstream_unreachable", "1"),
    Lack.TIMED_OUT: ("upstream_timeout", None),
    Lack.CUT_OFF: ("upstream_unusable", None),
    Lack.UNUSABLE: ("upstream_unusable", None),
}


@on_each_loop
async def test_a_failed_call_is_answered_under_its_ids() -> None:
    """Each lack has its code and status; the error stands under the call's id, in a batch once for each id."""
    bodies: list[tuple[bytes, Any]] = [
        (b'{"jsonrpc":"2.0","id":"a\\u00e9","method":"m"}', "aé"),
        (b'{"id":0,"method":"m"}', 0),
        (b'{"id":null,"method":"m"}', None),
        (b'{"method":"m"}', None),
        (b'{"id":7}', 7),
        (b"", None),
        (b"no json", None),
        (b'[{"id":1,"method":"m"},{"method":"m"},3,{"id":"x","method":"m"},{"id":null,"method":"m"}]', [1, "x", None]),
        (b'[{"method":"m"},5]', None),
        (b"[" + b"1," * 60_000 + b'{"id":1,"method":"m"}]', None),
    ]
    async with serving() as rig:
        wire = await rig.wire()
        for lack, (name, retry_after) in FAILURES.items():
            case = CATALOGUE[name]
            rig.upstream.script = lambda sent, lack=lack: sent.fail(Failure(lack, "node:8545: words"))
            for body, ids in bodies:
                await wire.send(post(body=body))
                reply = await wire.reply()
                answer = json.loads(reply.body)
                assert reply.status == case.http
                assert reply.headers.get("retry-after") == retry_after
                assert reply.headers["content-type"] == "application/json"
                assert ([one["id"] for one in answer] if isinstance(answer, list) else answer["id"]) == ids
                errors = answer if isinstance(answer, list) else [answer]
                assert {one["error"]["code"] for one in errors} == {case.code}
        assert rig.count("pass", "failed") == len(FAILURES) * len(bodies)


@on_each_loop
async def test_what_may_be_repeated_is_asked_of_the_router() -> None:
    """The pool's question about a second try reaches the router with the body."""
    async with serving() as rig:
        rig.upstream.hold()
        _, sent = await rig.asked(post())
        assert sent.repeatable is not None
        assert sent.repeatable()
        rig.routes.reads = False
        assert not sent.repeatable()
        sent.answer()


@on_each_loop
async def test_answers_of_the_router() -> None:
    """An answer at once and one in the future are written with their status, headers and a JSON type."""
    async with serving() as rig:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        ways: list[Answer | asyncio.Future[Answer]] = [
            Answer(400, b'{"id":1}', (("X-Note", "a"),)),
            Answer(204, b""),
            future,
        ]
        rig.routes.decide = lambda body: ways.pop(0)
        wire = await rig.wire()
        await wire.send(post() * 3)
        first, second = await wire.reply(), await wire.reply()
        assert (first.status, first.body, first.headers["x-note"]) == (400, b'{"id":1}', "a")
        assert first.headers["content-type"] == "application/json"
        assert (second.status, second.headers.get("content-type")) == (204, None)
        future.set_result(Answer(200, b'{"id":3}'))
        assert (await wire.reply()).body == b'{"id":3}'
        assert not rig.upstream.sent
        assert (rig.count("refused", "answered"), rig.count("submission", "answered")) == (2, 1)


@on_each_loop
async def test_our_own_answers_have_a_date() -> None:
    """An origin server with a clock says when it answered."""
    async with serving() as rig:
        for request in (GET, post("Content-Length: 1"), GET.replace(b"GET", b"OPTIONS")):
            date = parsedate_to_datetime((await rig.ask(request)).headers["date"])
            assert abs((datetime.now(UTC) - date).total_seconds()) < 60


@on_each_loop
async def test_connections_are_shown() -> None:
    """The gauge is the number of open clients, and a listener may be given as a bound socket."""
    async with serving() as rig:
        await rig.ask(post())
        wire = await rig.wire()
        await wire.send(post())
        await wire.reply()
        while rig.server.connections != 1:
            await turns()
        assert [sample.value for sample in rig.metrics.connections.collect().samples] == [1]
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        server = HttpServer(Settings(), rig.routes, rig.upstream, Metrics(), report=lambda *_: None)
        assert await server.start(bound) == bound.getsockname()
        await server.drain(0)


# Browsers.


def asks_from(origin: str, *lines: str, method: str = "POST") -> bytes:
    """A browser's request."""
    return post(f"Origin: {origin}", *lines).replace(b"POST", method.encode(), 1)


@on_each_loop
async def test_a_preflight_allows_what_is_asked_for() -> None:
    """Requested headers come back, private networks are allowed, the answer may be kept; nonsense is not echoed."""
    async with serving() as rig:
        asked_for = "content-type,idempotency-key, prefer"
        private = "access-control-request-private-network: true"
        lines = ("Access-Control-Request-Method: POST", f"access-control-request-headers: {asked_for}", private)
        reply = await rig.ask(asks_from("https://app.example", *lines, method="OPTIONS"))
        assert (reply.status, reply.body) == (204, b"")
        assert reply.headers["access-control-allow-origin"] == "*"
        assert reply.headers["access-control-allow-headers"] == asked_for
        assert "POST" in reply.headers["access-control-allow-methods"].split(", ")
        assert reply.headers["access-control-allow-private-network"] == "true"
        assert int(reply.headers["access-control-max-age"]) > 0
        odd = "Access-Control-Request-Headers: a, b\x80{}"
        reply = await rig.ask(asks_from("https://app.example", odd, method="OPTIONS"))
        assert not {"access-control-allow-headers", "access-control-allow-private-network"} & set(reply.headers)


@on_each_loop
async def test_listed_origins() -> None:
    """With a list only its origins may read an answer, caches are told so, and errors are no exception."""
    async with serving(cors_origins=["https://a.example", "https://b.example"], max_body_bytes=1024) as rig:
        too_large, broken = ("X-A: b", "Content-Length: 9999"), ("X-A: b", "Expect: more")
        for lines, status in (((), 200), (too_large, 400), (broken, 417)):
            for origin, allowed in (("https://b.example", True), ("https://c.example", False), ("null", False)):
                reply = await rig.ask(asks_from(origin, *lines))
                assert reply.status == status
                assert reply.headers.get("access-control-allow-origin") == (origin if allowed else None)
                assert reply.headers["vary"] == "Origin"
        reply = await rig.ask(asks_from("https://a.example", "X: " + "a" * 20_000))
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (431, "https://a.example")
        reply = await rig.ask(asks_from("https://c.example", method="OPTIONS"))
        assert "access-control-allow-origin" not in reply.headers


@on_each_loop
async def test_a_503_of_the_router_says_when_to_come_back() -> None:
    """As that of a call that could not be passed on does: a submission that found no node, or came in the drain."""
    async with serving() as rig:
        rig.routes.decide = lambda body: Answer(503, b'{"id":1}')
        assert (await rig.ask(post())).headers["retry-after"] == "1"


@on_each_loop
async def test_a_known_head_without_its_end_is_no_request_yet() -> None:
    """A head that ends in the read where a remembered one of a request without a body did, and goes on in the next."""
    async with serving() as rig:
        wire = await rig.wire()
        known = post("Content-Length: 0", "X-Trace: a", body=b"", length=False)
        for _ in range(2):  # what comes once is not remembered
            await wire.send(known)
            assert (await wire.reply()).status == 200
        await wire.send(known.removesuffix(b"\r\n\r\n"))
        await turns()
        await wire.send(b"b\r\n\r\n")
        assert (await wire.reply()).status == 200
        assert [sent.lines for sent in rig.upstream.sent] == [b"X-Trace: a\r\n"] * 2 + [b"X-Trace: ab\r\n"]


@on_each_loop
async def test_what_else_an_answer_varies_by_is_told() -> None:
    """Of the node's Vary only Origin is ours to say: the node never sees one."""
    plan = read(b"HTTP/1.1 200 OK\r\nVary: Accept-Encoding, Origin\r\nVary: Origin\r\nContent-Length: 0")
    assert isinstance(plan, Plan)
    for origins, expected in ((["*"], [b"Accept-Encoding"]), (["https://a.example"], [b"Accept-Encoding", b"Origin"])):
        async with serving(cors_origins=origins) as rig:
            rig.upstream.script = lambda sent: sent.answer(head=plan.head)
            wire = await rig.wire()
            await wire.send(asks_from("https://a.example"))
            head = await wire._until(b"\r\n\r\n")
            assert re.findall(rb"\r\nVary: ([^\r]*)", head) == expected
