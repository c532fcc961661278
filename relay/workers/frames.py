"""Tuples ↔ bytes, for links between processes of one relay.

    link = GREETING, then frames        frame = length (4 bytes, big-endian), then the tuple by marshal

Job: encode one frame; cut a stream into frames, wherever reads cut it.
Rules: the greeting is compared before anything is decoded, so that a stranger and another version of the relay are
turned away unread; behind it only a process of ours can speak, for marshal must never meet a stranger's bytes. What is
no frame is `Garbled`, and the stream is of no more use. A large frame is put together once, not at each read.
Must not know: sockets, what a frame means.
"""

from __future__ import annotations

import marshal
from typing import Any, Final

from relay.errors import Fault

Frame = tuple[Any, ...]
"""Of None, bool, int, float, str, bytes, and tuples, lists and dicts of these."""

GREETING: Final = b"relay link 2\n"
"""The number is that of the frames' meaning: another one is another language."""
MAX_FRAME: Final = 512 * 1024 * 1024
"""Bytes. Above whatever may be in flight at all, so that no frame of ours meets it."""

_HEAD: Final = 4
_PLAIN: Final = 2
"""marshal's version without references between objects: quicker to write, and the same bytes for equal tuples."""


class Garbled(Fault):
    """The other end sent what is no frame."""


def encode(frame: Frame) -> bytes:
    """One frame's bytes."""
    body = marshal.dumps(frame, _PLAIN)
    return len(body).to_bytes(_HEAD) + body


class Decoder:
    """Cuts one stream."""

    __slots__ = ("_held", "_limit", "_needed", "_parts", "greeted")

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self.greeted = False
        """The other end has spoken, and is one of ours."""
        self._parts: list[bytes] = []
        self._held = 0
        self._needed = len(GREETING)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete by now. Raises Garbled."""
        if self._parts or not self.greeted:
            self._hold(data)
            if self._held < self._needed:
                return []
            data = b"".join(self._parts)
            self._parts.clear()
            self._held = 0
        return self._cut(data, self._greet(data))

    def _hold(self, data: bytes) -> None:
        self._parts.append(data)
        self._held += len(data)

    def _greet(self, data: bytes) -> int:
        """Where the frames begin."""
        if self.greeted:
            return 0
        if not data.startswith(GREETING):
            raise Garbled(f"the other end is no relay of this version: it began with {data[:20]!r}")
        self.greeted = True
        return len(GREETING)

    def _cut(self, data: bytes, at: int) -> list[Frame]:
        frames = []
        needed = _HEAD
        while (body := at + _HEAD) <= len(data):
            stop = body + self._length(data[at:body])
            if stop > len(data):
                needed = stop - at
                break
            frames.append(_decode(data[body:stop]))
            at = stop
        if at < len(data):
            self._hold(data[at:])
            self._needed = needed
        return frames

    def _length(self, head: bytes) -> int:
        length = int.from_bytes(head)
        if length > self._limit:
            raise Garbled(f"a frame of {length} bytes, more than {self._limit}")
        return length


def _decode(body: bytes) -> Frame:
    try:
        frame = marshal.loads(body)  # noqa: S302 - see the module: only a process of ours can have written it
    except (ValueError, EOFError, TypeError) as error:
        raise Garbled(f"a frame that cannot be read: {error}") from error
    if type(frame) is not tuple:
        raise Garbled(f"a frame that is no tuple but {type(frame).__name__}")
    return frame
