"""What the server pushes: this instance's wake channel.

Job: one subscription for the process, read for ever; hand on each message.
Rules: a subscription that came anew has missed messages, so everybody who waits is told (``again``). A silent
connection proves nothing: it is pinged, and given up if it does not answer.
Must not know: what messages mean.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import structlog
from redis import exceptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio.client import PubSub

    from relay.lease.places import Place

PING_S: Final = 1.0
"""After this much silence the server is pinged; after twice as much the connection counts as dead."""

AGAIN_S: Final = 0.25
"""Before the next try to subscribe."""


class Listener:
    """Reads one channel. ``listening`` says whether the subscription stands."""

    def __init__(self, place: Place, channel: str, heard: Callable[[bytes], None], again: Callable[[], None]) -> None:
        self._place = place
        self._channel = channel
        self._heard = heard
        self._again = again
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
                if self.listening.is_set():
                    self._log.info("subscription lost", detail=f"{type(error).__name__}: {error}")
            finally:
                self.listening.clear()
                await self._place.close(client)
            await asyncio.sleep(AGAIN_S)

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
                self.listening.set()
                self._again()
