"""What the node says of an account: counts, balance, whether it knows a hash, receipts.

Job: reads for the lanes and the prechecks. Reads that may be shared for a moment go through async-lru, so that many
copies of one question cost one request.
Rules: a count that judges a ticket is read afresh, never shared. "Not known" (None) is not evidence; only what was read
is. What a read may cost is bounded by `READ_TIMEOUT_S`, so that a slow node does not eat a lane's budget.
Must not know: lanes, prechecks.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any, Final

from async_lru import alru_cache

from relay import jsonrpc
from relay.upstream.client import Answered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relay.upstream.client import UpstreamClient

READ_TIMEOUT_S: Final = 5.0
COUNT_TIMEOUT_S: Final = 2.0
"""A lane waits for a count before its first turn; a node that cannot say it must not stop the lane."""
SILENT_TIMEOUT_S: Final = 0.25
SILENT_S: Final = 10.0
"""After a count that did not come in time, the next ones are waited for only briefly, for so long."""
MAX_COUNT: Final = 2**64 - 1
"""EIP-2681: no account gets further, so more than that is no count."""
BALANCE_TTL_S: Final = 1.0
RECEIPT_TTL_S: Final = 0.1
_QUANTITY: Final = re.compile(r"0x[0-9a-fA-F]{1,64}\Z")


class Accounts:
    """Account reads at one node."""

    def __init__(self, client: UpstreamClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._silent_until = 0.0
        self._shared_balance = alru_cache(maxsize=4096, ttl=BALANCE_TTL_S)(self.balance)
        self._shared_receipt = alru_cache(maxsize=4096, ttl=RECEIPT_TTL_S)(self._receipt)

    async def pending_count(self, address: str) -> int | None:
        """The next nonce counting what waits in the node's mempool, read afresh."""
        return await self._count(address, "pending")

    async def latest_count(self, address: str) -> int | None:
        """The next nonce counting what is mined, read afresh."""
        return await self._count(address, "latest")

    async def balance(self, address: str) -> int | None:
        """In wei, read afresh."""
        return _quantity(await self._client.read("eth_getBalance", [address, "latest"], READ_TIMEOUT_S))

    async def recent_balance(self, address: str) -> int | None:
        """In wei, at most `BALANCE_TTL_S` old: good enough to let pass, not to refuse."""
        return await self._shared_balance(address)

    async def knows(self, hash_: str, timeout_s: float = READ_TIMEOUT_S) -> bool | None:
        """Does the node know this very transaction, pending or mined? None: it did not say."""
        found = await self._client.read("eth_getTransactionByHash", [hash_], min(timeout_s, READ_TIMEOUT_S))
        if found is None:
            return False
        if isinstance(found, dict) and str(found.get("hash", "")).lower() == hash_.lower():
            return True
        return None

    async def known(self, hashes: Sequence[str], timeout_s: float) -> list[bool | None]:
        """`knows` of each, all asked at once: as slow as the slowest, and no batch, for the node may refuse those."""
        return list(await asyncio.gather(*(self.knows(hash_, timeout_s) for hash_ in hashes)))

    async def receipt(self, hash_: str) -> bytes | None:
        """The receipt's text as the node sent it; None while there is none."""
        return await self._shared_receipt(hash_)

    async def _receipt(self, hash_: str) -> bytes | None:
        attempt = await self._client.call("eth_getTransactionReceipt", [hash_], READ_TIMEOUT_S)
        if isinstance(attempt, Answered) and attempt.reply.result not in (None, jsonrpc.NULL):
            return attempt.reply.result
        return None

    async def _count(self, address: str, block: str) -> int | None:
        began = self._clock()
        bound = SILENT_TIMEOUT_S if began < self._silent_until else COUNT_TIMEOUT_S
        count = _quantity(await self._client.read("eth_getTransactionCount", [address, block], bound))
        if count is None and self._clock() - began >= COUNT_TIMEOUT_S:
            self._silent_until = self._clock() + SILENT_S
        return count if count is not None and count <= MAX_COUNT else None


def _quantity(value: Any) -> int | None:
    return int(value, 16) if isinstance(value, str) and _QUANTITY.match(value) else None
