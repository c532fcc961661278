"""A request's body, taken off the wire piece by piece, in bounded memory.

Job: find the body's end (Content-Length or chunks), inflate gzip, refuse what is malformed or too large.
Rules: llhttp decodes the chunks. What is kept never exceeds the limit by more than one read; a gzip body, of one
member or many, is inflated as it comes and no further than the limit.
Must not know: what is in the body, connections.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from httptools import HttpParserError, HttpRequestParser

from relay.errors import BODY_TOO_LARGE, HTTP_INVALID, Refusal

if TYPE_CHECKING:
    from relay.ingress.head import Plan

_END: Final = b"\r\n\r\n"
_STARTS_OF_END: Final = (b"\r\n\r", b"\r\n", b"\r")
_CHUNKED_HEAD: Final = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
_GZIP_ONLY: Final = 31
_MAX_MEMBERS: Final = 1024
"""Of one gzip body: each costs some work, and an empty one has twenty bytes."""


class BodyReader:
    """Reads one body as ``plan`` describes it. ``body`` is complete once `take` has returned bytes."""

    __slots__ = ("_body", "_frame", "_gzip", "_limit")

    def __init__(self, plan: Plan, limit: int) -> None:
        self._frame = _Chunked() if plan.length is None else _Sized(plan.length)
        self._gzip = _Gzip() if plan.gzip else None
        self._limit = limit
        self._body = bytearray()

    @property
    def body(self) -> bytes:
        """What has come so far, inflated."""
        return bytes(self._body)

    def take(self, data: bytes) -> bytes | Refusal | None:
        """Read on: what stands behind the body if it is complete, None if it is not, or why it is refused."""
        try:
            payload, rest = self._frame.take(data)
            self._keep(payload, last=rest is not None)
        except HttpParserError as error:
            return HTTP_INVALID.refusal(detail=str(error))
        except zlib.error:
            detail = f"the body is not the gzip its Content-Encoding says, or has more than {_MAX_MEMBERS} members"
            return HTTP_INVALID.refusal(detail=detail)
        if len(self._body) > self._limit:
            return BODY_TOO_LARGE.refusal(limit=self._limit)
        return rest

    def _keep(self, payload: bytes, *, last: bool) -> None:
        if self._gzip is None:
            self._body += payload
            return
        while payload and len(self._body) <= self._limit:
            inflated, payload = self._gzip.take(payload, self._limit - len(self._body) + 1)
            self._body += inflated
        if last and not self._gzip.complete and len(self._body) <= self._limit:
            raise zlib.error


class _Gzip:
    """A gzip body: one member, or several one behind the other (RFC 1952, 2.2)."""

    __slots__ = ("_member", "_members")

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=_GZIP_ONLY)
        self._members = 1

    @property
    def complete(self) -> bool:
        """Does the last member end where we are?"""
        return self._member.eof

    def take(self, data: bytes, room: int) -> tuple[bytes, bytes]:
        """At most ``room`` inflated bytes of one member, and what stands behind it. Raises zlib.error."""
        if self._member.eof:
            self._members += 1
            if self._members > _MAX_MEMBERS:
                raise zlib.error
            self._member = zlib.decompressobj(wbits=_GZIP_ONLY)
        return self._member.decompress(data, room), self._member.unused_data


class _Sized:
    """A body of known length."""

    __slots__ = ("_left",)

    def __init__(self, length: int) -> None:
        self._left = length

    def take(self, data: bytes) -> tuple[bytes, bytes | None]:
        """The body's share of ``data``, and what stands behind the body (None: it goes on)."""
        payload = data[: self._left]
        self._left -= len(payload)
        return payload, None if self._left else data[len(payload) :]


class _Payload:
    """What llhttp hears."""

    __slots__ = ("complete", "pieces")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.complete = False

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.complete = True


class _Chunked:
    """A chunked body. llhttp does not say where it ended, but it can only be behind an empty line: feed it up to each.

    The beginning of an empty line at the end of a read is held back, so that none is ever fed in two pieces.
    """

    __slots__ = ("_heard", "_held", "_parser")

    def __init__(self) -> None:
        self._heard = _Payload()
        self._parser = HttpRequestParser(self._heard)
        self._parser.feed_data(_CHUNKED_HEAD)
        self._held = b""

    def take(self, data: bytes) -> tuple[bytes, bytes | None]:
        """As `_Sized.take`. Raises HttpParserError."""
        data = self._held + data
        start = 0
        while (end := data.find(_END, start)) >= 0:
            start = self._feed(data, start, end + len(_END))
            if self._heard.complete:
                return self._payload(), data[start:]
        hold = next((len(part) for part in _STARTS_OF_END if data.endswith(part, start)), 0)
        start = self._feed(data, start, len(data) - hold)
        self._held = data[start:]
        return self._payload(), None

    def _feed(self, data: bytes, start: int, end: int) -> int:
        self._parser.feed_data(memoryview(data)[start:end])
        return end

    def _payload(self) -> bytes:
        payload = b"".join(self._heard.pieces)
        self._heard.pieces.clear()
        return payload
