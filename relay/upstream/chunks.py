"""A chunked body, decoded by httptools.

Job: bytes as they come → bytes of the body, and whether it is complete.
Rules: the parser is given a head of our own, for the real one has been read already (`head`). Trailers are dropped.
Must not know: connections, sinks.
"""

from __future__ import annotations

from typing import Final

import httptools

_HEAD: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class _Heard:
    """What the parser calls. Apart from `ChunkedBody`, so that no cycle is made for each answer."""

    __slots__ = ("complete", "followed", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.complete = False
        self.followed = False

    def on_message_begin(self) -> None:
        self.followed = self.complete

    def on_body(self, part: bytes) -> None:
        self.parts.append(part)

    def on_message_complete(self) -> None:
        self.complete = True


class ChunkedBody:
    """One body. After `feed`: is it ``complete``, did bytes ``followed`` its end, what ``flaw`` ended it."""

    __slots__ = ("_heard", "_parser", "flaw")

    def __init__(self) -> None:
        self._heard = _Heard()
        self._parser = httptools.HttpResponseParser(self._heard)
        self._parser.feed_data(_HEAD)
        self.flaw: str | None = None

    @property
    def complete(self) -> bool:
        """The last chunk and its trailers have been read."""
        return self._heard.complete

    @property
    def followed(self) -> bool:
        """Something that is not part of the body came behind it (an empty line apart)."""
        return self._heard.followed

    def feed(self, data: bytes) -> bytes:
        """Decode ``data``; what comes back are the body's next bytes, all of them in one piece."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if not self.complete:
                self.flaw = str(error)
        parts, self._heard.parts = self._heard.parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)
