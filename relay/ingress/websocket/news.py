"""What a WebSocket client has asked to be told, on its way to it.

Job: notifications that wait for room, and the listener that each message which may subscribe brings along.
Rules: the answer to a message goes before whatever it subscribed to. Notifications wait while the client has no room;
one that lets too many wait is cut off, for they cannot be held back at their source.
Must not know: what is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiohttp import WSMsgType

from relay.ask import PREFIX, Client
from relay.ingress.websocket.frames import Frame, FrameQueue, Signal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relay.tasks import TaskOwner

NEEDLE: Final = PREFIX.encode()
MAX_WAITING_BYTES: Final = 1024 * 1024
"""Notifications of one client."""
MAX_HELD: Final = 1000
"""Of them, behind an answer that is not given yet."""


class News:
    """One client's. ``deliver`` takes a frame, ``room`` returns when there is room, ``cut`` ends the client."""

    def __init__(
        self,
        deliver: Callable[[Frame], None],
        room: Callable[[], Awaitable[None]],
        cut: Callable[[], None],
        tasks: TaskOwner,
    ) -> None:
        self.client = Client()
        self._deliver = deliver
        self._room = room
        self.cut = cut
        self._waiting = FrameQueue("websocket news", self._pass_on, lambda _: None, Signal(), tasks)

    def __repr__(self) -> str:
        return f"<News: {len(self.client.subscriptions)} subscriptions, {self._waiting.size} bytes wait>"

    def hearing(self, message: bytes) -> Hearing | None:
        """A listener for a message that may subscribe; None for every other."""
        return Hearing(self) if NEEDLE in message or b"\\" in message else None

    def put(self, text: bytes) -> None:
        """To the client, after all that came before."""
        if self.client.gone:
            return
        if self._waiting.size > MAX_WAITING_BYTES:
            self.cut()
        else:
            self._waiting.put(Frame(WSMsgType.TEXT, text))

    def close(self) -> None:
        """The client is told nothing more."""
        self.client.leave()
        self._waiting.close()

    async def _pass_on(self, frame: Frame) -> None:
        await self._room()
        self._deliver(frame)


class Hearing:
    """One message of the client: what it subscribes to is held until it is answered."""

    __slots__ = ("_held", "_news", "client")

    def __init__(self, news: News) -> None:
        self.client = news.client
        self._news = news
        self._held: list[bytes] | None = []

    def tell(self, text: bytes) -> None:
        """As `relay.ask.Listener.tell`."""
        if self._held is None:
            self._news.put(text)
        elif len(self._held) < MAX_HELD:
            self._held.append(text)
        else:
            self._news.cut()

    def open(self) -> None:
        """The message is answered."""
        held, self._held = self._held or (), None
        for text in held:
            self._news.put(text)
