"""Requests of every kind, and what becomes of each: the table that the way in is held to, in every cut."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import Final

from tests.ingress_rig import BODY, post

LIMIT: Final = 4096
"""``max_body_bytes`` of the server in front of which the table is run."""


@dataclass(frozen=True)
class Row:
    """One request. ``passed``: the body that reaches the upstream, None if none does; ``code``: of the JSON error."""

    name: str
    request: bytes
    status: int = 200
    code: int | None = None
    kept: bool = True
    passed: bytes | None = None
    to_head: bool = False


def passed(name: str, request: bytes, body: bytes = BODY, *, kept: bool = True) -> Row:
    """A call that is passed on."""
    return Row(name, request, passed=body, kept=kept)


def refused(name: str, request: bytes, status: int = 400) -> Row:
    """A request that costs its connection."""
    return Row(name, request, status, -32600, kept=False)


def too_large(name: str, request: bytes) -> Row:
    """A body beyond `LIMIT`."""
    return Row(name, request, 413, -32021, kept=False)


def chunked(body: bytes, *lines: str, version: str = "1.1") -> bytes:
    """A POST whose body has this chunked form."""
    return post("Transfer-Encoding: chunked", *lines, body=body, length=False, version=version)


def headless(text: bytes) -> bytes:
    """A POST whose header lines are ``text``, with whatever ends its lines."""
    return b"POST / HTTP/1.1\r\nHost: relay\r\n" + text + b"Content-Length: 0\r\n\r\n"


def _in_one_chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


_ONE: Final = _in_one_chunk(BODY)
_GZIPPED: Final = gzip.compress(BODY)
_NEXT: Final = post(body=b'{"id":2}')

_LENGTHS: Final = ("5, 5", "+5", "-5", "0x5", "5 5", "", str(2**64 + 5))

FRAMING: Final = (
    refused("length and chunks", post("Transfer-Encoding: chunked", body=_ONE)),
    refused("chunks and length", chunked(_ONE, f"Content-Length: {len(_ONE)}")),
    refused("two equal lengths", post(f"Content-Length: {len(BODY)}")),
    refused("two lengths", post("Content-Length: 7")),
    *(refused(f"length {text!r}", post(f"Content-Length: {text}", body=b"12345", length=False)) for text in _LENGTHS),
    refused("gzip, chunked", post("Transfer-Encoding: gzip, chunked", body=_ONE, length=False), 501),
    refused("chunked twice", chunked(_ONE, "Transfer-Encoding: chunked")),
    *(
        refused(f"transfer {text!r}", post(f"Transfer-Encoding: {text}", body=_ONE, length=False))
        for text in ("xchunked", "\x0bchunked", "chunked, identity", "identity", "gzip", "")
    ),
    refused("chunks in HTTP/1.0", chunked(_ONE, version="1.0")),
    passed("chunked", chunked(_ONE)),
    passed("chunked in another case, with space", post("transfer-encoding:  Chunked ", body=_ONE, length=False)),
    passed("several chunks", chunked(b"5\r\n%b\r\n0A\r\n%b\r\n000\r\n\r\n" % (BODY[:5], BODY[5:15])), BODY[:15]),
    passed("chunk extensions and trailers", chunked(b'5;a=b;c="d"\r\n12345\r\n0;x\r\nX-Sum: 1\r\n\r\n'), b"12345"),
    passed("an empty line in a chunk", chunked(b"8\r\n\r\n\r\n\r\n\r\n\r\n0\r\n\r\n"), b"\r\n\r\n\r\n\r\n"),
    passed("no chunk", chunked(b"0\r\n\r\n"), b""),
    refused("chunk size with space behind", chunked(b"5 \r\n12345\r\n0\r\n\r\n")),
    refused("chunk size with space before", chunked(b" 5\r\n12345\r\n0\r\n\r\n")),
    refused("chunk size 0x5", chunked(b"0x5\r\n12345\r\n0\r\n\r\n")),
    refused("chunk size ended by LF", chunked(b"5\n12345\r\n0\r\n\r\n")),
    refused("chunk ended by LF", chunked(b"5\r\n12345\n0\r\n\r\n")),
    refused("chunk without its CRLF", chunked(b"5\r\n123450\r\n\r\n")),
    refused("chunk longer than its size", chunked(b"5\r\n123456\r\n0\r\n\r\n")),
    refused("chunk size 2^64", chunked(b"10000000000000000\r\n12345\r\n0\r\n\r\n")),
    refused("length in the trailers", chunked(b"0\r\nContent-Length: 5\r\n\r\n")),
    refused("trailers ended by LF", chunked(b"0\r\nX: y\n\r\n\r\n")),
    passed("no length", post(length=False, body=b""), b""),
    passed("length 0", post(body=b""), b""),
    passed("length with 5,000 zeros", post(f"Content-Length: {len(BODY):05000}", length=False)),
    passed("length with leading zeros", post(f"Content-Length: {len(BODY):06}", length=False)),
)

HEADS: Final = (
    *(
        refused(f"first line {line!r}", post().replace(b"POST / HTTP/1.1", line))
        for line in (b"POST  / HTTP/1.1", b"POST /  HTTP/1.1", b"POST\t/ HTTP/1.1", b"POST /\tHTTP/1.1")
    ),
    refused("LF behind the request line", b"POST / HTTP/1.1\nHost: relay\r\nContent-Length: 0\r\n\r\n"),
    refused("LF behind a header", headless(b"X: y\n")),
    refused("LF for every line", b"POST / HTTP/1.1\nHost: relay\nContent-Length: 0\n\n"),
    refused("control character in a value", headless(b"X: a\x01b\r\n")),
    refused("DEL in a value", headless(b"X: a\x7fb\r\n")),
    refused("odd name", headless(b"X(y): a\r\n")),
    refused("no colon", headless(b"Xy\r\n")),
    refused("bare CR", headless(b"X: a\rb\r\n")),
    refused("folded header", headless(b"X: a\r\n b\r\n")),
    refused("NUL", headless(b"X: a\0b\r\n")),
    refused("space before the colon", headless(b"X : a\r\n")),
    refused("empty name", headless(b": a\r\n")),
    refused("no Host", b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
    refused("two Hosts", post("Host: relay")),
    refused("two Hosts in HTTP/1.0", post("host: other", version="1.0")),
    refused("value of 20 KB", post("X: " + "a" * 20_000), 431),
    refused("value without an end", b"POST / HTTP/1.1\r\nHost: relay\r\nX: " + b"a" * 20_000, 431),
    refused("130 headers", post(*(f"X-{n}: y" for n in range(130))), 431),
    refused("10,000 headers", post(*(f"X-{n}: y" for n in range(10_000))), 431),
    passed("90 headers", post(*(f"X-{n}: y" for n in range(90)))),
    refused("HTTP/2.0", post(version="2.0"), 505),
    refused("HTTP/1.2", post(version="1.2"), 505),
    refused("no version", b"GET /\r\n\r\n", 505),
    refused("no version, with LF", b"GET /\n\n", 505),
    refused("RTSP", b"POST / RTSP/1.0\r\nHost: relay\r\nContent-Length: 0\r\n\r\n", 505),
    refused("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    refused("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)),
    refused("PROXY line", b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n" + post()),
    refused("PROXY, version 2", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12) + post()),
    refused("unknown method", b"CALL / HTTP/1.1\r\nHost: relay\r\n\r\n"),
    refused("method in lower case", b"post / HTTP/1.1\r\nHost: relay\r\n\r\n"),
    refused("high bytes in the target", post(target="/\x80")),
    passed("empty lines before", b"\r\n\r\n\n\r" + post()),
    passed("absolute target", post(target="http://relay:8645/v1/key?x=1")),
    passed("high bytes in a value", post("X: caf\xe9")),
    passed("any path and query", post(target="/v3/abc?key=def&%20")),
    passed("tab and no space around values", post("A:b", "C:\td\t")),
    passed("a name in any case", post(f"CONTENT-length: {len(BODY)}", length=False)),
)

CLOSING: Final = (
    passed("Connection: close", post("Connection: close"), kept=False),
    passed("Connection: close, then more", post("Connection: Close") + _NEXT, kept=False),
    passed("close among others", post("Connection: x-one, close", "X-One: y"), kept=False),
    passed("HTTP/1.0", post(version="1.0"), kept=False),
    passed("HTTP/1.0 without Host", b"POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\n1", b"1", kept=False),
    passed("HTTP/1.0, then more", post(version="1.0") + _NEXT, kept=False),
    passed("HTTP/1.0 with keep-alive", post("Connection: Keep-Alive", version="1.0")),
    passed("HTTP/1.0 with close and keep-alive", post("Connection: keep-alive, close", version="1.0"), kept=False),
)

MEANINGS: Final = (
    passed("plain", post()),
    passed("expects", post("Expect: 100-Continue")),
    passed("expects in HTTP/1.0", post("Expect: 100-continue", "Connection: keep-alive", version="1.0")),
    refused("expects something else", post("Expect: 200-ok"), 417),
    refused("unknown content encoding", post("Content-Encoding: br"), 415),
    refused("two content encodings", post("Content-Encoding: gzip, gzip"), 415),
    refused("gzip twice", post("Content-Encoding: gzip", "Content-Encoding: gzip"), 415),
    passed("identity", post("Content-Encoding: identity")),
    passed("gzip", post("Content-Encoding: gzip", body=_GZIPPED)),
    passed("x-gzip in chunks", chunked(_in_one_chunk(_GZIPPED), "Content-Encoding: X-GZIP")),
    passed("gzip of exactly the limit", post("Content-Encoding: gzip", body=gzip.compress(b"a" * LIMIT)), b"a" * LIMIT),
    too_large("gzip beyond the limit", post("Content-Encoding: gzip", body=gzip.compress(b"a" * (LIMIT + 1)))),
    too_large("gzip bomb", post("Content-Encoding: gzip", body=gzip.compress(b"a" * 1_000_000))),
    passed("gzip in members", post("Content-Encoding: gzip", body=_GZIPPED + gzip.compress(b"") + _GZIPPED), BODY * 2),
    passed("gzip in members and chunks", chunked(_in_one_chunk(_GZIPPED * 2), "Content-Encoding: gzip"), BODY * 2),
    too_large(
        "gzip in members beyond the limit",
        post("Content-Encoding: gzip", body=gzip.compress(b"a" * LIMIT) + gzip.compress(b"a")),
    ),
    refused("gzip whose second member is cut short", post("Content-Encoding: gzip", body=_GZIPPED + _GZIPPED[:-4])),
    refused("no gzip", post("Content-Encoding: gzip")),
    refused("empty gzip", post("Content-Encoding: gzip", body=b"")),
    refused("gzip cut short", post("Content-Encoding: gzip", body=_GZIPPED[:-4])),
    refused("bytes behind the gzip", post("Content-Encoding: gzip", body=_GZIPPED + b"more")),
    refused("gzip with a wrong sum", post("Content-Encoding: gzip", body=_GZIPPED[:-8] + bytes(8))),
    passed("body of exactly the limit", post(body=b"a" * LIMIT), b"a" * LIMIT),
    too_large("body beyond the limit", post(body=b"a" * (LIMIT + 1))),
    too_large("chunks beyond the limit", chunked(_in_one_chunk(b"a" * (LIMIT + 1)))),
    Row("GET", b"GET /health HTTP/1.1\r\nHost: relay\r\n\r\n"),
    Row("GET with a body", b"GET / HTTP/1.1\r\nHost: relay\r\nContent-Length: 3\r\n\r\nabc"),
    Row("GET in HTTP/1.0", b"GET / HTTP/1.0\r\n\r\n", kept=False),
    Row("GET that asks for WebSocket where there is none",
        b"GET / HTTP/1.1\r\nHost: relay\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
    Row("GET that asks for HTTP/2",
        b"GET / HTTP/1.1\r\nHost: relay\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"),
    Row("HEAD", b"HEAD / HTTP/1.1\r\nHost: relay\r\n\r\n", to_head=True),
    Row("OPTIONS", b"OPTIONS * HTTP/1.1\r\nHost: relay\r\n\r\n", 204),
    passed("POST that asks for an upgrade", post("Connection: upgrade", "Upgrade: websocket")),
    *(
        refused(f"method {method.decode()}", method + b" / HTTP/1.1\r\nHost: relay\r\nContent-Length: 2\r\n\r\n{}", 405)
        for method in (b"PUT", b"DELETE", b"PATCH", b"TRACE")
    ),
    refused("CONNECT", b"CONNECT relay:1 HTTP/1.1\r\nHost: relay\r\n\r\n", 405),
)  # fmt: skip

ROWS: Final = (*FRAMING, *HEADS, *CLOSING, *MEANINGS)
