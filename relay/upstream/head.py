"""The head of an upstream's answer: is it one, what of it goes to the client, where does the body end.

Job: bytes → `Plan`, or a text saying why no answer can follow such a head.
Rules: httptools (llhttp, strict) judges the syntax; what it lets through and must not pass is checked by hand. A plan
depends on the head's bytes alone, so it is remembered by them.
Must not know: connections, sinks, time.

Source: RFC 9110, RFC 9112 section 6.3.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

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
_NOTED: Final = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"vary"})
_REMEMBERED_NAMES: Final = 512
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


_Fields = dict[bytes, list[bytes]]
"""The values of the headers that say how to go on, by lower-case name."""


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
    status, old = parser.get_status_code(), head.startswith(b"HTTP/1.0")
    status_line, *lines = head.split(b"\r\n")
    fields, kept = _take_apart(lines)
    codings = fields.get(b"transfer-encoding", [])
    if (wrong := _unusable(status, codings, old=old)) is not None:
        return wrong
    options = _options(fields)
    chunked = bool(codings) and not _bodiless(status)
    length = _length(status, fields)
    return Plan(
        head=Head(status, status_line[13:], _end_to_end(kept, options)),
        length=length,
        chunked=chunked,
        keep_s=0.0 if old or b"close" in options or not (chunked or length is not None) else _keep_s(fields),
    )


plans: Final = Memo(read)
"""What `read` gives, by the head."""


@lru_cache(_REMEMBERED_NAMES)
def _header(name: bytes) -> tuple[bytes, bool]:
    """What is done with a header: its lower-case name if its value is noted; whether its line goes to the client."""
    name = name.lower()
    goes_on = name not in _HOP_BY_HOP and not name.startswith(b"access-control-")
    return name if name in _NOTED else b"", goes_on


def _take_apart(lines: list[bytes]) -> tuple[_Fields, list[bytes]]:
    """What the lines say to us, and those that the client gets."""
    fields: _Fields = {}
    kept: list[bytes] = []
    for line in lines:
        name, _, value = line.partition(b":")
        noted, goes_on = _header(name)
        if noted:
            fields.setdefault(noted, []).append(value.strip(b" \t"))
        if noted == b"vary":
            kept += _without_origin(line)
        elif goes_on:
            kept.append(line)
    return fields, kept


def _options(fields: _Fields) -> frozenset[bytes]:
    """What Connection names, in lower case."""
    named = fields.get(b"connection")
    return frozenset(b",".join(named).lower().replace(b" ", b"").split(b",")) if named else frozenset()


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


def _length(status: int, fields: _Fields) -> int | None:
    if _bodiless(status):
        return 0
    lengths = fields.get(b"content-length")
    return int(lengths[0]) if lengths else None


def _keep_s(fields: _Fields) -> float:
    named = _TIMEOUT.search(b",".join(fields.get(b"keep-alive", ())))
    return max(0.0, min(IDLE_S, float(named[1]) - KEEP_ALIVE_MARGIN_S)) if named else IDLE_S


def _end_to_end(lines: list[bytes], options: frozenset[bytes]) -> bytes:
    """``lines`` without those that Connection names, for this hop only."""
    if not options <= _HOP_BY_HOP:
        lines = [line for line in lines if line.partition(b":")[0].lower() not in options]
    return b"\r\n".join([*lines, b""])


def _without_origin(vary: bytes) -> list[bytes]:
    """The line, if anything is left of it: the client's side says itself whether its answer varies by Origin."""
    name, _, value = vary.partition(b":")
    names = [each.strip() for each in value.split(b",")]
    others = [each for each in names if each.lower() != b"origin"]
    if len(others) == len(names):
        return [vary]
    return [name + b": " + b", ".join(others)] if others else []
