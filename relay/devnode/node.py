"""A development node: the chain, its behaviour and its clock.

Job: put the pure parts together, mine when it is time, hold what is to hang, and tell tests what happens.
Rules: everything but the waiting itself is synchronous. `reset` replaces the chain; calls under way end on the one
they began with.
Must not know: JSON-RPC, HTTP (`relay.devnode.server` knows both).
"""

from __future__ import annotations

import asyncio
import random
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import msgspec

from relay.devnode.arrivals import Arrivals
from relay.devnode.chain import Chain
from relay.devnode.faults import Script
from relay.devnode.server import Server
from relay.devnode.settings import NodeSettings
from relay.devnode.watchers import Watchers

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.devnode.blocks import Block


def _unix_seconds() -> int:
    return int(datetime.now(UTC).timestamp())


class DevNode:
    """``async with DevNode(NodeSettings(mode="pool")) as node`` serves until the end of the block.

    `close` drops every connection at once, as a crash does; `start` serves the same chain again on the same port.
    """

    settings: NodeSettings
    chain: Chain
    arrivals: Arrivals
    watchers: Watchers
    _dice: random.Random

    def __init__(
        self,
        settings: NodeSettings | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.script = Script()
        self._clock = clock
        self._server = Server(self, host, port)
        self._held: set[asyncio.Future[bool]] = set()
        self._curious: list[asyncio.Future[None]] = []
        self._timer: asyncio.Handle | None = None
        self._begin(settings or NodeSettings())

    def __repr__(self) -> str:
        return f"<devnode {self.url or 'not serving'}: {self.chain!r}, {self.arrivals!r}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """``http://HOST:PORT``, once it has been started."""
        return self._server.url("http")

    @property
    def ws_url(self) -> str:
        """``ws://HOST:PORT``, once it has been started."""
        return self._server.url("ws")

    @property
    def hanging(self) -> int:
        """How many calls are held by a scripted hang."""
        return len(self._held)

    async def start(self) -> None:
        """Listen. Raises OSError if the address is taken."""
        await self._server.start()
        self._wind()

    async def close(self) -> None:
        """Stop at once: open connections break, calls under way are dropped; the chain stays."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        await self._server.close()

    def clear(self) -> None:
        """Drop all rules, release what hangs, begin a new record."""
        self.script.clear()
        self.release()
        self.arrivals.clear()
        self.stir()

    def reset(self, settings: NodeSettings | None = None) -> None:
        """Begin anew: chain, rules and record, with other settings if given. Needs a running loop."""
        self.script.clear()
        self.release()
        self._begin(settings or self.settings)
        self._wind()
        self.stir()

    def change(self, **changes: Any) -> None:
        """Other settings from now on (``base_fee``, ``gas_limit``); the chain stays."""
        self.settings = msgspec.structs.replace(self.settings, **changes)
        self.chain.change(self.settings)

    def mine(self) -> Block:
        """Make a block of what is ready, be it empty."""
        block = self.chain.mine()
        self.watchers.announce(block)
        self.stir()
        return block

    def release(self) -> int:
        """Let everything go on that hangs. How many did."""
        held = [future for future in self._held if not future.done()]
        for future in held:
            future.set_result(True)
        return len(held)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds; asked again after each arrival, answer, hang and block."""
        while not condition():
            future = asyncio.get_running_loop().create_future()
            self._curious.append(future)
            await future

    def stir(self) -> None:
        """Something has changed."""
        curious, self._curious = self._curious, []
        for future in curious:
            if not future.done():
                future.set_result(None)

    def accepted(self) -> None:
        """The chain took a transaction: a block is due where nothing else decides when."""
        if self.settings.block_time_s == 0 and self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self._mine_burst)

    async def check(self) -> None:
        """What a submission goes through before its nonce is judged: time."""
        if any(self.settings.delay_ms):
            await asyncio.sleep(self._dice.uniform(*self.settings.delay_ms) / 1000)

    async def hold(self, future: asyncio.Future[bool]) -> bool:
        """Wait for `release` (true) or for whoever else resolves the future (false: the caller is gone)."""
        self._held.add(future)
        self.stir()
        try:
            return await future
        finally:
            self._held.discard(future)

    def _begin(self, settings: NodeSettings) -> None:
        self.settings = settings
        self.chain = Chain(settings, _unix_seconds)
        self.watchers = Watchers(self.chain)
        self.arrivals = Arrivals(settings.keep_arrivals, self._clock)
        self._dice = random.Random(settings.seed)  # noqa: S311 - a repeatable delay, not a secret

    def _wind(self) -> None:
        """Start whatever makes the next block."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self.settings.block_time_s:
            self._timer = asyncio.get_running_loop().call_later(self.settings.block_time_s, self._tick)
        else:
            self.accepted()

    def _tick(self) -> None:
        self.mine()
        self._wind()

    def _mine_burst(self) -> None:
        self._timer = None
        if self.chain.can_mine:
            self.mine()
            self.accepted()
