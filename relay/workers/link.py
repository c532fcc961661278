"""One end of a link between two processes of a relay.

Job: frames in and out of one stream socket.
Rules: frames sent in one turn of the loop leave in one write. ``on_closed`` is called once, whichever way it ends, and
never from within a call of ours. What is sent over a link that is closing is dropped: whoever needs an answer hears
``on_closed``. An answering end does not read on while its answers are not taken, so that neither end can make the other
grow; the asking end always reads, for two ends that both wait would wait for ever.
Must not know: what a frame means, who connects.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from relay.workers.frames import GREETING, MAX_FRAME, Decoder, Garbled, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.workers.frames import Frame

HIGH_WATER: Final = 256 * 1024
"""Bytes that the transport holds before it says stop: a few hundred tickets."""
LOW_WATER: Final = 64 * 1024


class Link(asyncio.Protocol):
    """``on_frame`` may raise Garbled for a frame whose shape is wrong: the link is then cut."""

    def __init__(
        self,
        on_frame: Callable[[Frame], None],
        on_closed: Callable[[str], None],
        *,
        on_greeted: Callable[[], None] | None = None,
        answering: bool = False,
        limit: int = MAX_FRAME,
    ) -> None:
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._on_greeted = on_greeted
        self._answering = answering
        self._decoder = Decoder(limit)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._why = "the other end closed it"
        self.closing = False
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def __repr__(self) -> str:
        state = "closed" if self.closed.done() else "closing" if self.closing else "open"
        return f"<link: {state}, {self.backlog} bytes unsent>"

    @property
    def backlog(self) -> int:
        """Bytes that the other end has not taken yet."""
        return self._unsent_bytes + (self._transport.get_write_buffer_size() if self._transport is not None else 0)

    def send(self, frame: Frame) -> None:
        """Send ``frame``, at the end of this turn of the loop."""
        if self.closing:
            return
        data = encode(frame)
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(data)
        self._unsent_bytes += len(data)

    def close(self) -> None:
        """Close it when everything sent has been taken."""
        self._flush()
        self._end("closed here")
        if self._transport is not None:
            self._transport.close()

    def abort(self, why: str) -> None:
        """Cut it, whatever is unsent."""
        self._end(why)
        self._unsent.clear()
        if self._transport is not None:
            self._transport.abort()
        elif not self.closed.done():
            self.closed.set_result(None)  # it was never open

    def _end(self, why: str) -> None:
        if not self.closing:
            self.closing = True
            self._why = why

    def _flush(self) -> None:
        # A transport that has lost its connection must not be written to: uvloop's raises.
        if self._unsent and self._transport is not None and not self.closed.done():
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()
        self._unsent_bytes = 0

    # What the transport says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is ours."""
        self._transport = cast("asyncio.Transport", transport)
        if self.closing:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(HIGH_WATER, LOW_WATER)
        self._transport.write(GREETING)

    def data_received(self, data: bytes) -> None:
        """Bytes: none, one or many frames."""
        try:
            frames = self._decoder.feed(data)
            if self._on_greeted is not None and self._decoder.greeted:
                greeted, self._on_greeted = self._on_greeted, None
                greeted()
            for frame in frames:
                if self.closing:
                    return
                self._on_frame(frame)
        except Garbled as fault:
            self.abort(str(fault))

    def pause_writing(self) -> None:
        """The other end reads too slowly."""
        if self._answering and self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It has caught up."""
        if self._answering and self._transport is not None and not self.closing:
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """It is over."""
        self._end(str(error) if error is not None else self._why)
        self._unsent.clear()
        self._unsent_bytes = 0
        if not self.closed.done():
            self.closed.set_result(None)
        self._on_closed(self._why)
