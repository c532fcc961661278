"""Waiting for receipts, for `eth_sendRawTransactionSync`.

Job: look for a transaction's receipt until it is there or the client's time is over; outside the lane, which was
released when the node took the transaction.
Rules: copies share looks (`Accounts.receipt`). The end of the instance ends every wait at once.
Must not know: lanes, submissions.

Source: EIP-7966 (code 4 with the hash as data)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from relay import errors
from relay.submission import Accepted

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.submission import Outcome
    from relay.upstream.accounts import Accounts

WAITS_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
"""Between looks; the last one repeats."""


class Receipts:
    """Waits for receipts at one node."""

    def __init__(self, accounts: Accounts, clock: Callable[[], float]) -> None:
        self._accounts = accounts
        self._clock = clock
        self._closing = asyncio.Event()

    async def wait(self, hash_: str, timeout_s: float) -> Outcome:
        """The receipt's text, or code 4 with the hash when ``timeout_s`` is over."""
        began = self._clock()
        deadline = began + timeout_s
        waits = iter(WAITS_S)
        wait = 0.0
        while not self._closing.is_set() and self._clock() < deadline:
            if (receipt := await self._look(hash_, deadline)) is not None:
                return Accepted(receipt)
            wait = next(waits, wait)
            await self._pause(min(wait, max(0.0, deadline - self._clock())))
        return errors.RECEIPT_TIMEOUT.refusal(data=hash_, seconds=round(self._clock() - began, 3))

    async def _look(self, hash_: str, deadline: float) -> bytes | None:
        """One look; a node that does not answer costs no more than the client's time."""
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock())):
                return await self._accounts.receipt(hash_)
        except TimeoutError:
            return None

    def give_up(self) -> None:
        """The instance ends: answer those who still wait."""
        self._closing.set()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return
