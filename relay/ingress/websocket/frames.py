"""What both ends of a WebSocket have in common: frames that wait to be written, and signs of life.

Job: write frames to one peer in order, and tell a peer that is slow from one that is gone.
Rules: putting a frame is synchronous; whoever puts bounds what waits, by `FrameQueue.size`. A writing task lives only
while there is something to write. Silence is counted in ticks, not by the clock: a process that was paused must not
take everybody for dead.
Must not know: JSON-RPC, which peer it is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from aiohttp import ClientError, WSMsgType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relay.ingress.websocket.pending import Pending
    from relay.tasks import TaskOwner

TICK_S: Final = 1.0
PING_TICKS: Final = 30
"""A peer that has said nothing for so long is pinged; after twice as long it is gone."""
STALL_TICKS: Final = 30
"""A peer that has taken nothing of what waits for it for so long is gone."""
FRAME_OVERHEAD: Final = 64
"""Bytes a waiting frame costs beside its data, so that many small ones are bounded, too."""

DATA: Final = (WSMsgType.TEXT, WSMsgType.BINARY)


class Frame(NamedTuple):
    """A message, a ping or a pong. ``pending``: the entry of a client's message on its way to the node."""

    kind: WSMsgType
    data: bytes
    pending: Pending | None = None


class Signal:
    """Something has changed: look again."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def fire(self) -> None:
        """Wake all who wait."""
        self._event.set()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for ``true()``, asked again after each `fire`."""
        while not true():
            self._event.clear()
            await self._event.wait()


class FrameQueue:
    """Frames to one peer. ``broken`` is told, once, in words, that they cannot be written."""

    def __init__(
        self,
        name: str,
        write: Callable[[Frame], Awaitable[None]],
        broken: Callable[[str], None],
        moved: Signal,
        tasks: TaskOwner,
    ) -> None:
        self._name = name
        self._write = write
        self._broken = broken
        self._moved = moved
        self._tasks = tasks
        self._frames: deque[Frame] = deque()
        self._writer: asyncio.Task[None] | None = None
        self.size = 0
        self.written = 0

    def __repr__(self) -> str:
        return f"<FrameQueue {self._name}: {len(self._frames)} frames, {self.size} bytes>"

    @property
    def empty(self) -> bool:
        """Has everything been handed to the transport?"""
        return self._writer is None

    def put(self, frame: Frame) -> None:
        """``frame`` goes after all that came before."""
        self._frames.append(frame)
        self.size += _cost(frame)
        if self._writer is None:
            self._writer = self._tasks.spawn(self._name, self._run())

    def clear(self) -> None:
        """Forget what has not been written. What is being written is not disturbed."""
        while self._frames:
            self.size -= _cost(self._frames.popleft())

    def close(self) -> None:
        """Forget it, and stop writing."""
        self.clear()
        if self._writer is not None:
            self._writer.cancel()

    async def _run(self) -> None:
        try:
            while self._frames:
                await self._write_one(self._frames.popleft())
        except (OSError, ClientError) as error:
            self.clear()
            self._broken(str(error) or type(error).__name__)
        finally:
            self._writer = None
            self._moved.fire()

    async def _write_one(self, frame: Frame) -> None:
        try:
            await self._write(frame)
        finally:
            self.size -= _cost(frame)
        self.written += 1
        self._moved.fire()


class Still:
    """For how many ticks a mark has not changed."""

    __slots__ = ("_mark", "_ticks")

    def __init__(self) -> None:
        self._mark: object = None
        self._ticks = 0

    def tick(self, mark: object) -> int:
        """0 if ``mark`` is another than at the last tick."""
        self._ticks = self._ticks + 1 if mark == self._mark else 0
        self._mark = mark
        return self._ticks


def _cost(frame: Frame) -> int:
    return len(frame.data) + FRAME_OVERHEAD
