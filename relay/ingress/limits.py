"""The states of a client connection, and what each may take: seconds, bytes, connections."""

from __future__ import annotations

import fcntl
import sys
import termios
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio


class State(Enum):
    """What a connection is doing."""

    IDLE = "no byte of a request is here"
    HEAD = "a part of a head is here"
    BODY = "the head is here, the body is not complete"
    WORKING = "the request is complete, nothing of its answer is written"
    ANSWERING = "the head of a streamed answer is written"
    FLUSHING = "the answer is given and the client does not read it; nothing new is taken up"
    LINGERING = "the last answer is given; what still comes is discarded, so that the client gets to read it"
    CLOSING = "closed from our side"
    HANDED_OVER = "the transport belongs to the WebSocket side"
    GONE = "the transport is closed"


IDLE: Final = State.IDLE
WORKING: Final = State.WORKING

READING: Final = frozenset({State.IDLE, State.HEAD, State.BODY})
IN_WORK: Final = frozenset({State.WORKING, State.ANSWERING})
BUSY: Final = frozenset({State.WORKING, State.ANSWERING, State.FLUSHING})

HEAD_S: Final = 10.0
"""From the first byte of a request to the end of its head."""
BODY_S: Final = 60.0
"""From there to the end of its body."""
LINGER_S: Final = 2.0
"""For the client to read an answer after which we close, while it may still be sending."""
RETIRED_IDLE_S: Final = 2.0
"""For an idle connection to send its last request, when another process takes over. A client in the middle of its work
sends one by then and is told with the answer; closed at once, it would meet the end of the connection half-way."""
PROGRESS_S: Final = 30.0
"""How long a client may take no byte of what is written for it."""

MAX_HEAD_BYTES: Final = 16_384
MAX_HEAD_LINES: Final = 100
MAX_AHEAD: Final = 65_536
"""Bytes that may wait behind the request in work before reading stops."""
HIGH_WATER: Final = 65_536
LOW_WATER: Final = 16_384
"""Unsent bytes at which the upstream is held, and let go again. uvloop's own low mark of 16 bytes would be too late."""
MAX_TURNED_AWAY: Final = 256
"""Connections beyond [server] max_connections that are told so at a time; further ones are cut without a word."""


class Watch:
    """Times one connection. A state is timed from the first look that finds it, so that no clock is read for a
    request: never early, a little late."""

    __slots__ = ("_moved", "_unsent", "since")

    def __init__(self) -> None:
        self.since: float | None = None
        """When the present state was first looked at; None with each new one."""
        self._unsent = 0
        self._moved = 0.0

    def late(self, now: float, limit_s: float) -> bool:
        """Has the state lasted for ``limit_s``?"""
        if self.since is None:
            self.since = now
        return now - self.since >= limit_s

    def stuck(self, now: float, transport: asyncio.Transport) -> bool:
        """Do bytes wait for the client of which it has taken none for `PROGRESS_S`?"""
        unsent = transport.get_write_buffer_size()
        if unsent:
            unsent += _queued_by_kernel(transport)
        if unsent != self._unsent:
            self._unsent = unsent
            self._moved = now
        return unsent > 0 and now - self._moved >= PROGRESS_S


def _queued_by_kernel(transport: asyncio.Transport) -> int:
    """Bytes the client's side has not acknowledged. The kernel takes new ones from us in steps of a megabyte and more,
    which a slow client needs longer for than `PROGRESS_S`. 0 where the system does not tell."""
    try:
        count = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):
        return 0
    return int.from_bytes(count, sys.byteorder)
