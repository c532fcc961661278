"""One instance's side of the lease protocol, over a real server: its store, its subscription, what it says."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from relay.lease import scripts
from relay.lease.listener import Listener
from relay.lease.places import Place
from relay.lease.protocol import Enter, Leave, Renew, read_answer
from relay.lease.store import Result, Store
from relay.lease.troubles import Down, Spoilt
from relay.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TIMEOUT_S = 0.2
LANE = "relay:{1:0xaa}"
SCRIPTS = {Enter: scripts.ENTER, Renew: scripts.RENEW, Leave: scripts.LEAVE}


class Side:
    """One instance's store, and shorthands for what it says."""

    def __init__(self, url: str, name: str = "me", timeout_s: float = TIMEOUT_S) -> None:
        self.faults: list[str] = []
        self.counted: list[str] = []
        self.owner = TaskOwner("test", lambda name, error: self.faults.append(f"{name}: {error!r}"))
        self.place = Place(url, timeout_s)
        self.name = name
        self.store = Store(
            self.place,
            url=url,
            probe=(f"relay:probe:{name}", f"relay:wake:{name}"),
            timeout_s=timeout_s,
            owner=self.owner,
            count=self.counted.append,
        )
        self.changes: asyncio.Queue[bool] = asyncio.Queue()
        self.store.changed = lambda: self.changes.put_nowait(self.store.up)

    async def say(self, command: Enter | Renew | Leave, lane: str = LANE) -> Result:
        common = ("relay:wake:", "1:0xaa", self.name, command.registration, 5000, 1_000_000, 400_000, 0)
        keys = [f"{lane}:lease", f"{lane}:lane"]
        return await self.store.run(SCRIPTS[type(command)], keys, [*common, *command.arguments])

    async def enter(self, registration: int, head: int = 0, known: int = 0, lane: str = LANE) -> Any:
        words = await self.say(Enter(registration, head, known, gap=False, seen=0), lane)
        return words if isinstance(words, Down | Spoilt) else read_answer(words)

    async def leave(self, registration: int, fence: int, next_: int = -1, lane: str = LANE) -> Any:
        words = await self.say(Leave(registration, fence, next_), lane)
        return words if isinstance(words, Down | Spoilt) else read_answer(words)


@asynccontextmanager
async def side(url: str, name: str = "me", timeout_s: float = TIMEOUT_S) -> AsyncIterator[Side]:
    """A store that has been started."""
    made = Side(url, name, timeout_s)
    await made.store.start()
    try:
        yield made
    finally:
        await made.owner.close()
        await made.store.close()
        assert made.faults == []


def listener_of(
    me: Side, again: asyncio.Queue[None] | None = None, heard: asyncio.Queue[bytes] | None = None
) -> Listener:
    """Of ``me``'s wake channel."""
    return Listener(
        me.place,
        f"relay:wake:{me.name}",
        timeout_s=TIMEOUT_S,
        heard=(heard or asyncio.Queue()).put_nowait,
        again=lambda: again.put_nowait(None) if again else None,
        count=me.counted.append,
    )


@asynccontextmanager
async def listening(me: Side, again: asyncio.Queue[None] | None = None) -> AsyncIterator[asyncio.Queue[bytes]]:
    """What is pushed to ``me``."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    listener = listener_of(me, again, heard)
    me.owner.start("listener", listener.listen_forever())
    await listener.listening.wait()
    yield heard
