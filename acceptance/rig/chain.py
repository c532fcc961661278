"""The embedded development chain, from outside: its settings, its script, its record of what arrived.

Its control methods (``dev_…``) are calls like any other.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from acceptance.rig.calls import Caller

if TYPE_CHECKING:
    import aiohttp

    from acceptance.rig.processes import Process


class Chain(Caller):
    """A running development chain."""

    chain_id = 1337

    def __init__(self, session: aiohttp.ClientSession, url: str, process: Process) -> None:
        super().__init__(session, url)
        self.process = process

    async def reset(self, **settings: Any) -> None:
        """Begin anew with these settings changed."""
        await self.call("dev_reset", settings)

    async def script(self, *rules: dict[str, Any]) -> None:
        """From now on these things go wrong."""
        await self.call("dev_script", *rules)

    async def report(self) -> dict[str, Any]:
        """The counts of what arrived: submissions, inversions, overlaps."""
        report: dict[str, Any] = await self.call("dev_report")
        return {name: report[name] for name in ("submissions", "inversions", "overlaps")}

    async def arrived(self, count: int) -> None:
        """Until so many submissions have arrived, answered or not."""
        async with asyncio.timeout(30):
            while len(await self.arrivals()) < count:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)

    async def arrivals(self) -> list[dict[str, Any]]:
        """Each submission that arrived, with what became of it."""
        arrivals: list[dict[str, Any]] = await self.call("dev_arrivals")
        return arrivals

    async def forget(self, *hashes: str) -> None:
        """Lose these transactions, mined ones excepted."""
        for hash_ in hashes:
            await self.call("dev_forget", hash_)
