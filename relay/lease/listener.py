"""What the server pushes: this instance's wake channel.

Job: one subscription for the process, read for ever; hand on each message.
Rules: a subscription that came anew has missed messages, so everybody who waits is told (``again``). A silent
connection proves nothing: it is pinged, and given up if it does not answer. One that never stands (a user without
the right to subscribe) costs a poll at each hand-off, so it is told, once.
Must not know: what messages mean.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import structlog
from redis import exceptions

from relay.lease.troubles import trouble

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio.client import PubSub

    from relay.lease.places import Place
    from relay.lease.troubles import Down

PING_S: Final = 1.0
"""After this much silence the server is pinged; after twice as much the connection counts as dead."""

AGAIN_S: Final = 0.25
"""Before the next try to subscribe."""


class Listener:
    """Reads one channel. ``listening`` says whether the subscription stands, ``trouble`` why it cannot."""

    def __init__(
        self,
        place: Place,
        channel: str,
        *,
        timeout_s: float,
        heard: Callable[[bytes], None],
        again: Callable[[], None],
        count: Callable[[str], None],
    ) -> None:
        self._place = place
        self._channel = channel
        self._timeout_s = timeout_s
        self._heard = heard
        self._again = again
        self._count = count
        self.trouble: Down | None = None
        self._attempts = 0
        self.listening = asyncio.Event()
        self._log = structlog.get_logger("relay.redis")

    async def listen_forever(self) -> None:
        """Subscribe, read, and subscribe again."""
        while True:
            client = self._place.listening(self._attempts)
            self._attempts += 1
            try:
                async with client.pubsub() as subscription:
                    await self._read(subscription)
            except (exceptions.RedisError, OSError) as error:
                self._failed(trouble(error, self._timeout_s))
            finally:
                self.listening.clear()
                await self._place.close(client)
            await asyncio.sleep(AGAIN_S)

    def _failed(self, why: Down) -> None:
        if self.listening.is_set():
            self._log.info("subscription lost", detail=why.detail)  # most often the next try stands
            return
        self._count(why.reason)
        if self.trouble is None:
            self._log.warning("pushes do not arrive: hand-offs wait for a poll", reason=why.reason, detail=why.detail)
        self.trouble = why

    def _stands(self) -> None:
        if self.trouble is not None:
            self._log.info("pushes arrive again")
        self.trouble = None
        self.listening.set()
        self._again()

    async def _read(self, subscription: PubSub) -> None:
        await subscription.subscribe(self._channel)
        pinged = False
        while True:
            message: Any = await subscription.get_message(timeout=PING_S)
            if message is None:
                if pinged:
                    raise TimeoutError("no answer to a ping")
                await subscription.ping()
                pinged = True
                continue
            pinged = False
            if message["type"] == "message":
                self._heard(message["data"])
            elif message["type"] == "subscribe":
                self._stands()
