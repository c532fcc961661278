"""The head of an upstream's answer: is it one, what of it goes to the client, where does the body end.

Job: bytes → `Plan`, or a text saying why no answer can follow such a head.
Rules: httptools (llhttp, strict) judges the syntax; what it lets through and must not pass is checked by hand. A plan
depends on the head's bytes alone, so it is remembered by them.
Must not know: connections, sinks, time.

Source: RFC 9110, RFC 9112 section 6.3.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import httptools
import msgspec

from relay.upstream.exchange import Head
from relay.upstream.memo import Memo

MAX_HEAD_BYTES: Final = 65_536
IDLE_S: Final = 50.0
"""How long an unused connection is kept: less than what common nodes and balancers allow (60 s and up)."""
KEEP_ALIVE_MARGIN_S: Final = 1.0
"""Where a node names its own limit, the connection is closed this much earlier: the node must not be first."""
END: Final = b"\r\n\r\n"

_START: Final = b"HTTP/1."
_NO_BODY: Final = frozenset({204, 304})
_SWITCHING: Final = 101
_HOP_BY_HOP: Final = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-connection", b"te", b"trailer", b"transfer-encoding",
    b"upgrade", b"content-length",
})  # fmt: skip
_TIMEOUT: Final = re.compile(rb"(?:^|[,;\s])timeout\s*=\s*\"?(\d{1,9})", re.IGNORECASE)


class Plan(msgspec.Struct, frozen=True, gc=False):
    """What a head says. ``length`` None: the body comes in chunks, or lasts until the connection ends.

    ``keep_s``: how long the connection may be kept for another request; 0: it may not.
    A status below 200 is interim: another head follows.
    """

    head: Head
    length: int | None
    chunked: bool
    keep_s: float


class _Field(NamedTuple):
    name: bytes
    value: bytes
    line: bytes


def flaw(partial: bytes) -> str | None:
    """What is already wrong with a head that is not complete, so that nobody waits for its end."""
    if partial[: len(_START)] != _START[: len(partial)]:
        return f"it is no HTTP/1.1, it starts with {partial[:16]!r}"
    if len(partial) > MAX_HEAD_BYTES:
        return f"its head is larger than {MAX_HEAD_BYTES} bytes"
    if partial.count(b"\n") != partial.count(b"\r\n"):
        return "a line of its head does not end with CRLF"
    return None


def read(head: bytes) -> Plan | str:
    """Read a complete head, given without its empty line."""
    if (wrong := flaw(head)) is not None:
        return wrong
    parser = httptools.HttpResponseParser(None)
    try:
        parser.feed_data(head + END)
    except httptools.HttpParserUpgrade:
        pass  # 101, refused below
    except httptools.HttpParserError as error:
        return f"its head is malformed: {error}"
    status, old = parser.get_status_code(), parser.get_http_version() == "1.0"
    status_line, *lines = head.split(b"\r\n")
    fields = [_field(line) for line in lines]
    codings = _values(fields, b"transfer-encoding")
    if (wrong := _unusable(status, codings, old=old)) is not None:
        return wrong
    options = frozenset(b",".join(_values(fields, b"connection")).lower().replace(b" ", b"").split(b","))
    chunked = bool(codings) and not _bodiless(status)
    length = _length(status, fields)
    return Plan(
        head=Head(status, status_line[13:], _end_to_end(fields, options)),
        length=length,
        chunked=chunked,
        keep_s=0.0 if old or b"close" in options or not (chunked or length is not None) else _keep_s(fields),
    )


plans: Final = Memo(read)
"""What `read` gives, by the head."""


def _field(line: bytes) -> _Field:
    name, _, value = line.partition(b":")
    return _Field(name.lower(), value.strip(b" \t"), line)


def _values(fields: list[_Field], name: bytes) -> list[bytes]:
    return [field.value for field in fields if field.name == name]


def _unusable(status: int, codings: list[bytes], *, old: bool) -> str | None:
    """What llhttp takes and we do not."""
    if status == _SWITCHING:
        return "it switches protocols (101), nobody asked for that"
    if status < 100:  # noqa: PLR2004 - the first status there is
        return f"its status is {status}"
    if codings and old:
        return "it is HTTP/1.0 with Transfer-Encoding"
    if codings and [coding.lower() for coding in codings] != [b"chunked"]:
        return f"its Transfer-Encoding is {b', '.join(codings)!r}, not chunked"
    return None


def _bodiless(status: int) -> bool:
    return status < 200 or status in _NO_BODY  # noqa: PLR2004 - interim answers


def _length(status: int, fields: list[_Field]) -> int | None:
    if _bodiless(status):
        return 0
    lengths = _values(fields, b"content-length")
    return int(lengths[0]) if lengths else None


def _keep_s(fields: list[_Field]) -> float:
    named = _TIMEOUT.search(b",".join(_values(fields, b"keep-alive")))
    return max(0.0, min(IDLE_S, float(named[1]) - KEEP_ALIVE_MARGIN_S)) if named else IDLE_S


def _end_to_end(fields: list[_Field], options: frozenset[bytes]) -> bytes:
    kept = (
        _without_origin(field) if field.name == b"vary" else field.line
        for field in fields
        if field.name not in _HOP_BY_HOP and field.name not in options and not field.name.startswith(b"access-control-")
    )
    return b"".join(line + b"\r\n" for line in kept if line)


def _without_origin(vary: _Field) -> bytes:
    """The client's side says itself whether its answer varies by Origin."""
    names = [name.strip() for name in vary.value.split(b",")]
    others = [name for name in names if name.lower() != b"origin"]
    if len(others) == len(names):
        return vary.line
    return vary.line.partition(b":")[0] + b": " + b", ".join(others) if others else b""
