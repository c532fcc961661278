"""What a browser must read in an answer before it shows it to a page, and the answer to its preflight.

Job: the CORS lines for each answer, errors included: a browser hides an answer without them, and wallets then post
the call again.
Rules: the lines depend on the request head's bytes and the settings only. Whatever header a page asks for is allowed
back, for a refused one is "Failed to fetch" to it. No credentials: the relay reads no cookies.
Must not know: methods other than OPTIONS, connections, answers.

Source: https://fetch.spec.whatwg.org/#http-cors-protocol
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ANY: Final = "*"
ALLOWED_METHODS: Final = b"POST, GET, HEAD, OPTIONS"
_EXPOSED: Final = b"Access-Control-Expose-Headers: Retry-After, ETag, Location, Preference-Applied\r\n"
_PER_ORIGIN: Final = b"Vary: Origin\r\n"
_MAX_AGE_S: Final = 86400
_NAMES: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z, \t]{1,2048}")


def _value_of(name: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"\r\n" + name + rb":[ \t]*([^\r\n]*?)[ \t]*\r\n", re.IGNORECASE)


_ORIGIN: Final = _value_of(b"Origin")
_ASKED_NAMES: Final = _value_of(b"Access-Control-Request-Headers")
_ASKED_PRIVATE: Final = _value_of(b"Access-Control-Request-Private-Network")


class Tails(NamedTuple):
    """The ends of an answer's head, from CORS to the empty line: where the connection is kept, where HTTP/1.0 keeps it,
    where it closes behind the answer."""

    keep: bytes
    keep_old: bytes
    last: bytes


class Cors:
    """Who may read the answers of one server. ``origins``: ``*``, or each allowed origin as a browser writes it."""

    def __init__(self, origins: Sequence[str]) -> None:
        names = [origin.encode() for origin in origins]
        self._open = _tails(_allow(b"*") + _EXPOSED) if ANY in origins else None
        self._allowed = {name: _tails(_allow(name) + _PER_ORIGIN + _EXPOSED) for name in names}
        self._others = _tails(_PER_ORIGIN)

    def tails(self, head: bytes) -> Tails:
        """For whatever answers the request with this head (or part of one)."""
        return self._open or self._allowed.get(_find(_ORIGIN, head), self._others)

    def headers(self, head: bytes) -> dict[str, str]:
        """The same lines, for a library that writes the answer's head itself."""
        lines = self.tails(head).keep.decode().split("\r\n")
        return dict(line.split(": ", 1) for line in lines if line)


def _allow(origin: bytes) -> bytes:
    return b"Access-Control-Allow-Origin: %b\r\n" % origin


def _tails(lines: bytes) -> Tails:
    return Tails(lines + b"\r\n", lines + b"Connection: keep-alive\r\n\r\n", lines + b"Connection: close\r\n\r\n")


def preflight(head: bytes) -> bytes:
    """The further lines of the answer to OPTIONS. They allow nothing unless `Cors` allows the origin."""
    lines = [
        b"Allow: " + ALLOWED_METHODS,
        b"Access-Control-Allow-Methods: " + ALLOWED_METHODS,
        b"Access-Control-Max-Age: %d" % _MAX_AGE_S,
    ]
    if _NAMES.fullmatch(names := _find(_ASKED_NAMES, head)):
        lines.append(b"Access-Control-Allow-Headers: " + names)
    if _find(_ASKED_PRIVATE, head) == b"true":
        lines.append(b"Access-Control-Allow-Private-Network: true")
    return b"\r\n".join(lines) + b"\r\n"


def _find(pattern: re.Pattern[bytes], head: bytes) -> bytes:
    found = pattern.search(head)
    return found[1] if found else b""
